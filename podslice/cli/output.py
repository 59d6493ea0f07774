"""Output: documents and lines on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from enum import StrEnum
from typing import TextIO

from podslice.cli.views.documents import Document
from podslice.cli.views.style import ColorMode, Display, is_colored


class OutputFormat(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def emit(
    format_: OutputFormat,
    *,
    document: Callable[[], Document],
    lines: Callable[[Display], Iterable[str]],
    names: Callable[[], Iterable[str]],
) -> None:
    """Print a result in the requested format; `lines` formats it for this display."""
    match format_:
        case OutputFormat.JSON:
            sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
        case OutputFormat.YAML:
            import yaml

            yaml.safe_dump(document(), sys.stdout, sort_keys=False, allow_unicode=True)
        case OutputFormat.NAME:
            write(names())
        case OutputFormat.TABLE | OutputFormat.WIDE:
            write(lines(display_on(sys.stdout, wide=format_ is OutputFormat.WIDE)))


_color_mode: ContextVar[ColorMode] = ContextVar("color_mode", default=ColorMode.AUTO)


def choose_colors(mode: ColorMode) -> None:
    """Choose when the output of this call is colored."""
    _color_mode.set(mode)


def display_on(stream: TextIO, *, wide: bool = False) -> Display:
    """Return how lines are displayed on a standard stream."""
    is_terminal = stream.isatty()
    return Display(
        wide=wide,
        width=shutil.get_terminal_size().columns if is_terminal and not wide else None,
        is_colored=is_colored(_color_mode.get(), os.environ, is_terminal=is_terminal),
    )


def write(lines: Iterable[str]) -> None:
    """Print lines on standard output."""
    for line in lines:
        sys.stdout.write(line + "\n")


def note(text: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(f"{text}\n")


class Progress:
    """A counter of steps on stderr; shown only on a terminal, and only for long work."""

    def __init__(self, total: int, *, least: int = 30) -> None:
        self._total = total
        self._done = 0
        self._shown = total >= least and sys.stderr.isatty()

    def step(self) -> None:
        """Count one more step."""
        self._done += 1
        if self._shown:
            end = "\r" if self._done < self._total else "\r\033[K"
            sys.stderr.write(f"{self._done}/{self._total}{end}")
            sys.stderr.flush()
