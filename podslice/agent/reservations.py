"""Reports when system daemons exceed their reservations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from podslice.agent.context import AgentContext, AgentPart
from podslice.model.event import Kind
from podslice.model.naming import kube_reserved_slice, system_reserved_slice
from podslice.model.resources import CPU, MEMORY, PIDS, human_amounts, rounded_up
from podslice.model.unit import UnitName, control_group_of
from podslice.policy.allocatable import reserved_for_system

_CPU_WINDOW_SEC = 10.0
"""The shortest time to average the use of CPU over."""
_KEPT_PERCENT = 95
"""Below this share an exceeded reservation counts as kept again."""


class ReservationMonitor(AgentPart):
    """Reports when use exceeds a reservation, and when it is below it again."""

    def __init__(self, context: AgentContext, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a monotonic clock."""
        self._context = context
        self._now = now
        self._exceeded: set[tuple[str, str]] = set()
        """The names of reservations with the resources."""
        self._cpu: dict[UnitName, tuple[float, int]] = {}

    async def follow(self) -> None:
        """Compare the present use with the reservations."""
        config = self._context.world.config
        for label, unit, reserved in (
            (
                "kube-reserved",
                kube_reserved_slice(config.kube_reserved_cgroup),
                config.kube_reserved,
            ),
            (
                "system-reserved",
                system_reserved_slice(config.system_reserved_cgroup),
                reserved_for_system(config),
            ),
        ):
            amounts = rounded_up(reserved)
            for resource, used in self._uses(unit) if reserved else ():
                if resource in amounts:
                    self._compare(label, unit, resource, used, amounts[resource])

    def _compare(self, label: str, unit: UnitName, resource: str, used: int, reserved: int) -> None:
        """Report a change: `system.slice uses 1.2 GiB of memory, more than system-reserved, 1 GiB`."""
        key = (label, resource)
        if used > reserved and key not in self._exceeded:
            self._exceeded.add(key)
            kind, than = Kind.RESERVATION_EXCEEDED, "more than"
        elif used * 100 < reserved * _KEPT_PERCENT and key in self._exceeded:
            self._exceeded.discard(key)
            kind, than = Kind.RESERVATION_KEPT, "again less than"
        else:
            return
        uses, limit = human_amounts(resource, used, reserved)
        self._context.events.report(
            kind,
            f"{unit} uses {uses} of {resource}, {than} {label}, {limit}",
            unit=unit,
            fields={"RESOURCE": resource},
        )

    def _uses(self, unit: UnitName) -> Iterator[tuple[str, int]]:
        """Yield the use of each resource that is known, in thousandths of the unit."""
        sample = self._context.world.cgroups.sample(control_group_of(unit))
        for resource, number in ((MEMORY, sample.working_set_bytes), (PIDS, sample.tasks)):
            if number is not None:
                yield resource, number * 1000
        now, before = self._now(), self._cpu.get(unit)
        is_early = before is not None and now - before[0] < _CPU_WINDOW_SEC
        if sample.cpu_usec is None or is_early:
            return
        self._cpu[unit] = (now, sample.cpu_usec)
        if before is not None:
            # Microseconds per second / 1000 are thousandths of a CPU;
            # of a restarted slice, the counter begins at zero
            rate = int((sample.cpu_usec - before[1]) / (now - before[0]) / 1000)
            yield CPU, max(rate, 0)
