"""The command line as values: verbs, options and arguments, for the help, manuals and completions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


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
