"""The units of a node as a tree of control groups, with assumptions about their processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from podslice.model.cpu_group import CpuGroup
from podslice.model.cpu_list import parse_cpus
from podslice.model.desired import Desired
from podslice.model.pod import ContainerKind
from podslice.model.properties import ALLOWED_CPUS, CPU_QUOTA, CPU_WEIGHT
from podslice.model.unit import DesiredUnit, UnitKind, UnitName, parent_slice

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
    for unit in _busy_units(desired):
        slices[unit.name] = _group_of(unit, slices.get(unit.name), assumed)
    parents = {unit.name: unit.parent for unit in desired.units}
    below: dict[UnitName, dict[UnitName, None]] = {}
    for name in slices:
        _insert(name, below, parents)
    return tuple(_join(_TOP, slices, below))


def _busy_units(desired: Desired) -> Iterator[DesiredUnit]:
    """Yield the slices, and the scopes of containers that run beside each other."""
    others = {
        container.scope
        for pod in desired.pods
        for container in pod.scopes
        if container.kind in _NOT_BUSY
    }
    for unit in desired.lasting:
        if unit.kind in (UnitKind.SLICE, UnitKind.SCOPE) and unit.name not in others:
            yield unit


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
