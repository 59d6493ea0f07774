"""The last day of a pod: the highest CPU and memory of each quarter of an hour, for plots."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

STEP_SEC = 900
DAY_SEC = 86_400
_PACKED = struct.Struct("<QQQ")


class Point(NamedTuple):
    """The highest use within one step."""

    start_sec: int
    """The start of the step, in seconds since the Unix epoch."""
    cpu_milli: int
    """The highest average of a minute."""
    memory_bytes: int
    """The largest working set of the samples."""


class Day(NamedTuple):
    """The points of the last day, in their order."""

    packed: bytes = b""
    """Named tuples take six times the memory, and an agent has a day for each of hundreds of pods."""

    @classmethod
    def of(cls, points: Iterable[Point]) -> Day:
        """Return the day with these points."""
        return cls(packed=b"".join(_PACKED.pack(*point) for point in points))

    @property
    def points(self) -> list[Point]:
        """Return the points."""
        return [Point(*values) for values in _PACKED.iter_unpack(self.packed)]

    def add(self, at_sec: int, cpu_milli: int, memory_bytes: int) -> Day:
        """Return the day that ends with a sample; points after it, by another clock, are dropped."""
        start = at_sec - at_sec % STEP_SEC
        kept = [point for point in self.points if at_sec - DAY_SEC < point.start_sec <= start]
        if kept and kept[-1].start_sec == start:
            last = kept.pop()
            cpu_milli = max(cpu_milli, last.cpu_milli)
            memory_bytes = max(memory_bytes, last.memory_bytes)
        return Day.of([*kept, Point(start, cpu_milli, memory_bytes)])
