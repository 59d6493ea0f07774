"""Roles of text, their colors on a terminal, and bars. Pure: text in, text with escape sequences out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Role(StrEnum):
    """The meaning of a text, from which its color follows."""

    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    DIM = "dim"
    HEADING = "heading"


class ColorMode(StrEnum):
    """Values of `--color`."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


_STYLES: Mapping[Role, Mapping[str, Any]] = {
    Role.GOOD: {"fg": "green"},
    Role.WARNING: {"fg": "yellow"},
    Role.ERROR: {"fg": "red", "bold": True},
    Role.DIM: {"dim": True},
    Role.HEADING: {"bold": True},
}
_BAR_FULL, _BAR_EMPTY = "█", "░"
_ONE_PERCENT = 0.01
_BAR_WARNING, _BAR_ERROR = 0.75, 0.9
"""From these parts of the whole, a bar has the color of a warning or of an error."""


class Styled(NamedTuple):
    """A text with a role: a cell of a table, or a part of a line."""

    text: str
    role: Role


Cell = str | Styled
"""A cell of a table; its text is measured and shortened without its color."""


def warned(text: str, *, when: bool) -> Cell:
    """Return a cell, which may be a warning."""
    return Styled(text, Role.WARNING) if when else text


class Display(NamedTuple):
    """How lines are displayed: the details, the width and the colors. The default is for pipes."""

    wide: bool = False
    """All details, requested with `-o wide`."""
    width: int | None = None
    """The columns of the terminal, None if lines may be of any length: in pipes, and with `wide`."""
    is_colored: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether amounts are exact: with all details, but not on a full-screen page."""
        return self.wide and self.width is None

    def paint(self, text: str, role: Role | None) -> str:
        """Return the text in the color of its role, if colors are displayed."""
        if role is None or not self.is_colored or not text:
            return text

        import typer  # the prober, a process for each container, has no colors

        return typer.style(text, **_STYLES[role])


def is_colored(mode: ColorMode, environment: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Return whether to use colors.

    Source: no-color.org: "when present and not an empty string […] prevents the addition of ANSI
    color"; arguments of the command line override it.
    """
    if mode is not ColorMode.AUTO:
        return mode is ColorMode.ALWAYS
    is_capable = environment.get("TERM", "dumb") != "dumb"
    return is_terminal and is_capable and not environment.get("NO_COLOR")


def bar(
    part: int, whole: int, *, width: int = 10, marks: Mapping[str, int] | None = None
) -> Styled:
    """Return a bar of this width: the part of the whole, as a warning or an error when it is high.

    `marks` are characters with the amounts at which they are in the bar; a later one covers others.
    """
    share = min(1.0, max(0.0, part / whole)) if whole > 0 else 0.0
    # a part from 1 % on is not shown as nothing, and one that is not everything not as everything
    full = min(max(round(share * width), share >= _ONE_PERCENT), width - (share < 1))
    role = Role.GOOD
    if share >= _BAR_WARNING:
        role = Role.ERROR if share >= _BAR_ERROR else Role.WARNING
    cells = [*_BAR_FULL * full, *_BAR_EMPTY * (width - full)]
    for mark, amount in (marks or {}).items():
        cells[min(amount * width // whole, width - 1) if whole > 0 else 0] = mark
    return Styled("".join(cells), role)


MARKS = {"R": "requested", "P": "90th percentile"}
"""The marks of a bar, where there is recorded usage to compare a request with."""


def marks_of(requested: int | None, recorded: int | None) -> dict[str, int]:
    """Return the amounts at the marks; none without recorded usage."""
    if recorded is None:
        return {}
    return {"R": requested, "P": recorded} if requested is not None else {"P": recorded}


def use_bar(used: int, limit: int | None, marks: Mapping[str, int], *, width: int) -> Cell:
    """Return the bar of a limit, or of the largest amount that is marked; empty without both."""
    if limit is not None:
        return bar(used, limit, width=width, marks=marks)
    if not marks:
        return ""
    shown = bar(used, max(used, *marks.values()), width=width, marks=marks)
    return Styled(shown.text, Role.GOOD)
