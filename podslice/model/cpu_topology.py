"""The CPUs of a machine: which threads share a core, a cache, a NUMA node and a socket; control groups that share them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from podslice.errors import invalid

Cpus = frozenset[int]
"""Numbers of CPUs, as in `/proc/cpuinfo`."""


@dataclass(frozen=True, kw_only=True)
class Cpu:
    """One CPU, which is one thread of a core. The numbers of each level are unique in the machine."""

    cpu: int
    core: int
    socket: int = 0
    numa: int = 0
    uncore: int = 0
    """The group of CPUs that share a last-level cache."""


@dataclass(frozen=True, kw_only=True)
class CpuTopology:
    """The online CPUs of a machine."""

    cpus: tuple[Cpu, ...]

    @cached_property
    def all(self) -> Cpus:
        """Return the numbers of all CPUs."""
        return frozenset(each.cpu for each in self.cpus)

    @cached_property
    def cores(self) -> dict[int, Cpus]:
        """Return the CPUs of each physical core."""
        return _group((each.core, each.cpu) for each in self.cpus)

    @cached_property
    def sockets(self) -> dict[int, Cpus]:
        """Return the CPUs of each socket."""
        return _group((each.socket, each.cpu) for each in self.cpus)

    @cached_property
    def numa_nodes(self) -> dict[int, Cpus]:
        """Return the CPUs of each NUMA node that has any."""
        return _group((each.numa, each.cpu) for each in self.cpus)

    @cached_property
    def uncore_caches(self) -> dict[int, Cpus]:
        """Return the CPUs that share each last-level cache."""
        return _group((each.uncore, each.cpu) for each in self.cpus)

    @cached_property
    def core_of(self) -> dict[int, int]:
        """Return the core of each CPU."""
        return {each.cpu: each.core for each in self.cpus}

    @cached_property
    def threads_per_core(self) -> int:
        """Return the number of threads of the largest core."""
        return max(map(len, self.cores.values()), default=1)

    @cached_property
    def is_uniform(self) -> bool:
        """Return whether all cores have the same number of threads online."""
        return len(set(map(len, self.cores.values()))) < 2


def _group(pairs: Iterable[tuple[int, int]]) -> dict[int, Cpus]:
    groups: dict[int, set[int]] = {}
    for key, cpu in pairs:
        groups.setdefault(key, set()).add(cpu)
    return {key: frozenset(groups[key]) for key in sorted(groups)}


def regular_topology(*, sockets: int, numa: int, cores: int, threads: int) -> CpuTopology:
    """Return a machine of equal parts, with Linux' usual numbers: first threads of all cores first.

    Args:
        sockets: the sockets of the machine.
        numa: the NUMA nodes of the machine.
        cores: the physical cores of each socket.
        threads: the threads of each core.

    Raises:
        InputError: a number is below 1, or the nodes cannot be divided among the sockets evenly.

    Source: lscpu(1), whose summary has these four numbers.
    """
    if min(sockets, numa, cores, threads) < 1:
        raise invalid(
            "each number of a CPU topology must be at least 1",
            "use 1 for a level that the machine lacks",
        )
    total = sockets * cores
    if total % numa or (numa % sockets and sockets % numa):
        raise invalid(
            f"{numa} NUMA nodes cannot divide {sockets} sockets with {cores} cores each evenly",
            "use a multiple or a divisor of the sockets, or a JSON file with each CPU",
        )
    return CpuTopology(
        cpus=tuple(
            Cpu(
                cpu=thread * total + core,
                core=core,
                socket=core // cores,
                numa=core * numa // total,
                uncore=core // cores,
            )
            for thread in range(threads)
            for core in range(total)
        )
    )


DEFAULT_WEIGHT = 100
"""Of a unit that states none. Source: systemd.resource-control(5), CPUWeight=."""


class CpuGroup(NamedTuple):
    """A control group as the kernel's scheduler divides CPU time, with the groups below it."""

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
