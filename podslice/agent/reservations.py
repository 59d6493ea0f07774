"""Whether the system's own daemons stay within what is reserved for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from podslice.agent.board import Board
from podslice.model.event import Kind
from podslice.model.naming import slice_of_cgroup
from podslice.model.resources import CPU, MEMORY, PIDS, Amounts, format_amount, rounded_up
from podslice.model.unit import UnitName, control_group_of

KUBE_SLICE, SYSTEM_SLICE = UnitName("podruntime.slice"), UnitName("system.slice")
"""Where these daemons are unless the configuration says otherwise."""
_CPU_WINDOW_SEC = 10.0
"""Over less time the use of CPU is but a moment's."""
_KEPT_PERCENT = 95
"""Below this share of it a reservation that was exceeded is kept again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """What a slice uses of one resource, against what is reserved; thousandths of the unit."""

    label: str
    unit: UnitName
    resource: str
    used: int
    reserved: int

    @property
    def key(self) -> tuple[str, str]:
        """What it is about."""
        return self.label, self.resource

    def __str__(self) -> str:
        """`system.slice uses 1200Mi of memory, more than system-reserved, 1Gi`."""
        used = format_amount(self.resource, self.used)
        reserved = format_amount(self.resource, self.reserved)
        than = "more than" if self.used > self.reserved else "again less than"
        return f"{self.unit} uses {used} of {self.resource}, {than} {self.label}, {reserved}"


class Reservations:
    """Tells when use passes a reservation, and when it is back below it."""

    def __init__(self, board: Board, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is a monotonic clock."""
        self._board = board
        self._now = now
        self._exceeded: set[tuple[str, str]] = set()
        self._cpu: dict[UnitName, tuple[float, int]] = {}

    def check(self) -> None:
        """Compare what is used now with what is reserved."""
        for use in self._uses():
            is_over = use.used > use.reserved
            if is_over and use.key not in self._exceeded:
                self._exceeded.add(use.key)
                self._tell(Kind.RESERVATION_EXCEEDED, use)
            elif use.used * 100 < use.reserved * _KEPT_PERCENT and use.key in self._exceeded:
                self._exceeded.discard(use.key)
                self._tell(Kind.RESERVATION_KEPT, use)

    def _tell(self, kind: Kind, use: _Use) -> None:
        self._board.tell(kind, str(use), unit=use.unit, fields={"RESOURCE": use.resource})

    def _uses(self) -> Iterator[_Use]:
        config = self._board.world.config
        for label, cgroup, default, reserved in (
            ("kube-reserved", config.kube_reserved_cgroup, KUBE_SLICE, config.kube_reserved),
            (
                "system-reserved",
                config.system_reserved_cgroup,
                SYSTEM_SLICE,
                config.system_reserved,
            ),
        ):
            unit = slice_of_cgroup(cgroup) if cgroup else default
            if reserved:
                yield from self._of(label, unit, rounded_up(reserved))

    def _of(self, label: str, unit: UnitName, reserved: Amounts) -> Iterator[_Use]:
        sample = self._board.world.cgroups.sample(control_group_of(unit))
        counted = {
            MEMORY: sample.working_set_bytes,
            PIDS: sample.tasks,
            CPU: self._cpu_rate(unit, sample.cpu_usec),
        }
        for resource, number in counted.items():
            if number is not None and resource in reserved:
                used = number * 1000 if resource != CPU else number
                yield _Use(
                    label=label,
                    unit=unit,
                    resource=resource,
                    used=used,
                    reserved=reserved[resource],
                )

    def _cpu_rate(self, unit: UnitName, usec: int | None) -> int | None:
        """Thousandths of a CPU since the last time."""
        now, before = self._now(), self._cpu.get(unit)
        if usec is None or (before is not None and now - before[0] < _CPU_WINDOW_SEC):
            return None
        self._cpu[unit] = (now, usec)
        if before is None:
            return None
        return max(int((usec - before[1]) / (now - before[0]) / 1000), 0)
