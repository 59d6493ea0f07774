"""Output: documents and lines on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from enum import StrEnum

from podslice.cli.views.documents import Document


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
    lines: Callable[[bool], Iterable[str]],
    names: Callable[[], Iterable[str]],
) -> None:
    """Print a result in the requested format; `lines` is called with True for `wide`."""
    match format_:
        case OutputFormat.JSON:
            sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")
        case OutputFormat.YAML:
            import yaml

            yaml.safe_dump(document(), sys.stdout, sort_keys=False, allow_unicode=True)
        case OutputFormat.NAME:
            write(names())
        case OutputFormat.TABLE | OutputFormat.WIDE:
            write(lines(format_ is OutputFormat.WIDE))


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
