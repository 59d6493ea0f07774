"""The memory of pods while all of them use as much as they may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podslice.model.desired import ContainerDecision, Desired, PodDecision
from podslice.model.pod import ContainerKind
from podslice.model.properties import MEMORY_MAX, PROTECTIONS
from podslice.model.resources import memory_bytes
from podslice.model.unit import DesiredUnit, UnitName, limit_of
from podslice.policy.eviction import PodUsage, candidates


class PodMemory(NamedTuple):
    """The memory of a pod, in bytes."""

    pod: PodDecision
    limit_bytes: int
    """The most that it can use: the least limit of its slice and of those above."""
    is_limited: bool
    """Whether its own slice has a limit."""
    protected_bytes: int
    """The part of it that is not reclaimed as long as other memory can be."""
    oom_score: int
    """Of the container that the kernel kills first; see `oom_score`."""
    eviction_rank: int | None
    """Its place in the order of eviction, from 1; None if it is never evicted at this use."""

    @property
    def reclaimable_bytes(self) -> int:
        """Return the part that is reclaimed first."""
        return self.limit_bytes - self.protected_bytes


class MemorySharing(NamedTuple):
    """The memory of all pods, in the order in which the kernel kills them."""

    available_bytes: int
    """The limit of all pods together."""
    pods: tuple[PodMemory, ...]

    @property
    def limit_bytes(self) -> int:
        """Return the sum of what the pods can use."""
        return sum(pod.limit_bytes for pod in self.pods)

    @property
    def overcommitted_bytes(self) -> int:
        """Return by how much that sum exceeds the limit of all pods."""
        return max(self.limit_bytes - self.available_bytes, 0)


def share_memory(desired: Desired, swap_bytes: int) -> MemorySharing:
    """Return what is protected, reclaimed and killed if each pod uses as much as it may.

    Args:
        desired: its units have the limits and protections.
        swap_bytes: the swap of the node.
    """
    units = {unit.name: unit for unit in desired.units}
    capacity_bytes = memory_bytes(desired.allocation.capacity) or 0
    limits = {pod.pod.key: _limit(pod.slice, units, capacity_bytes) for pod in desired.pods}
    usage = {key: PodUsage(memory=1000 * limit) for key, limit in limits.items()}
    evicted = candidates("memory.available", desired.pods, usage)
    ranks = {each.decision.pod.key: place for place, each in enumerate(evicted, start=1)}
    # the effective protection is the larger one of the two kinds
    kinds = [_protections_of(name, desired.units) for name in PROTECTIONS]
    total_bytes = capacity_bytes + swap_bytes
    pods = [
        PodMemory(
            pod=pod,
            limit_bytes=limits[pod.pod.key],
            is_limited=limit_of(pod.properties, MEMORY_MAX) is not None,
            protected_bytes=max(kind[pod.slice] for kind in kinds),
            oom_score=max(
                (
                    oom_score(each, limits[pod.pod.key], total_bytes)
                    for each in pod.containers
                    if each.kind is not ContainerKind.INIT
                ),
                default=0,
            ),
            eviction_rank=ranks.get(pod.pod.key),
        )
        for pod in desired.pods
    ]
    return MemorySharing(
        available_bytes=_limit(desired.root, units, capacity_bytes),
        pods=tuple(sorted(pods, key=lambda each: (-each.oom_score, each.pod.pod.key))),
    )


def _limit(name: UnitName, units: Mapping[UnitName, DesiredUnit], capacity_bytes: int) -> int:
    """Return the least limit of a slice and of those above it, at most the capacity."""
    if name not in units:
        return capacity_bytes
    own = limit_of(units[name].properties, MEMORY_MAX)
    above = _limit(units[name].parent, units, capacity_bytes)
    return above if own is None else min(own, above)


def _protections_of(name: str, units: Sequence[DesiredUnit]) -> dict[UnitName, int]:
    """Return the effective protection by one property; parents are before children."""
    stated = {unit.name: limit_of(unit.properties, name) or 0 for unit in units}
    sums: dict[UnitName, int] = {}
    for unit in units:
        sums[unit.parent] = sums.get(unit.parent, 0) + stated[unit.name]
    found: dict[UnitName, int] = {}
    for unit in units:
        above = found.get(unit.parent, sums[unit.parent])
        found[unit.name] = effective_protection(stated[unit.name], sums[unit.parent], above)
    return found


def effective_protection(stated_bytes: int, siblings_bytes: int, parent_bytes: int) -> int:
    """Return the protection of a control group that uses at least as much, in bytes.

    Where the children of a group state more than its own effective protection, each has its part of
    that.

    Args:
        stated_bytes: memory.min or memory.low of the group.
        siblings_bytes: the sum of what it and its siblings state.
        parent_bytes: the effective protection of the parent.

    Source: Linux, mm/page_counter.c, effective_protection.
    """
    if siblings_bytes <= parent_bytes:
        return stated_bytes
    return stated_bytes * parent_bytes // siblings_bytes


def oom_score(container: ContainerDecision, pod_limit_bytes: int, total_bytes: int) -> int:
    """Return how likely the kernel kills a container that uses as much as it may, from 0.

    The score is the use in thousandths of the node's memory and swap, plus oom_score_adj. The kernel
    kills the process with the highest one.

    Source: Linux, mm/oom_kill.c, oom_badness and constrained_alloc (totalram_pages() +
    total_swap_pages).
    """
    own = limit_of(container.properties, MEMORY_MAX)
    used_bytes = pod_limit_bytes if own is None else min(own, pod_limit_bytes)
    return max(1000 * used_bytes // max(total_bytes, 1) + container.oom_score_adj, 0)
