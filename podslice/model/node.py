"""The node: the host's resources, and their division between daemons and pods."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from podslice.errors import invalid
from podslice.model.resources import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The host's resources."""

    capacity: Amounts
    """CPUs, memory, ephemeral storage, process ids, huge pages per size."""
    swap_bytes: int = 0
    page_size_bytes: int = 4096
    hugepage_sizes: tuple[int, ...] = ()
    """The sizes of huge pages that the kernel supports, in bytes, in use or not."""
    counts_hugepages: bool = False
    """Whether the kernel counts huge pages as memory of their control group.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, memory_hugetlb_accounting.
    """
    cpus: frozenset[int] | None = None
    """The numbers of its CPUs; None where they are not known."""
    topology: CpuTopology | None = None
    """Their places, read only where pods have CPUs of their own."""
    controllers: frozenset[str] | None = None
    """The controllers that systemd can use; None where they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """How the capacity of a node is divided."""

    capacity: Amounts
    kube_reserved: Amounts = field(default_factory=dict)
    system_reserved: Amounts = field(default_factory=dict)
    eviction: Amounts = field(default_factory=dict)
    """Hard eviction thresholds in absolute amounts."""
    hugepages: Amounts = field(default_factory=dict)
    """Memory that is reserved as huge pages."""
    counts_hugepages: bool = False
    """Whether memory limits include huge pages, as the kernel counts them."""
    allocatable: Amounts = field(default_factory=dict)
    """The maximum sum of the pods' requests."""
    enforced: Amounts = field(default_factory=dict)
    """The limits of `kubepods.slice`: capacity without the reservations, eviction included."""


_RANGE = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")
CPUS_MAX = 2**13
"""The maximum of any kernel. Source: Linux, arch/x86/Kconfig, NR_CPUS_RANGE_END."""


def parse_cpus(text: str) -> set[int]:
    """Parse a list of CPUs, as the kernel and systemd write it: `0-3,8` → {0, 1, 2, 3, 8}.

    Raises:
        ValueError: it is not in that format.

    Source: Linux, Documentation/admin-guide/cputopology.rst; systemd.resource-control(5),
    AllowedCPUs=, which also accepts spaces.
    """
    mask = 0
    for part in text.removesuffix("\n").replace(" ", ",").split(","):
        if part:
            found = _RANGE.fullmatch(part)
            first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
            if not first <= last < CPUS_MAX:
                raise ValueError(f"{part:.64} is not a range of CPUs")
            # The difference has exactly the bits from the first to the last CPU.
            mask |= (1 << last + 1) - (1 << first)
    return {cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1}


def format_cpus(cpus: Iterable[int]) -> str:
    """Return CPUs as the kernel writes them: `0-3,8`. No CPU is an empty string.

    Source: cpuset(7), "List format".
    """
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def numbers_of_octets(octets: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of the bits that are set; the first octet has the lowest.

    Source: systemd, src/shared/cpu-set-util.c, cpu_set_to_dbus.
    """
    for index, octet in enumerate(octets):
        yield from (8 * index + bit for bit in range(8) if octet >> bit & 1)


def octets_of_numbers(numbers: Iterable[int]) -> bytes:
    """Return octets in which these bits are set; the inverse of `numbers_of_octets`."""
    mask = sum(1 << number for number in numbers)
    return mask.to_bytes(-(-mask.bit_length() // 8), "little")


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
