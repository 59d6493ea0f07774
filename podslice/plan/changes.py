"""The changes of one unit, and those that are not possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeGuard

from podslice.model.node import parse_cpus
from podslice.model.properties import (
    ALLOWED_CPUS,
    MEMORY_MAX,
    PARTITION,
    PARTITION_ISOLATED,
    PARTITION_ROOT,
    PROPERTIES,
    Tighter,
    managed_of,
)
from podslice.model.quantity import about_bytes, format_bytes, tmpfs_size_bytes
from podslice.model.resources import hugetlb_files
from podslice.model.unit import (
    Caps,
    DesiredUnit,
    ObservedUnit,
    PropertyValue,
    UnitKind,
    UnitName,
    Value,
)
from podslice.plan import Change, SetHugepages, SetProperties, Skipped, StartUnit

_UP = ("active", "activating", "reloading")

_LARGEST_PAGE_BYTES = 2**16
"""The kernel rounds sizes of file systems up to its pages, of up to 64 KiB."""


def is_up(unit: ObservedUnit | None) -> TypeGuard[ObservedUnit]:
    """Return whether a unit is active, or about to be."""
    return unit is not None and unit.active_state in _UP


def step_for(
    unit: DesiredUnit,
    properties: Mapping[str, PropertyValue],
    observed: ObservedUnit | None,
    *,
    reclaims: bool,
) -> StartUnit | SetProperties | None:
    """Return the step that brings a slice or a container to the desired state.

    With `reclaims`, memory is reclaimed before a limit below the current usage is set.
    """
    # a slice that is only implied by a child was not started
    is_started = is_up(observed) and (observed.transient or bool(observed.fragment_path))
    if unit.kind is UnitKind.SLICE and unit.owned and not is_started:
        changes = tuple(_change(property_, None) for property_ in properties.values())
        return StartUnit(unit=unit, changes=changes)
    if not is_up(observed):
        return None
    differing = tuple(_changes(unit, properties, observed))
    if not differing:
        return None
    target = _reclaim(differing, observed) if reclaims and unit.owned else None
    return SetProperties(
        unit=unit,
        changes=differing,
        tightens=any(map(_tightens, differing)) and not any(map(_isolates, differing)),
        reclaim_bytes=target,
        used_bytes=None if target is None else observed.memory_bytes,
    )


def _changes(
    unit: DesiredUnit, properties: Mapping[str, PropertyValue], observed: ObservedUnit
) -> Iterator[Change]:
    """Yield stated values that differ and, on podslice's units, values that are not stated."""
    for name in (
        (*managed_of(unit), *_of_partition(unit, observed)) if unit.owned else sorted(properties)
    ):
        if name not in observed.properties:
            continue
        old, new = observed.properties[name], properties.get(name)
        if new is None:
            unset = PROPERTIES[name].unset
            if unset not in (None, old):
                yield Change(name=name, old=old, new=unset, why="not requested by any manifest")
        elif old != new.value:
            yield _change(new, old)


def _of_partition(unit: DesiredUnit, observed: ObservedUnit) -> tuple[str, ...]:
    """Return the properties of a partition on the slice of all pods, where it is one no longer."""
    is_root = observed.properties.get(PARTITION) == PARTITION_ROOT
    return (PARTITION, ALLOWED_CPUS) if is_root and PARTITION not in unit.values else ()


def _change(new: PropertyValue, old: Value | None) -> Change:
    return Change(name=new.name, old=old, new=new.value, why=new.why, is_return=new.is_return)


def _isolates(change: Change) -> bool:
    """Return whether CPUs are isolated: the partition that they are a part of must exist by then."""
    return change.name == PARTITION and change.new == PARTITION_ISOLATED


def _tightens(change: Change) -> bool:
    """Return whether a limit becomes lower, or CPUs are lost; no limit is above every other.

    A partition for others must exist before these, and must outlast them: otherwise processes in
    them may run on other CPUs (systemd 262, Linux 7.2).
    """
    if change.name == PARTITION:
        return change.new == PARTITION_ROOT or change.old == PARTITION_ISOLATED
    tighter = PROPERTIES[change.name].tighter
    if tighter is Tighter.FEWER and change.new:
        # without a list all CPUs are allowed
        return not (change.old and parse_cpus(str(change.old)) <= parse_cpus(str(change.new)))
    if tighter is not Tighter.LOWER or not isinstance(change.old, int):
        return False
    return int(change.new) < change.old


def _reclaim(changes: Iterable[Change], observed: ObservedUnit) -> int | None:
    """Return a new memory limit below the current usage, which could cause OOM kills."""
    used = observed.memory_bytes or 0
    limits = (int(change.new) for change in changes if change.name == MEMORY_MAX)
    return next((limit for limit in limits if limit < used), None)


def feasible(
    name: UnitName, properties: Iterable[PropertyValue], caps: Caps
) -> tuple[dict[str, PropertyValue], list[Skipped]]:
    """Split properties into those that the service manager supports, and the others."""
    takes: dict[str, PropertyValue] = {}
    skipped: list[Skipped] = []
    for property_ in properties:
        row = PROPERTIES[property_.name]
        if row.since > caps.systemd_version:
            why = f"systemd {caps.systemd_version} does not support it; it requires {row.since}"
        elif not row.takes(property_.value):
            why = f"systemd takes {row.minimum} to {row.maximum}, not {property_.value}"
        else:
            takes[property_.name] = property_
            continue
        skipped.append(Skipped(unit=name, name=property_.name, why=why))
    return takes, skipped


def not_active(unit: DesiredUnit) -> Skipped:
    """Report a reservation on a slice that is not active, which podslice does not start.

    Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go, enforceExistingCgroup.
    """
    why = f"the slice is not active; start it: systemctl start {unit.name}"
    return Skipped(unit=unit.name, name="start", why=why, blocks=True)


def spare(
    unit: DesiredUnit, properties: dict[str, PropertyValue], observed: ObservedUnit
) -> list[Skipped]:
    """Remove a memory limit below the current usage from the properties of a reserved slice.

    Source: Node Allocatable Resources, "General guidelines" ("can lead to critical services being …
    OOM killed").
    """
    limit, used = properties.get(MEMORY_MAX), observed.memory_bytes
    if unit.owned or limit is None or used is None or used <= int(limit.value):
        return []
    if observed.properties.get(MEMORY_MAX) == limit.value:
        return []
    del properties[MEMORY_MAX]
    why = (
        f"{about_bytes(used)} are in use, more than {format_bytes(int(limit.value))}; the kernel may"
        " OOM-kill processes; raise the reservation, or use --force"
    )
    return [Skipped(unit=unit.name, name=MEMORY_MAX, why=why, blocks=True)]


def volume_step(
    unit: DesiredUnit, observed: ObservedUnit | None
) -> tuple[StartUnit | None, list[Skipped]]:
    """Return the step that mounts a volume; a mounted one keeps its size."""
    if not is_up(observed):
        return StartUnit(unit=unit, changes=()), []
    wanted = _size_bytes(unit.structure.get("Options"))
    has = _size_bytes(observed.properties.get("Options"))
    if wanted is None or has is None or 0 <= has - wanted < _LARGEST_PAGE_BYTES:
        return None, []
    why = (
        f"it is mounted with {format_bytes(has)}, not {format_bytes(wanted)}; delete the pod"
        " first to change the size"
    )
    return None, [Skipped(unit=unit.name, name="the new size", why=why)]


def _size_bytes(options: Value | None) -> int | None:
    """Return the size of a tmpfs from its options; None if they state none in bytes."""
    return tmpfs_size_bytes(options) if isinstance(options, str) else None


def hugepages_step(
    unit: DesiredUnit, observed: ObservedUnit | None, caps: Caps, *, starts: bool
) -> tuple[SetHugepages | None, list[Skipped]]:
    """Return the step that limits the huge pages of a unit that is active, or `starts`.

    Source: opencontainers/cgroups, fs2/hugetlb.go, setHugeTlb, which writes both files of a size,
    and leaves out those of reserved pages where the kernel has none.
    """
    if not unit.hugepages or not (starts or is_up(observed)):
        return None, []
    if not caps.hugetlb:
        # reported once, for the pod's slice
        asks = unit.kind is UnitKind.SLICE and any(unit.hugepages.values())
        return None, [_no_hugetlb(unit, caps)] if asks else []
    there = {} if observed is None or observed.hugepages is None else observed.hugepages
    if not (starts or any(unit.hugepages.values())):
        # container runtimes enable the controller in running pods: not a difference
        return None, []
    changes, skipped = [], []
    for size, limit in sorted(unit.hugepages.items()):
        names = hugetlb_files(size)
        if there and names[0] not in there:
            why = f"the kernel has no huge pages of {format_bytes(size)}"
            skipped.append(Skipped(unit=unit.name, name=names[0], why=why))
            continue
        why = f"huge pages of {format_bytes(size)}"
        new = limit // size * size  # as the kernel rounds it
        for name in names:
            old = None if starts else there.get(name)
            if old != new and (name in there or not there):
                changes.append(Change(name=name, old=old, new=new, why=why))
    return (SetHugepages(unit=unit, changes=tuple(changes)) if changes else None), skipped


def _no_hugetlb(unit: DesiredUnit, caps: Caps) -> Skipped:
    why = (
        "a user manager has no hugetlb controller"
        if caps.manager.is_user
        else "the hugetlb controller is not enabled for podslice's slices; see: podslice doctor"
    )
    return Skipped(unit=unit.name, name="limits of huge pages", why=why)
