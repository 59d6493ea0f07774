"""Reports when system daemons exceed their reservations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from podslice.agent.context import AgentContext
from podslice.model.event import Kind
from podslice.model.naming import kube_reserved_slice, system_reserved_slice
from podslice.model.resources import CPU, MEMORY, PIDS, Amounts, format_amount, rounded_up
from podslice.model.unit import UnitName, control_group_of
from podslice.policy.allocatable import reserved_for_system

_CPU_WINDOW_SEC = 10.0
"""The shortest time to average the use of CPU over."""
_KEPT_PERCENT = 95
"""Below this share an exceeded reservation counts as kept again."""


class _ReservationUse(NamedTuple):
    """The use of one resource by a slice, and its reservation, in thousandths of the unit."""

    label: str
    unit: UnitName
    resource: str
    used: int
    reserved: int

    @property
    def key(self) -> tuple[str, str]:
        """Return the name of the reservation and its resource."""
        return self.label, self.resource

    def __str__(self) -> str:
        """Describe it: `system.slice uses 1200Mi of memory, more than system-reserved, 1Gi`."""
        used = format_amount(self.resource, self.used)
        reserved = format_amount(self.resource, self.reserved)
        than = "more than" if self.used > self.reserved else "again less than"
        return f"{self.unit} uses {used} of {self.resource}, {than} {self.label}, {reserved}"


class ReservationMonitor:
    """Reports when use exceeds a reservation, and when it is below it again."""

    def __init__(self, context: AgentContext, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a monotonic clock."""
        self._context = context
        self._now = now
        self._exceeded: set[tuple[str, str]] = set()
        self._cpu: dict[UnitName, tuple[float, int]] = {}

    def check(self) -> None:
        """Compare the present use with the reservations."""
        for use in self._uses():
            is_over = use.used > use.reserved
            if is_over and use.key not in self._exceeded:
                self._exceeded.add(use.key)
                self._report(Kind.RESERVATION_EXCEEDED, use)
            elif use.used * 100 < use.reserved * _KEPT_PERCENT and use.key in self._exceeded:
                self._exceeded.discard(use.key)
                self._report(Kind.RESERVATION_KEPT, use)

    def _report(self, kind: Kind, use: _ReservationUse) -> None:
        self._context.events.report(
            kind, str(use), unit=use.unit, fields={"RESOURCE": use.resource}
        )

    def _uses(self) -> Iterator[_ReservationUse]:
        config = self._context.world.config
        kube = kube_reserved_slice(config.kube_reserved_cgroup)
        system = system_reserved_slice(config.system_reserved_cgroup)
        for label, unit, reserved in (
            ("kube-reserved", kube, config.kube_reserved),
            ("system-reserved", system, reserved_for_system(config)),
        ):
            if reserved:
                yield from self._of_unit(label, unit, rounded_up(reserved))

    def _of_unit(self, label: str, unit: UnitName, reserved: Amounts) -> Iterator[_ReservationUse]:
        sample = self._context.world.cgroups.sample(control_group_of(unit))
        counted = {
            MEMORY: sample.working_set_bytes,
            PIDS: sample.tasks,
            CPU: self._cpu_rate(unit, sample.cpu_usec),
        }
        for resource, number in counted.items():
            if number is not None and resource in reserved:
                used = number * 1000 if resource != CPU else number
                yield _ReservationUse(label, unit, resource, used, reserved[resource])

    def _cpu_rate(self, unit: UnitName, usec: int | None) -> int | None:
        """Return the use since the last call in thousandths of a CPU."""
        now, before = self._now(), self._cpu.get(unit)
        if usec is None or (before is not None and now - before[0] < _CPU_WINDOW_SEC):
            return None
        self._cpu[unit] = (now, usec)
        if before is None:
            return None
        return max(int((usec - before[1]) / (now - before[0]) / 1000), 0)
