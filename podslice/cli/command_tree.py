"""Read the command line from what is declared.

typer's own objects are not used, since they differ between its versions.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.models import ArgumentInfo, OptionInfo

from podslice.cli.command_line import HELP, Argument, Option, OptionGroup, Verb
from podslice.cli.options import COMMON_FLAGS
from podslice.cli.verb_table import SUMMARIES
from podslice.inputs.options.table import OPTIONS

_WORDS = re.compile(r"[a-z0-9_-]+(\|[a-z0-9_-]+)+")
_SUMMARIES: dict[tuple[str, ...], str] = {
    (name,): text for verbs in SUMMARIES.values() for name, text in verbs.items()
}
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
    return Verb(path=path, help=(_SUMMARIES.get(path, first), *others), options=())


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
    default = parameter.default
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
        limits=_limits(info),
        group=_group(_flags_of(parameter, info), info.help),
    )


def _group(flags: tuple[str, ...], text: str | None) -> OptionGroup:
    """Return the heading that an option belongs to: that of the table has the table's help."""
    name = next(flag for flag in flags if flag.startswith("--"))
    row = _CONFIG_OPTIONS.get(name)
    if row is not None and row.help == text:
        return OptionGroup.AGENT if row.is_agent_only else OptionGroup.CONFIG
    return OptionGroup.COMMON if name in COMMON_FLAGS else OptionGroup.OWN


def _limits(info: OptionInfo) -> str:
    if info.min is None:
        return ""
    return f"at least {info.min}" if info.max is None else f"{info.min} to {info.max}"


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
