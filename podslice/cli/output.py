"""Output: documents and lines on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, TextIO

from podslice.cli.views.problem_lines import problem_lines
from podslice.cli.views.style import ColorMode, Display, is_colored

if TYPE_CHECKING:
    from podslice.cli.report import Document
    from podslice.errors import Problem


class OutputFormat(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def has_lines(self) -> bool:
        """Whether the output is for people."""
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)


class ReportFormat(StrEnum):
    """Values of `-o` of verbs without tables."""

    TEXT = "text"
    JSON = "json"


def emit(
    format_: OutputFormat,
    *,
    document: Callable[[], Document],
    lines: Callable[[Display], Iterable[str]],
    names: Callable[[], Iterable[str]],
) -> None:
    """Print a result in the requested format; `lines` formats it for this display.

    A closed pipe ends only the output: the exit code of the verb remains its own.
    """
    match format_:
        case OutputFormat.JSON | OutputFormat.YAML:
            write_document(document(), format_)
        case OutputFormat.NAME:
            write(names())
        case OutputFormat.TABLE | OutputFormat.WIDE:
            write(lines(display_on(sys.stdout, wide=format_ is OutputFormat.WIDE)))


def write_document(document: Document, format_: OutputFormat) -> None:
    """Print a document as JSON or YAML."""
    if format_ is OutputFormat.JSON:
        write_json(document)
        return
    # the prober, a process for each container, writes no YAML
    import yaml

    with suppress(BrokenPipeError):
        yaml.safe_dump(document, sys.stdout, sort_keys=False, allow_unicode=True)


def write_json(document: Document) -> None:
    """Print a document."""
    write([json.dumps(document, indent=2, ensure_ascii=False)])


_color_mode: ContextVar[ColorMode] = ContextVar("color_mode", default=ColorMode.AUTO)


def choose_colors(mode: ColorMode | None) -> None:
    """Choose when the output of this call is colored; None leaves it as it is."""
    if mode is not None:
        _color_mode.set(mode)


def display_on(stream: TextIO, *, wide: bool = False) -> Display:
    """Return how lines are displayed on a standard stream."""
    is_terminal = stream.isatty()
    return Display(
        wide=wide,
        width=_width_of(stream) if is_terminal and not wide else None,
        is_colored=is_colored(_color_mode.get(), os.environ, is_terminal=is_terminal),
    )


def _width_of(terminal: TextIO) -> int:
    """Return `COLUMNS`, or the width of the terminal; 80 if it is unknown, as on a serial console."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    with suppress(OSError):
        return os.get_terminal_size(terminal.fileno()).columns or 80
    return 80


def display_on_terminal(width: int, *, wide: bool) -> Display:
    """Return how a page is displayed on the whole terminal of standard output."""
    return display_on(sys.stdout)._replace(wide=wide, width=width)


def write(lines: Iterable[str]) -> None:
    """Print lines on standard output, as long as it has a reader."""
    with suppress(BrokenPipeError):
        for line in lines:
            sys.stdout.write(line + "\n")


def note(text: str) -> None:
    """Print a line on standard error."""
    wipe()
    sys.stderr.write(f"{text}\n")


def note_problems(found: Sequence[Problem]) -> None:
    """Print the first problems on standard error, and the number of the others."""
    for line in problem_lines(found):
        note(line)


_BACK, _ERASE = "\r", "\033[K"
_drawn = ""


def redraw(text: str) -> None:
    """Draw a line on the terminal of standard error in place of the previous one."""
    global _drawn  # noqa: PLW0603 - the terminal has one such line
    if text == _drawn:
        return
    _drawn = text
    sys.stderr.write(f"{_BACK}{text}{_ERASE}")
    sys.stderr.flush()


def wipe() -> None:
    """Wipe the line that was drawn last, if any."""
    redraw("")
