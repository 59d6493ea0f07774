"""Notices external changes of units, and programs that change them again and again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable

from podslice.agent.context import AgentContext
from podslice.model.event import Kind
from podslice.model.properties import PROPERTIES
from podslice.model.resources import hugetlb_files
from podslice.model.unit import INFINITY, Caps, DesiredUnit, UnitName, Value
from podslice.plan import StartUnit, Step, StopUnit
from podslice.reconcile.assess import Assessment

CONTESTED_TIMES = 5
"""A unit repaired this often within `CONTESTED_SEC` counts as contested."""
CONTESTED_SEC = 60.0
CONTESTED_PAUSE_SEC = 10.0
"""The pause between two repairs of a contested unit."""


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

    def is_pausing(self, name: UnitName) -> bool:
        """Return whether a unit is contested, and was repaired a moment ago."""
        times, now = self._times.get(name), self._now()
        if times is None or len(times) < CONTESTED_TIMES or now - times[0] >= CONTESTED_SEC:
            return False
        return now - times[-1] < CONTESTED_PAUSE_SEC

    def keep(self, names: Container[UnitName]) -> None:
        """Forget all other units."""
        self._times = {name: times for name, times in self._times.items() if name in names}


class Drift:
    """Remembers the properties of units while they were as desired."""

    def __init__(self, context: AgentContext, now: Callable[[], float] = time.monotonic) -> None:
        """Begin without known units; `now` is a monotonic clock."""
        self._context = context
        self._settled: dict[UnitName, DesiredUnit] = {}
        """The units as they were desired then."""
        self.repairs = RepairTimes(now)
        self._contested: set[UnitName] = set()
        self._reload_count: int | None = None
        """systemd's count of reloads at the last `settle`."""

    def settle(self, assessment: Assessment) -> None:
        """Remember the properties of units, except of those that the plan changes."""
        # a unit that is about to change keeps what it had: its next change is compared with that
        due = {step.name for step in assessment.plan.steps}
        units = {unit.name: unit for unit in assessment.desired.lasting}
        self._settled = {
            name: self._settled[name] if name in due else unit
            for name, unit in units.items()
            # A unit that is due and never was as desired has no values to compare with.
            if (name in self._settled if name in due else name in assessment.observed.units)
        }
        self.repairs.keep(units)
        self._contested &= units.keys()
        self._reload_count = assessment.observed.caps.reload_count

    def forget(self, name: UnitName | None) -> None:
        """Do not take the next change of a unit for drift; None: of every unit."""
        if name is None:
            self._settled.clear()
        else:
            self._settled.pop(name, None)

    def is_settled(self, name: UnitName) -> bool:
        """Return whether a unit was as desired."""
        return name in self._settled

    def is_repair(self, step: Step) -> bool:
        """Return whether a step undoes an external change."""
        unit = self._settled.get(step.name)
        if unit is None or isinstance(step, StopUnit):
            return False
        if isinstance(step, StartUnit):
            return True
        before: dict[str, Value] = {
            name: limit // size * size
            for size, limit in unit.hugepages.items()
            for name in hugetlb_files(size)
        }
        before |= unit.values
        # a step that starts from the remembered values is a new wish, not the repair of a change
        return any(
            change.old != before.get(change.name, _unset(change.name)) for change in step.changes
        )

    def was_reloaded(self, caps: Caps | None) -> bool:
        """Return whether systemd has read its unit files again since `settle`; False if not known."""
        count = None if caps is None else caps.reload_count
        return None not in (count, self._reload_count) and count != self._reload_count

    def are_contested(self, steps: Iterable[Step]) -> bool:
        """Return whether all steps are repairs of units that are contested now."""
        steps = tuple(steps)
        return bool(steps) and all(
            self.is_repair(step) and self.repairs.is_pausing(step.name) for step in steps
        )

    def count_repair(self, name: UnitName) -> None:
        """Count a repair; report once that the unit is contested."""
        self._context.counters.drift_repaired += 1
        elapsed_sec = self.repairs.count(name)
        if elapsed_sec is None:
            self._contested.discard(name)
        elif name not in self._contested:
            self._contested.add(name)
            self._context.events.report(
                Kind.DRIFT_CONTESTED,
                f"{name} was restored {CONTESTED_TIMES} times in {elapsed_sec:.0f} s:"
                f" another program changes it; pausing {CONTESTED_PAUSE_SEC:.0f} s between repairs",
                unit=name,
            )


def _unset(name: str) -> Value | None:
    return PROPERTIES[name].unset if name in PROPERTIES else INFINITY
