"""When units were repaired, to notice another program that changes them again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from podslice.model.unit import UnitName

CONTESTED_TIMES = 5
"""A unit repaired this often within `CONTESTED_SEC` counts as contested."""
CONTESTED_SEC = 60.0


class RepairTimes:
    """The last repairs of each unit."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin without repairs; `now` is a monotonic clock."""
        self._now = now
        self._times: dict[UnitName, deque[float]] = {}

    def count(self, name: UnitName) -> float | None:
        """Count a repair; return the seconds of the last ones if the unit is contested."""
        times = self._times.setdefault(name, deque(maxlen=CONTESTED_TIMES))
        times.append(self._now())
        elapsed_sec = times[-1] - times[0]
        is_contested = len(times) == CONTESTED_TIMES and elapsed_sec < CONTESTED_SEC
        return elapsed_sec if is_contested else None

    def ages(self, name: UnitName) -> list[float]:
        """Return the seconds since the last repairs of a unit, the latest last."""
        now = self._now()
        return [now - each for each in self._times.get(name, ())]

    def keep(self, names: Container[UnitName]) -> None:
        """Forget all other units."""
        self._times = {name: times for name, times in self._times.items() if name in names}
