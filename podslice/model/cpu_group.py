"""Control groups as the kernel's scheduler divides CPU time among them."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_WEIGHT = 100
"""Of a unit that states none. Source: systemd.resource-control(5), CPUWeight=."""


class CpuGroup(NamedTuple):
    """A control group, with those below it."""

    name: str
    """Of its unit; different from the names of all other groups of a tree."""
    weight: int = DEFAULT_WEIGHT
    quota_milli: int | None = None
    """Its CPU limit in thousandths of a CPU; None for none."""
    threads: int | None = None
    """The threads that want to run; None for one on each of its CPUs. Only where nothing is below."""
    cpus: frozenset[int] | None = None
    """The numbers of the CPUs that it may use; None for those of its parent."""
    children: tuple[CpuGroup, ...] = ()
