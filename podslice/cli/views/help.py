"""The help of the program and of its verbs. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from podslice.cli.command_line import OptionGroup

if TYPE_CHECKING:
    from podslice.cli.command_line import Argument, Option, Verb

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
    verbs = list(_verb_groups(verb, groups))
    others = [("Arguments", [_argument_entry(each) for each in verb.arguments])]
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


def _verb_groups(
    verb: Verb, groups: Mapping[str, Sequence[str]] | None
) -> Iterator[tuple[str, list[Entry]]]:
    by_name = {each.path[-1]: each for each in verb.verbs}
    for heading, names in (groups or {"Verbs": list(by_name)}).items():
        yield heading, [([name], by_name[name].help[0]) for name in names if name in by_name]


def _option_groups(verb: Verb) -> Iterator[tuple[str, list[Entry]]]:
    has_common = any(each.group is OptionGroup.CONFIG for each in verb.options)
    found: dict[OptionGroup, list[Entry]] = {group: [] for group in OptionGroup}
    for option in verb.options:
        is_own = option.group is OptionGroup.COMMON and not has_common
        found[OptionGroup.OWN if is_own else option.group].append(_option_entry(option))
    for group, entries in found.items():
        yield group.value, entries


def _argument_entry(argument: Argument) -> Entry:
    return [argument.metavar], argument.help


def _option_entry(option: Option) -> Entry:
    value = f" {option.metavar}" if option.metavar else ""
    first = 1 + option.flags.index(option.name)
    names = [", ".join(option.flags[:first]) + value]
    names += option.flags[first:]
    notes = [
        *(["required"] if option.is_required else []),
        *([option.limits] if option.limits else []),
        *([f"default: {option.default}"] if option.default else []),
    ]
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
