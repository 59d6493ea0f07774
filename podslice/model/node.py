"""The node: the host's resources, and their division between daemons and pods."""

from __future__ import annotations

from dataclasses import dataclass, field

from podslice.model.cpu_topology import CpuTopology
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
