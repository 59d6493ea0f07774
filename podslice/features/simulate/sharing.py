"""What pods use while all of them are busy: the CPU time of control groups, and memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from podslice.errors import invalid
from podslice.model.desired import ContainerDecision, Desired, PodDecision
from podslice.model.node import Cpus, parse_cpus
from podslice.model.pod import ContainerKind
from podslice.model.properties import ALLOWED_CPUS, CPU_QUOTA, CPU_WEIGHT, MEMORY_MAX, PROTECTIONS
from podslice.model.resources import CPU, memory_bytes
from podslice.model.unit import DesiredUnit, UnitKind, UnitName, limit_of, parent_slice
from podslice.policy.convert import DEFAULT_WEIGHT
from podslice.policy.eviction import PodUsage, candidates

_UNIONS_MAX = 1_000
"""A host has a few sets of CPUs, which are usually disjoint or nested."""


class CpuGroup(NamedTuple):
    """A control group as the kernel's scheduler divides CPU time, with the groups below it."""

    name: str
    """Of its unit; different from the names of all other groups of a tree."""
    weight: int = DEFAULT_WEIGHT
    quota_milli: int | None = None
    """Its CPU limit in thousandths of a CPU; None for none."""
    threads: int | None = None
    """The threads that want to run; None for one on each of its CPUs. Only where nothing is below."""
    cpus: Cpus | None = None
    """The numbers of the CPUs that it may use; None for those of its parent."""
    children: tuple[CpuGroup, ...] = ()


class _Leaf(NamedTuple):
    """A control group with threads."""

    path: tuple[str, ...]
    """The names of the groups that it is in, and its own."""
    threads: int
    cpus: Cpus


def share_cpu(groups: Sequence[CpuGroup], cpu_count: int) -> dict[str, float]:
    """Return the CPU time of each group and of those below it, in CPUs, by name.

    The result is that of one period of the quotas, as if all periods began together: until a group
    has used up its quota, it shares the CPUs with the others, and then the others share them
    without it. The siblings that share its CPUs then have its weight, too. Of its weight on CPUs where
    none of them runs, or only its own threads because of their weight, they have more the earlier in
    the period the group is throttled.

    Raises:
        InputError: the allowed CPUs overlap in too many ways.

    Source: Linux, Documentation/scheduler/sched-bwc.rst, "Management" ("quota" is refilled in each
    period) and "Hierarchical considerations" (a group is throttled by its own quota or by that of a
    parent).
    """
    leaves = tuple(_leaves(groups, (), frozenset(range(cpu_count))))
    unions = _unions({leaf.cpus for leaf in leaves})
    quotas = {group.name: group.quota_milli for group in _all(groups)}
    left = {name: milli / 1000 for name, milli in quotas.items() if milli is not None}
    used = dict.fromkeys(chain.from_iterable(leaf.path for leaf in leaves), 0.0)
    running = {leaf.path[-1]: leaf for leaf in leaves if leaf.threads}
    active = set(chain.from_iterable(leaf.path for leaf in running.values()))
    weights = dict(_effective_weights(groups, active, 1.0))
    remaining = 1.0
    while remaining > 0:
        found = _fill(running, weights, unions)
        rates = _rates(running, found)
        ends = {name: left[name] / rates[name] for name in left if rates.get(name)}
        first = min(ends, key=ends.__getitem__, default="")
        duration = min(ends.get(first, remaining), remaining)
        remaining -= duration
        for name, rate in rates.items():
            used[name] += rate * duration
            if name in left:
                left[name] -= rate * duration
        throttled = {name: leaf for name, leaf in running.items() if first in leaf.path}
        running = {name: leaf for name, leaf in running.items() if name not in throttled}
        for name, leaf in throttled.items():
            is_alone = found[name] >= leaf.threads
            _inherit(leaf, weights[name], 1 - remaining, running, weights, is_alone=is_alone)
    return used


def _leaves(groups: Iterable[CpuGroup], above: tuple[str, ...], cpus: Cpus) -> Iterator[_Leaf]:
    """Yield the groups without children.

    A group whose allowed CPUs are none of its parent's has those of the parent.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus and cpuset.cpus.effective.
    """
    for group in groups:
        allowed = cpus if group.cpus is None else (group.cpus & cpus or cpus)
        path = (*above, group.name)
        if group.children:
            yield from _leaves(group.children, path, allowed)
        else:
            threads = len(allowed) if group.threads is None else group.threads
            yield _Leaf(path=path, threads=threads, cpus=allowed)


def _all(groups: Iterable[CpuGroup]) -> Iterator[CpuGroup]:
    for group in groups:
        yield group
        yield from _all(group.children)


def _rates(running: Mapping[str, _Leaf], found: Mapping[str, float]) -> dict[str, float]:
    """Return the CPUs that each group uses, from those of the leaves."""
    rates: dict[str, float] = {}
    for name, rate in found.items():
        for each in running[name].path:
            rates[each] = rates.get(each, 0.0) + rate
    return rates


def _inherit(
    throttled: _Leaf,
    weight: float,
    lasted: float,
    running: Mapping[str, _Leaf],
    weights: dict[str, float],
    *,
    is_alone: bool,
) -> None:
    """Add the weight of a throttled leaf to those of leaves that share its CPUs and a parent.

    The kernel divides the weight of a group among the CPUs by averages of the load, with a
    half-life of 32 ms, so that each CPU keeps its part while some of the group is throttled. What
    runs there on behalf of the group has this part. Elsewhere the average of the throttled leaf
    counts, which is smaller the earlier in the period it is throttled.

    Args:
        throttled: the leaf.
        weight: its weight.
        lasted: the part of the period in which it ran.
        running: the leaves that are not throttled.
        weights: their weights, to which this one is added.
        is_alone: whether each of its threads had a CPU to itself, because of its weight.

    Source: Linux, kernel/sched/fair.c, calc_group_shares; Documentation/scheduler/schedutil.rst,
    "PELT (Per Entity Load Tracking)".
    """
    covered, heirs = 0.0, dict[str, _Leaf]()
    for depth in range(len(throttled.path) - 1, 0, -1):
        parent = throttled.path[:depth]
        near = {
            name: leaf
            for name, leaf in running.items()
            if leaf.path[:depth] == parent and leaf.cpus & throttled.cpus
        }
        new = [name for name in near if name not in heirs]
        if not new:
            continue
        cpus = throttled.cpus.intersection(chain.from_iterable(each.cpus for each in near.values()))
        threads = 0 if is_alone else sum(leaf.threads for leaf in near.values())
        elsewhere = 1 - min(threads, len(cpus)) / len(throttled.cpus)
        present = sum(weights[name] for name in near)
        part = 1 - elsewhere * lasted * (present + weight) / (present + lasted * weight)
        total = sum(weights[name] for name in new)
        for name in new:
            weights[name] += weight * (part - covered) * weights[name] / total
        covered, heirs = part, near


def _effective_weights(
    groups: Iterable[CpuGroup], active: Collection[str], share: float
) -> Iterator[tuple[str, float]]:
    """Yield the part of the whole weight that each active leaf has; their sum is `share`.

    The kernel divides the weight of a group among the CPUs in proportion to the weights of what
    runs on each of them. So a leaf has the part of its parent's weight that its own weight is of
    those of its active siblings, whichever CPUs they run on.

    Source: Linux, kernel/sched/fair.c, calc_group_shares.
    """
    present = [group for group in groups if group.name in active]
    total = sum(group.weight for group in present)
    for group in present:
        own = share * group.weight / total
        if group.children:
            yield from _effective_weights(group.children, active, own)
        else:
            yield group.name, own


def _fill(
    running: Mapping[str, _Leaf],
    weights: Mapping[str, float],
    unions: Collection[Cpus],
) -> dict[str, float]:
    """Return the CPUs that each leaf uses: in proportion to the weights, up to its threads.

    The kernel distributes threads such that each CPU has the same sum of weights. A thread whose
    weight is more than that has a CPU to itself, and the others share the rest.

    Source: Linux, Documentation/scheduler/sched-domains.rst; max-min fairness: Bertsekas and
    Gallager, Data Networks, 6.5.2.
    """
    found: dict[str, float] = {}
    free = dict(running)
    members = {union: [n for n, leaf in running.items() if leaf.cpus <= union] for union in unions}
    while free:
        levels = {}
        for union, names in members.items():
            if wanting := sum(weights[name] for name in names if name in free):
                taken = sum(found.get(name, 0.0) for name in names)
                levels[union] = max(len(union) - taken, 0.0) / wanting  # 0: rounding
        tightest = min(levels, key=levels.__getitem__)
        level = levels[tightest]
        full = [name for name, leaf in free.items() if leaf.threads <= weights[name] * level]
        for name in full or members[tightest]:
            if leaf := free.pop(name, None):
                found[name] = min(weights[name] * level, leaf.threads)
    return found


def _unions(sets: Collection[Cpus]) -> frozenset[Cpus]:
    """Return the sets, and the unions of those that overlap.

    Raises:
        InputError: there are too many.
    """
    found = set(sets)
    pending = sorted(found, key=sorted)
    while pending:
        one = pending.pop()
        new = {one | other for other in found if one & other} - found
        found |= new
        pending += new
        if len(found) > _UNIONS_MAX:
            raise invalid(
                "the sets of allowed CPUs overlap in too many ways",
                "use sets that are disjoint, or contain each other",
            )
    return frozenset(found)


_TOP = UnitName("-.slice")
_NOT_BUSY = (ContainerKind.INIT, ContainerKind.OVERHEAD)
"""Containers that do not run beside the others, or wait for them."""


class Assumptions(NamedTuple):
    """What is assumed of pods (`namespace/name`) and slices outside of them; others are busy."""

    threads: Mapping[str, int] = {}
    """The threads that want to run in each container of a pod, or in a slice; 0 if it is idle."""
    cpus: Mapping[str, Cpus] = {}
    """The numbers of the CPUs that it may use."""


def cpu_tree(
    desired: Desired, host: Iterable[CpuGroup], assumed: Assumptions
) -> tuple[CpuGroup, ...]:
    """Return the control groups of the node, those of the host first.

    Args:
        desired: its units have the weights and quotas.
        host: slices outside of the pods; a reserved slice of the same name keeps their quota and CPUs.
        assumed: the threads of pods and slices.
    """
    slices = {UnitName(group.name): _assume(group, group.name, assumed) for group in host}
    idle = {
        container.scope
        for pod in desired.pods
        for container in pod.scopes
        if container.kind in _NOT_BUSY
    }
    for unit in desired.lasting:
        if unit.kind in (UnitKind.SLICE, UnitKind.SCOPE) and unit.name not in idle:
            slices[unit.name] = _group_of(unit, slices.get(unit.name), assumed)
    parents = {unit.name: unit.parent for unit in desired.units}
    below: dict[UnitName, dict[UnitName, None]] = {}
    for name in slices:
        inner = name
        while inner != _TOP:  # a parent exists, even if nothing states it
            parent = parents.get(inner) or parent_slice(inner)
            below.setdefault(parent, {})[inner] = None
            inner = parent

    def join(parent: UnitName) -> Iterator[CpuGroup]:
        for name in below.get(parent, ()):
            group = slices.get(name) or CpuGroup(name=name)
            yield group._replace(children=tuple(join(name)))

    return tuple(join(_TOP))


def _group_of(unit: DesiredUnit, present: CpuGroup | None, assumed: Assumptions) -> CpuGroup:
    """Return a unit with the weight, the quota and the CPUs that it should have."""
    values = unit.values
    group = present or CpuGroup(name=unit.name)
    if CPU_WEIGHT in values:
        group = group._replace(weight=int(values[CPU_WEIGHT]))
    if CPU_QUOTA in values:
        group = group._replace(quota_milli=int(values[CPU_QUOTA]) // 1000)
    if ALLOWED_CPUS in values:
        group = group._replace(cpus=frozenset(parse_cpus(str(values[ALLOWED_CPUS]))))
    if unit.owned and unit.pod is None:
        return group._replace(threads=0)  # without pods nothing runs in it
    return _assume(group, unit.pod or unit.name, assumed)


def _assume(group: CpuGroup, key: str, assumed: Assumptions) -> CpuGroup:
    """Return a group with what is assumed about its pod or slice."""
    threads, cpus = assumed.threads.get(key, group.threads), assumed.cpus.get(key, group.cpus)
    return group._replace(threads=threads, cpus=cpus)


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


class SimulatedUnit(NamedTuple):
    """A unit with its use of CPUs."""

    group: CpuGroup
    label: str
    """The pod or the container, else the name of the unit."""
    depth: int
    parent: str
    cpu_milli: int
    pod: PodDecision | None
    """The pod whose slice it is."""
    is_container: bool

    @property
    def requested_milli(self) -> int | None:
        """Return the request of the pod."""
        return self.pod.requests.get(CPU) if self.pod else None

    @property
    def cpus(self) -> str:
        """Return the CPUs that it uses, for people."""
        return f"{self.cpu_milli / 1000:.2f}"


class Simulation(NamedTuple):
    """The use of CPUs by all units, parents before children, and the memory of pods."""

    cpu_count: int
    units: tuple[SimulatedUnit, ...]
    memory: MemorySharing

    @property
    def slices(self) -> tuple[SimulatedUnit, ...]:
        """Return the units that are not containers."""
        return tuple(unit for unit in self.units if not unit.is_container)


def simulate_units(
    desired: Desired,
    host: Iterable[CpuGroup],
    assumed: Assumptions,
    *,
    cpu_count: int,
    swap_bytes: int,
) -> Simulation:
    """Return the CPUs that units use, beside these slices of the host, and the pods' memory."""
    tree = cpu_tree(desired, host, assumed)
    used = share_cpu(tree, cpu_count)
    pods = {str(pod.slice): pod for pod in desired.pods}
    containers = {str(each.scope): each.name for pod in desired.pods for each in pod.scopes}

    def walk(groups: Iterable[CpuGroup], parent: str, depth: int) -> Iterator[SimulatedUnit]:
        for group in groups:
            pod = pods.get(group.name)
            yield SimulatedUnit(
                group=group,
                label=pod.pod.key if pod else containers.get(group.name, group.name),
                depth=depth,
                parent=parent,
                cpu_milli=round(1000 * used.get(group.name, 0.0)),
                pod=pod,
                is_container=group.name in containers,
            )
            yield from walk(group.children, group.name, depth + 1)

    return Simulation(cpu_count, tuple(walk(tree, "", 0)), share_memory(desired, swap_bytes))
