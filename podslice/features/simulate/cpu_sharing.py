"""The control groups of a node, and their CPU time while all of their threads want to run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from podslice.errors import invalid
from podslice.model.desired import Desired
from podslice.model.node import CpuGroup, parse_cpus
from podslice.model.pod import ContainerKind
from podslice.model.properties import ALLOWED_CPUS, CPU_QUOTA, CPU_WEIGHT
from podslice.model.unit import DesiredUnit, UnitKind, UnitName, parent_slice

_UNIONS_MAX = 1_000
"""A host has a few sets of CPUs, which are usually disjoint or nested."""


class _Leaf(NamedTuple):
    """A control group with threads."""

    path: tuple[str, ...]
    """The names of the groups that it is in, and its own."""
    threads: int
    cpus: frozenset[int]


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
    left = dict(_quotas(groups))
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


def _leaves(
    groups: Iterable[CpuGroup], above: tuple[str, ...], cpus: frozenset[int]
) -> Iterator[_Leaf]:
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


def _quotas(groups: Iterable[CpuGroup]) -> Iterator[tuple[str, float]]:
    """Yield the groups with a quota, in CPUs."""
    for group in groups:
        if group.quota_milli is not None:
            yield group.name, group.quota_milli / 1000
        yield from _quotas(group.children)


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
    unions: Collection[frozenset[int]],
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


def _unions(sets: Collection[frozenset[int]]) -> frozenset[frozenset[int]]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """The use of CPUs by pods (`namespace/name`) and slices outside of them; others are busy."""

    idle: frozenset[str] = frozenset()
    threads: Mapping[str, int] = field(default_factory=dict)
    """The threads that want to run in each container of a pod, or in a slice."""
    cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
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
        _insert(name, below, parents)
    return tuple(_join(_TOP, slices, below))


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
    threads = 0 if key in assumed.idle else assumed.threads.get(key, group.threads)
    return group._replace(threads=threads, cpus=assumed.cpus.get(key, group.cpus))


def _insert(
    name: UnitName,
    below: dict[UnitName, dict[UnitName, None]],
    parents: Mapping[UnitName, UnitName],
) -> None:
    """Insert a unit below its parent, and the parent, which exists if nothing states it."""
    if name != _TOP:
        parent = parents.get(name) or parent_slice(name)
        below.setdefault(parent, {})[name] = None
        _insert(parent, below, parents)


def _join(
    parent: UnitName,
    slices: Mapping[UnitName, CpuGroup],
    below: Mapping[UnitName, Iterable[UnitName]],
) -> Iterator[CpuGroup]:
    for name in below.get(parent, ()):
        group = slices.get(name) or CpuGroup(name=name)
        yield group._replace(children=tuple(_join(name, slices, below)))
