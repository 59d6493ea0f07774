"""The command line as values, for the help, manuals and completions, read from what is declared.

typer's own objects are not used, since they differ between its versions.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from podslice.cli.options import COMMON_FLAGS
from podslice.cli.verb_table import VERBS
from podslice.inputs.options.table import OPTIONS


class OptionGroup(StrEnum):
    """A heading in the help of a verb, in this order."""

    OWN = "Options"
    COMMON = "Common options"
    AGENT = "Agent options, keys of podslice.toml(5)"
    CONFIG = "Configuration options, keys of podslice.toml(5)"


class Option(NamedTuple):
    """One option of a verb."""

    flags: tuple[str, ...]
    """Short ones first."""
    metavar: str
    """Empty for a flag without a value."""
    help: str
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_repeatable: bool = False
    default: str = ""
    limits: str = ""
    """`1 to 3600`; empty if any number is accepted."""
    group: OptionGroup = OptionGroup.OWN

    @property
    def name(self) -> str:
        """The first long flag."""
        return next(flag for flag in self.flags if flag.startswith("--"))


class Argument(NamedTuple):
    """A positional argument of a verb."""

    metavar: str
    help: str
    is_required: bool
    is_repeatable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb, or the program itself, with the verbs below it."""

    path: tuple[str, ...]
    help: tuple[str, ...]
    """Paragraphs; the first is the summary."""
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...] = ()
    verbs: tuple[Verb, ...] = field(default=())

    @property
    def name(self) -> str:
        """The words after `podslice`."""
        return " ".join(self.path)

    def walk(self) -> Iterator[Verb]:
        """Yield the verb and all below it, parents first."""
        yield self
        for verb in self.verbs:
            yield from verb.walk()


HELP = Option(
    flags=("-h", "--help"), metavar="", help="Show this help and exit.", group=OptionGroup.COMMON
)

_WORDS = re.compile(r"[a-z0-9_-]+(\|[a-z0-9_-]+)+")
_CONFIG_OPTIONS = {f"--{row.key}": row for row in OPTIONS}


def read_app(app: typer.Typer, path: tuple[str, ...] = (), *, with_options: bool = True) -> Verb:
    """Return a program or a group of verbs, with the verbs below it that are not hidden.

    Without options, the verbs below have only their descriptions.
    """
    read = read_verb if with_options else read_summary
    callback = app.registered_callback.callback if app.registered_callback else None
    verbs = [
        read(command.callback, (*path, command.name or _dashed(command.callback.__name__)))
        for command in app.registered_commands
        if command.callback is not None and not command.hidden
    ]
    verbs += [
        read_app(group.typer_instance, (*path, group.name), with_options=with_options)
        for group in app.registered_groups
        if group.typer_instance is not None and group.name and not group.hidden
    ]
    own = read_verb(callback, path) if callback else Verb(path=path, help=(), options=(HELP,))
    return Verb(
        path=path,
        help=own.help,
        options=own.options,
        arguments=own.arguments,
        verbs=tuple(sorted(verbs, key=lambda verb: verb.path)),
    )


def read_verb(callback: Callable[..., Any], path: tuple[str, ...]) -> Verb:
    """Return the verb that a function declares."""
    options, arguments = [], []
    for parameter in inspect.signature(callback, eval_str=True).parameters.values():
        if get_origin(parameter.annotation) is not Annotated:
            continue  # the context
        kind, info, *_ = get_args(parameter.annotation)
        if isinstance(info, ArgumentInfo):
            arguments.append(_argument(parameter, kind, info))
        elif isinstance(info, OptionInfo) and not info.hidden:
            options.append(_option(parameter, kind, info))
    return replace(
        read_summary(callback, path), options=(*options, HELP), arguments=tuple(arguments)
    )


def read_summary(callback: Callable[..., Any], path: tuple[str, ...]) -> Verb:
    """Return the verb with its description only, which takes a fraction of the time."""
    text = inspect.getdoc(callback) or ""
    # sections for readers of the code are not part of the help
    text = re.split(r"^(?:Raises|Args|Returns|Source):", text, flags=re.MULTILINE)[0]
    first, *others = (re.sub(r"\s+", " ", part) for part in text.strip().split("\n\n"))
    row = VERBS.get(" ".join(path))
    return Verb(
        path=path, help=(row.summary if row and row.summary else first, *others), options=()
    )


def _option(parameter: inspect.Parameter, kind: object, info: OptionInfo) -> Option:
    bare = _bare(kind)
    choices: tuple[str, ...] = ()
    if isinstance(bare, type) and issubclass(bare, Enum):
        choices = tuple(str(each.value) for each in bare)
    metavar = info.metavar or ("|".join(choices) if choices else "")
    if not metavar and bare is not bool:
        metavar = "DIR" if bare is Path else _dashed(parameter.name).upper()
    if not choices and _WORDS.fullmatch(metavar):
        choices = tuple(metavar.split("|"))
    default, limits = parameter.default, ""
    if info.min is not None:
        limits = f"at least {info.min}" if info.max is None else f"{info.min} to {info.max}"
    return Option(
        flags=_flags_of(parameter, info),
        metavar=metavar,
        help=info.help or "",
        choices=choices,
        is_required=default in (inspect.Parameter.empty, ...),
        is_repeatable=_is_list(kind),
        default=str(default.value if isinstance(default, Enum) else default)
        if metavar and default not in (inspect.Parameter.empty, ..., None)
        else "",
        limits=limits,
        group=_group(_flags_of(parameter, info), info.help),
    )


def _group(flags: tuple[str, ...], text: str | None) -> OptionGroup:
    """Return the heading that an option belongs to: that of the table has the table's help."""
    name = next(flag for flag in flags if flag.startswith("--"))
    row = _CONFIG_OPTIONS.get(name)
    if row is not None and row.help == text:
        return OptionGroup.AGENT if row.is_agent_only else OptionGroup.CONFIG
    return OptionGroup.COMMON if name in COMMON_FLAGS else OptionGroup.OWN


def _argument(parameter: inspect.Parameter, kind: object, info: ArgumentInfo) -> Argument:
    shown = info.metavar or _dashed(parameter.name).upper()
    return Argument(
        metavar=shown.strip("[].…"),
        help=info.help or "",
        is_required=parameter.default in (inspect.Parameter.empty, ...),
        is_repeatable=_is_list(kind),
    )


def _bare(kind: object) -> object:
    """`list[str] | None` → `str`."""
    inner = [each for each in get_args(kind) if each is not type(None)]
    return _bare(inner[0]) if inner else kind


def _is_list(kind: object) -> bool:
    return get_origin(kind) is list or any(_is_list(each) for each in get_args(kind))


def _flags_of(parameter: inspect.Parameter, info: OptionInfo) -> tuple[str, ...]:
    """Return the flags of an option, short ones first."""
    # in Annotated[] the first declaration arrives in the place of the default
    first = (info.default,) if isinstance(info.default, str) else ()
    stated = (*first, *(info.param_decls or ())) or (f"--{_dashed(parameter.name)}",)
    return tuple(sorted(stated, key=lambda flag: flag.startswith("--")))


def _dashed(name: str) -> str:
    """Return the name of a parameter as the command line has it."""
    return name.strip("_").replace("_", "-")


WIDTH_MIN = 50
_COLUMN_MAX = 32
"""Where descriptions start at most; a longer name has a line of its own."""
_INDENT, _GAP = 2, 2

Entry = tuple[Sequence[str], str]
"""Names, each on a line of its own if it is long, and their description."""


def format_help(
    verb: Verb, *, width: int, groups: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return the help of a verb, no wider than `width`; `groups` are headings of the verbs below."""
    width = max(width, WIDTH_MIN)
    by_name = {each.path[-1]: each for each in verb.verbs}
    verbs: list[tuple[str, list[Entry]]] = [
        (heading, [([name], by_name[name].help[0]) for name in names if name in by_name])
        for heading, names in (groups or {"Verbs": list(by_name)}).items()
    ]
    others: list[tuple[str, list[Entry]]] = [
        ("Arguments", [([each.metavar], each.help) for each in verb.arguments])
    ]
    others += _option_groups(verb)
    blocks = [[_usage(verb)], *(_wrapped(text, width, _INDENT) for text in verb.help)]
    for sections in (verbs, others):
        column = _column([entry for _, entries in sections for entry in entries], width)
        for heading, entries in sections:
            if entries:
                lines = (line for entry in entries for line in _lines(entry, column, width))
                blocks.append([f"{heading}:", *lines])
    return "\n\n".join("\n".join(block) for block in blocks)


def _usage(verb: Verb) -> str:
    words = ["podslice", *verb.path, "[OPTIONS]"]
    for each in verb.arguments:
        name = f"{each.metavar}..." if each.is_repeatable else each.metavar
        words.append(name if each.is_required else f"[{name}]")
    if verb.verbs:
        words += ["[VERB]", "[ARGS]..."] if verb.path else ["VERB", "[ARGS]..."]
    return f"Usage: {' '.join(words)}"


def _option_groups(verb: Verb) -> Iterator[tuple[str, list[Entry]]]:
    has_common = any(each.group is OptionGroup.CONFIG for each in verb.options)
    found: dict[OptionGroup, list[Entry]] = {group: [] for group in OptionGroup}
    for option in verb.options:
        is_own = option.group is OptionGroup.COMMON and not has_common
        found[OptionGroup.OWN if is_own else option.group].append(_option_entry(option))
    for group, entries in found.items():
        yield group.value, entries


def _option_entry(option: Option) -> Entry:
    value = f" {option.metavar}" if option.metavar else ""
    first = 1 + option.flags.index(option.name)
    names = [", ".join(option.flags[:first]) + value]
    names += option.flags[first:]
    default = f"default: {option.default}" if option.default else ""
    required = "required" if option.is_required else ""
    notes = [*filter(None, (required, option.limits, default))]
    return names, f"{option.help} ({'; '.join(notes)})" if notes else option.help


def _column(entries: Iterable[Entry], width: int) -> int:
    """Return where descriptions start: beside most names, within a third of the width."""
    limit = min(_COLUMN_MAX, width // 3)
    ends = (_INDENT + len(name) + _GAP for names, _ in entries for name in names)
    return max((end for end in ends if end <= limit), default=limit)


def _lines(entry: Entry, column: int, width: int) -> Iterator[str]:
    """Yield names with their description beside them, or below them where they are too long."""
    names, text = entry
    lines = _wrapped(text, width, column)
    if len(names) == 1 and _INDENT + len(names[0]) + _GAP <= column and lines:
        yield " " * _INDENT + names[0].ljust(column - _INDENT) + lines[0].lstrip()
        yield from lines[1:]
    else:
        yield from (f"{' ' * _INDENT}{name}" for name in names)
        yield from lines


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    space = " " * indent
    return wrap(
        text,
        width,
        initial_indent=space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )
