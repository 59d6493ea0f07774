"""What others have changed since all was as it should be, and who can't stop doing so."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from podslice.agent.board import Board
from podslice.model.event import Kind
from podslice.model.properties import PROPERTIES
from podslice.model.resources import hugetlb_files
from podslice.model.unit import INFINITY, DesiredUnit, UnitName, Value
from podslice.plan import StartUnit, Step, StopUnit
from podslice.reconcile.assessment import Assessment

CONTESTED_TIMES = 5
"""So often within `CONTESTED_SEC` a unit is repaired before somebody else is suspected."""
CONTESTED_SEC = 60.0
CONTESTED_PAUSE_SEC = 10.0
"""How long the agent then lets the unit be between two repairs."""


class Drift:
    """Knows what units had when nothing was to be done about them."""

    def __init__(self, board: Board, now: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known yet; `now` is a monotonic clock."""
        self._board = board
        self._now = now
        self._settled: dict[UnitName, Mapping[str, Value]] = {}
        self._repairs: dict[UnitName, deque[float]] = {}
        self._contested: set[UnitName] = set()

    def settle(self, state: Assessment) -> None:
        """Remember what units have of which the plan has no step; of the others, what they had."""
        due = {step.name for step in state.plan.steps}
        units = {unit.name: unit for unit in state.desired.lasting}
        self._settled = {
            name: self._settled[name] if name in due else _values(unit)
            for name, unit in units.items()
            if (name in self._settled if name in due else name in state.observed.units)
        }
        self._repairs = {name: times for name, times in self._repairs.items() if name in units}
        self._contested &= units.keys()

    def forget(self, name: UnitName | None) -> None:
        """What becomes of a unit now, with None of any, is nobody else's doing."""
        if name is None:
            self._settled.clear()
        else:
            self._settled.pop(name, None)

    def is_settled(self, name: UnitName) -> bool:
        """Whether a unit was as it should be."""
        return name in self._settled

    def is_repair(self, step: Step) -> bool:
        """Whether a step undoes what somebody else has done since all was as it should be."""
        before = self._settled.get(step.name)
        if before is None or isinstance(step, StopUnit):
            return False
        return isinstance(step, StartUnit) or any(
            change.old != before.get(change.name, _unset(change.name)) for change in step.changes
        )

    def is_contested(self, steps: Iterable[Step]) -> bool:
        """Whether all that these would do is to repair once more what somebody undoes each time."""
        steps = tuple(steps)
        return bool(steps) and all(
            self.is_repair(step) and self.is_worn_out(step.name) for step in steps
        )

    def is_worn_out(self, name: UnitName) -> bool:
        """Whether a unit is to be left alone for a while."""
        now, times = self._now(), self._repairs.get(name, ())
        recent = [each for each in times if now - each < CONTESTED_SEC]
        return len(recent) >= CONTESTED_TIMES and now - recent[-1] < CONTESTED_PAUSE_SEC

    def note_repair(self, name: UnitName) -> None:
        """Count it, and say once when somebody undoes one repair after the other."""
        self._board.counters.drift()
        times = self._repairs.setdefault(name, deque(maxlen=CONTESTED_TIMES))
        times.append(self._now())
        if len(times) < CONTESTED_TIMES or times[-1] - times[0] >= CONTESTED_SEC:
            self._contested.discard(name)
        elif name not in self._contested:
            self._contested.add(name)
            self._board.tell(
                Kind.DRIFT_CONTESTED,
                f"{name} was repaired {CONTESTED_TIMES} times in {times[-1] - times[0]:.0f} s:"
                f" somebody else sets it, too; it is left for {CONTESTED_PAUSE_SEC:.0f} s at a time",
                unit=name,
            )


def _values(unit: DesiredUnit) -> Mapping[str, Value]:
    """Everything that a unit is to have, properties and files of the kernel."""
    pages = {
        name: limit // size * size
        for size, limit in unit.hugepages.items()
        for name in hugetlb_files(size)
    }
    return {**unit.values, **pages}


def _unset(name: str) -> Value | None:
    return PROPERTIES[name].unset if name in PROPERTIES else INFINITY
