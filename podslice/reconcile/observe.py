"""Observe the units that systemd has loaded, and their control groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from podslice.errors import printable
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import process_name
from podslice.model.config import TIER_SIGNALS, ExclusiveFor
from podslice.model.desired import Desired
from podslice.model.naming import HOST_SLICES, TIERS, scope_name, service_name, slice_of_cgroup
from podslice.model.pod import Pod, Qos
from podslice.model.resources import MEMORY
from podslice.model.unit import (
    Caps,
    DesiredUnit,
    Observed,
    ObservedUnit,
    Occupants,
    UnitKind,
    UnitName,
    control_group_of,
    is_unit_name,
    parent_slice,
)
from podslice.reconcile.world import LiveWorld, World, scope_patterns

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
    # systemd keeps a stopped slice loaded while a unit in it is failed, and a service while its pod's
    # service refers to it
    there = {unit.name: unit for unit in units if unit.active_state != "inactive"}
    ended = {unit.name: unit for unit in units if unit.name not in there and unit.main_exit}
    return Observed(caps=caps, units=there, ended=ended)


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
    # The slice of a removed pod depends on its class, which may have changed since it was started.
    slices = {world.tree.pod(pod.uid, qos): pod for pod in terminating for qos in Qos}
    names = {world.tree.tier(qos) for qos in Qos} | slices.keys() if slices else set()
    units = {**observed.units, **dict(_left(world, desired.unwanted.keys() & names, observed))}
    for name in desired.unwanted.keys() & slices.keys() & units.keys():
        units[name] = _with_occupants(world, units[name], slices[name])
    if observed.ended or any(name.endswith(_SERVICE) for name in observed.units):
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
    if service not in observed.units and service not in observed.ended:
        return unit
    group = f"{unit.control_group.rpartition('/')[0]}/{service}"
    return replace(unit, name=service, kind=UnitKind.SERVICE, control_group=group)


_LISTED = 8
_LISTED_NAMES = 4
_NAME_LENGTH = 32
_STOPPED_WITH_SLICE = (f".{UnitKind.SCOPE}", f".{UnitKind.SERVICE}")
_SLICE = f".{UnitKind.SLICE}"


def read_occupants(cgroups: CgroupFs, control_group: str, uid: str) -> Occupants:
    """Return the occupants of a slice; `uid` is that of its pod."""
    by_unit: dict[str, list[int]] = {}
    units = set()
    is_mixed = False
    for group, pids in sorted(cgroups.processes(control_group).items()):
        unit, is_unit = _unit_of(PurePosixPath(group).relative_to(control_group))
        by_unit.setdefault(unit, []).extend(pids)
        is_mixed |= not is_unit
        units |= {UnitName(unit)} if is_unit and is_unit_name(unit) else set()
    return Occupants(
        processes=sum(map(len, by_unit.values())),
        units=tuple(sorted(units)),
        descriptions=tuple(_shorten(_describe(by_unit, uid))),
        is_mixed=is_mixed,
    )


def describe_processes(groups: Mapping[str, tuple[int, ...]]) -> str:
    """Describe processes by name and id: `nginx (4711), sh (4712)`."""
    pids = sorted(pid for pids in groups.values() for pid in pids)
    named = (f"{printable(process_name(pid))} ({pid})" for pid in pids[:_LISTED])
    return ", ".join([*named, *([f"{len(pids) - _LISTED} more"] if len(pids) > _LISTED else [])])


def _unit_of(path: PurePosixPath) -> tuple[str, bool]:
    """Return the unit of a control group below a slice, and whether a stop of the slice ends it."""
    # Slices are not delegated: only systemd creates what is directly in them, so that the first
    # name of another kind is a unit's. Any process of a unit may choose the names below it.
    for part in path.parts:
        if part.endswith(_STOPPED_WITH_SLICE):
            return part, True
        if not part.endswith(_SLICE):
            return f"control group {part}", False
    return path.name or "the slice itself", False


def _describe(by_unit: Mapping[str, list[int]], uid: str) -> Iterator[str]:
    prefix = scope_name(uid, "").removesuffix(".scope")
    for unit, pids in by_unit.items():
        stem = unit.rpartition(".")[0]
        is_ours = unit.startswith(prefix) and unit.endswith(_STOPPED_WITH_SLICE)
        name = f"container {stem.removeprefix(prefix)}" if is_ours else _short_name(unit)
        count = "1 process" if len(pids) == 1 else f"{len(pids)} processes"
        # dict: each name once, in order
        names = dict.fromkeys(process_name(pid) for pid in pids)
        listed = [*islice(names, _LISTED_NAMES), *(["…"] if len(names) > _LISTED_NAMES else [])]
        yield printable(f"{name}: {count} ({', '.join(listed)})")


def _short_name(unit: str) -> str:
    """Shorten `libpod-0a1b…9c.scope`: runtimes use long ids."""
    if len(unit) <= _NAME_LENGTH:
        return unit
    stem, _, suffix = unit.rpartition(".")
    return f"{stem[: _NAME_LENGTH // 2]}….{suffix}" if stem else f"{unit[:_NAME_LENGTH]}…"


def _shorten(descriptions: Iterator[str]) -> Iterator[str]:
    yield from islice(descriptions, _LISTED)
    rest = sum(1 for _ in descriptions)
    if rest:
        yield f"{rest} more"
