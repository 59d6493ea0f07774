"""The progress of a plan on one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_NAMED_MAX = 5
"""Terminating pods that are named where the width is not limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pod that is terminating."""

    pod: str
    """`namespace/name`."""
    elapsed_sec: int
    grace_sec: int


def progress_line(
    done: int, total: int, waiting: Sequence[Waiting], *, width: int | None = None
) -> str:
    """Format the number of completed steps, and as many terminating pods as fit.

    The pods with the least time left come first.
    """
    text = f"{done} of {total} steps done"
    if not waiting:
        return _cut(text, width)
    text += "; terminating: "
    ranked = sorted(waiting, key=lambda each: (each.grace_sec - each.elapsed_sec, each.pod))
    parts = [f"{each.pod} ({each.elapsed_sec} of {each.grace_sec} s)" for each in ranked]
    most = min(len(parts), _NAMED_MAX) if width is None else len(parts)
    for shown in range(most, 0, -1):
        line = text + ", ".join(parts[:shown]) + _rest(len(parts) - shown)
        if width is None or len(line) <= width:
            return line
    return _cut(f"{text}{len(parts)} pod{'' if len(parts) == 1 else 's'}", width)


def _rest(count: int) -> str:
    return f" and {count} more" if count else ""


def _cut(text: str, width: int | None) -> str:
    return text if width is None else text[:width]
