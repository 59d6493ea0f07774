"""Observe the units that systemd has loaded, and their control groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from podslice.model.config import TIER_SIGNALS, ExclusiveFor
from podslice.model.desired import Desired
from podslice.model.naming import HOST_SLICES, TIERS, service_name, slice_of_cgroup
from podslice.model.pod import Pod, Qos
from podslice.model.resources import MEMORY
from podslice.model.unit import (
    Caps,
    DesiredUnit,
    Observed,
    ObservedUnit,
    UnitKind,
    UnitName,
    control_group_of,
    parent_slice,
)
from podslice.reconcile.guard import scope_patterns
from podslice.reconcile.occupants import read_occupants
from podslice.reconcile.world import LiveWorld, World

NO_SYSTEMD = Observed(caps=Caps(systemd_version=999))
"""The observation of a host without a service manager: no units, no missing features."""

_HUGETLB = "hugetlb"
_SERVICE = f".{UnitKind.SERVICE}"
_TOP = UnitName("-.slice")


async def observe(world: World, others: Iterable[UnitName] = ()) -> Observed:
    """Observe the units below the root, the slices of the host that have values, and others."""
    if not isinstance(world, LiveWorld):
        return NO_SYSTEMD
    reserved = (world.config.kube_reserved_cgroup, world.config.system_reserved_cgroup)
    names: list[str] = [slice_of_cgroup(cgroup) for cgroup in reserved if cgroup]
    more = HOST_SLICES if world.config.exclusive_for is ExclusiveFor.HOST else ()
    # the units of a user's manager are not below the top control group
    names += [each for each in dict.fromkeys((*more, *others)) if each not in names]
    names += [_TOP] if world.manager.is_user else []
    names += scope_patterns(world.tree, world.manager)
    units = await world.client.observe((*world.tree.patterns, *names))
    caps = replace(await world.client.caps(), hugetlb=_has_hugetlb(world))
    # systemd keeps a stopped slice loaded while a unit in it is failed
    there = {unit.name: unit for unit in units if unit.active_state != "inactive"}
    return Observed(caps=caps, units=there)


def _has_hugetlb(world: World) -> bool:
    """Return whether the parent of the root enables the controller; podslice does so below only."""
    above = control_group_of(parent_slice(world.tree.root))
    return not world.manager.is_user and _HUGETLB in world.cgroups.controllers_below(above)


def used_bytes(world: World, observed: Observed) -> Mapping[UnitName, int]:
    """Return the unreclaimable memory of the tiers in bytes, where qos-reserved limits memory."""
    if MEMORY not in world.config.qos_reserved:
        return {}
    used = {}
    for qos in TIERS:
        unit = observed.units.get(world.tree.tier(qos))
        number = world.cgroups.unreclaimable_bytes(unit.control_group) if unit else None
        if unit and number is not None:
            used[unit.name] = number
    return used


def control_group(name: UnitName, observed: Observed) -> str:
    """Return the present or future control group of a slice."""
    unit = observed.units.get(name)
    if unit is not None and unit.control_group:
        return unit.control_group
    top = observed.units.get(_TOP)
    above = "" if top is None else top.control_group.rstrip("/")
    return f"{above}{control_group_of(name)}"


def tier_groups(world: World, observed: Observed) -> Mapping[str, str]:
    """Return the control groups of the tiers that have an eviction threshold, by its signal."""
    return {
        TIER_SIGNALS[qos]: control_group(world.tree.tier(qos), observed)
        for qos in world.config.eviction_tier
    }


def meet(
    world: World, desired: Desired, observed: Observed, terminating: Iterable[Pod]
) -> tuple[Desired, Observed]:
    """Match desired and observed units before they are compared.

    A desired container becomes the unit that it runs in. Observed units get their limits of huge
    pages, and the slices of removed pods their occupants.
    """
    slices = {world.tree.pod(pod.uid, qos): pod for pod in terminating for qos in Qos}
    names = {world.tree.tier(qos) for qos in Qos} | slices.keys() if slices else set()
    units = {**observed.units, **dict(_left(world, desired.unwanted.keys() & names, observed))}
    for name in desired.unwanted.keys() & slices.keys() & units.keys():
        units[name] = _with_occupants(world, units[name], slices[name])
    if any(name.endswith(_SERVICE) for name in observed.units):
        as_they_run = tuple(_as_it_runs(unit, observed) for unit in desired.units)
        desired = replace(desired, units=as_they_run)
    for unit in desired.units if observed.caps.hugetlb else ():
        if unit.hugepages and unit.name in units:
            pages = world.cgroups.hugepages(unit.control_group)
            units[unit.name] = replace(units[unit.name], hugepages=pages)
    return desired, replace(observed, units=units)


def _left(
    world: World, names: set[UnitName], observed: Observed
) -> Iterator[tuple[UnitName, ObservedUnit]]:
    """Yield control groups that outlasted their slices, as inactive slices."""
    for name in names - observed.units.keys():
        group = control_group(name, observed)
        if world.cgroups.exists(group):
            held = world.cgroups.processes(group).values()
            yield (
                name,
                ObservedUnit(
                    name=name,
                    active_state="inactive",
                    control_group=group,
                    transient=False,
                    tasks=sum(map(len, held)),
                ),
            )


def _with_occupants(world: World, unit: ObservedUnit, pod: Pod) -> ObservedUnit:
    if not unit.control_group:
        return unit
    occupants = read_occupants(world.cgroups, unit.control_group, pod.uid)
    # systemd counts by a controller, which may miss processes that were moved by hand
    return replace(unit, tasks=max(unit.tasks, occupants.processes), occupants=occupants)


def _as_it_runs(unit: DesiredUnit, observed: Observed) -> DesiredUnit:
    """Return a container's scope, or its service where systemd started the container."""
    if unit.kind is not UnitKind.SCOPE or unit.name in observed.units:
        return unit
    service = service_name(unit.name)
    if service not in observed.units:
        return unit
    group = f"{unit.control_group.rpartition('/')[0]}/{service}"
    return replace(unit, name=service, kind=UnitKind.SERVICE, control_group=group)
