"""Make the plan: the difference between desired and observed state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

from podslice.model.desired import Desired, Refusal
from podslice.model.node import parse_cpus
from podslice.model.pod import Pod
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
from podslice.model.quantity import format_bytes, tmpfs_size_bytes
from podslice.model.resources import MEMORY, hugetlb_files, human_amounts
from podslice.model.unit import (
    Caps,
    DesiredUnit,
    Observed,
    ObservedUnit,
    PropertyValue,
    UnitKind,
    UnitName,
    Value,
)
from podslice.plan import (
    Change,
    Plan,
    SetHugepages,
    SetProperties,
    Skipped,
    StartUnit,
    Step,
    StopUnit,
    order_of,
)

CLASS_CHANGED = "QOSClassChanged"
"""The reason why a pod with processes is not moved to the slice of another class."""

_UP = ("active", "activating", "reloading")
_MOUNT = f".{UnitKind.MOUNT}"
_LARGEST_PAGE_BYTES = 2**16
"""The kernel rounds sizes of file systems up to its pages, of up to 64 KiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatingPods:
    """The terminating pods, and their grace period."""

    pods: Mapping[UnitName, Pod] = field(default_factory=dict)
    """By slice."""
    grace_sec: int | None = None
    """The grace period of their processes; None: each pod's own."""


_NONE = TerminatingPods()


def is_up(unit: ObservedUnit | None) -> TypeGuard[ObservedUnit]:
    """Return whether a unit is active, or about to be."""
    return unit is not None and unit.active_state in _UP


def make_plan(
    desired: Desired,
    observed: Observed,
    *,
    force: bool = False,
    terminating: TerminatingPods = _NONE,
) -> Plan:
    """Return the steps that bring `observed` to `desired`.

    Without `force` no limit is set below the current memory usage: a reserved slice keeps its
    limit, and the memory of one of podslice's units is reclaimed first.
    """
    staying, moving = _settle_moves(desired, observed)
    stops, skipped = _find_stops(desired, observed, set(staying.values()), terminating)
    stopped = {stop.name for stop in stops}
    steps: list[Step] = []
    for unit in desired.units:
        if unit.pod not in staying and unit.name not in stopped:
            taken, left_out = _steps_for(unit, desired, observed, stopped, force=force)
            steps += taken
            skipped += left_out
    return Plan(
        steps=tuple(sorted((*stops, *steps), key=order_of)),
        skipped=tuple(sorted(skipped, key=lambda each: (each.unit, each.name))),
        refused=tuple(sorted((*desired.refused, *moving), key=lambda refusal: refusal.pod)),
        caps=observed.caps,
    )


def _settle_moves(
    desired: Desired, observed: Observed
) -> tuple[dict[str, UnitName], tuple[Refusal, ...]]:
    """Return the slices in which pods stay although their class has changed, and the refusals.

    A pod with processes or mounted volumes can't move to another slice.

    Source: Kubernetes refuses a change of a pod's class likewise ("Pod QOS Class may not change").
    """
    volumes = {
        unit.properties.get("Slice")
        for name, unit in observed.units.items()
        if name.endswith(_MOUNT) and is_up(unit)
    }
    # The slices of one pod in different tiers have the same last component.
    busy = {
        _last_component(name): observed.units[name]
        for name in desired.unwanted
        if name in observed.units and (observed.units[name].tasks or name in volumes)
    }
    staying: dict[str, UnitName] = {}
    refusals = []
    for pod in desired.pods if busy else ():
        if held := busy.get(_last_component(pod.slice)):
            staying[pod.pod.key] = held.name
            what = count_processes(held.tasks) if held.tasks else "volumes are mounted"
            message = f"the pod is now {pod.qos}, but {what} in {held.name}; delete the pod first"
            refusals.append(Refusal(pod=pod.pod.key, reason=CLASS_CHANGED, message=message))
    return staying, tuple(refusals)


def _last_component(name: UnitName) -> str:
    """Return the last component of a slice's name: `pod12_34` of `kubepods-burstable-pod12_34.slice`."""
    return name.removesuffix(".slice").rpartition("-")[2]


def _find_stops(
    desired: Desired, observed: Observed, keep: set[UnitName], terminating: TerminatingPods
) -> tuple[list[StopUnit], list[Skipped]]:
    """Return the units to stop. Tiers and root are stopped only without foreign units in them."""
    wanted = {unit.name for unit in desired.units}
    slices = {pod.slice: pod.pod.key for pod in desired.pods}
    # Mounts in the slice of a pod that no known manifest of it has; `unwanted` has those of the
    # manifest before this one.
    lost = {
        name: f"pod {slices[slice_]} has no such volume"
        for name, unit in observed.units.items()
        if name.endswith(_MOUNT)
        and name not in wanted
        and (slice_ := UnitName(str(unit.properties.get("Slice")))) in slices
    }
    unwanted = {**lost, **desired.unwanted}
    stopped = {name for name in unwanted if name in observed.units} - keep
    mounts = {name for name in stopped if name.endswith(_MOUNT)}
    pods = {name for name in stopped - mounts if _last_component(name).startswith("pod")}
    stops = [_stop(name, unwanted[name], observed, terminating) for name in pods | mounts]
    skipped = []
    # The tiers and the root, which may contain units of others.
    for name in stopped - pods - mounts:
        if foreign := _foreign(name, stopped, observed):
            skipped.append(Skipped(unit=name, name="stop", why=foreign))
        else:
            # its processes are in pods that are stopped before it
            stops.append(StopUnit(name=name, why=unwanted[name]))
    return stops, skipped


def _stop(name: UnitName, why: str, observed: Observed, terminating: TerminatingPods) -> StopUnit:
    unit, pod = observed.units[name], terminating.pods.get(name)
    if pod is None:
        return StopUnit(name=name, why=why, tasks=unit.tasks)
    grace_sec = pod.grace_period_sec if terminating.grace_sec is None else terminating.grace_sec
    signals: tuple[UnitName, ...] = ()
    if unit.occupants.is_mixed or not is_up(unit):
        # a control group without its slice has no unit that systemd could stop
        signals = (name,)
    elif grace_sec > pod.grace_period_sec:
        # podslice's own units, which systemd would kill after the pod's own grace period
        signals = tuple(inner for inner in unit.occupants.units if inner in observed.units)
    return StopUnit(
        name=name,
        why=why,
        tasks=unit.tasks,
        pod=pod.key,
        grace_sec=grace_sec,
        occupants=unit.occupants,
        signals=signals,
    )


def _foreign(name: UnitName, stopped: set[UnitName], observed: Observed) -> str:
    """Describe foreign units or processes in an inner slice; empty if there are none."""
    inside = f"{name.removesuffix('.slice')}-"
    theirs = [each for each in observed.units if each.startswith(inside) and each not in stopped]
    if theirs:
        return f"{min(theirs)} is not managed by podslice"
    ours = sum(
        observed.units[pod].tasks
        for pod in stopped
        if pod.startswith(inside) and _last_component(pod).startswith("pod")
    )
    # TasksCurrent of a slice includes everything below it.
    others = observed.units[name].tasks - ours
    return f"{count_processes(others)} in it outside of any pod" if others > 0 else ""


def count_processes(number: int) -> str:
    """Return `1 process runs`, `5 processes run`."""
    return "1 process runs" if number == 1 else f"{number} processes run"


def _steps_for(
    unit: DesiredUnit, desired: Desired, observed: Observed, stopped: set[UnitName], *, force: bool
) -> tuple[list[Step], list[Skipped]]:
    """Return the steps on a unit that is not stopped, and what is left out."""
    there = observed.units.get(unit.name)
    is_elsewhere = there is not None and there.properties.get("Slice", unit.parent) != unit.parent
    if unit.kind in (UnitKind.SCOPE, UnitKind.SERVICE) and (there is None or is_elsewhere):
        # a container that is not running needs no properties, one outside its pod is not podslice's
        return [], []
    # Without pods the tree is both desired, for its values, and unwanted: it is not started for
    # them.
    if there is None and unit.name in desired.unwanted:
        return [], []
    if there is None and not unit.owned:
        # podslice starts no reserved slice; Source: Kubernetes,
        # pkg/kubelet/cm/node_container_manager_linux.go, enforceExistingCgroup
        why = f"the slice is not active; start it: systemctl start {unit.name}"
        return [], [Skipped(unit=unit.name, name="start", why=why, blocks=True)]
    if unit.kind is UnitKind.MOUNT:
        if there is not None and there.properties.get("Slice") in stopped:
            there = None  # it is stopped with the slice that contains it now
        return _mount(unit, there)
    properties, skipped = feasible(unit.name, unit.properties, observed.caps)
    if there is not None and not force:
        skipped += _spare(unit, properties, there)
    # the limit of a tier already respects its usage; see policy.desire
    step = _set(unit, properties, there, reclaims=not force and not unit.is_tier)
    starts = isinstance(step, StartUnit)
    pages = None
    if unit.hugepages and (starts or is_up(there)):
        pages, no_pages = _limit_hugepages(unit, there, observed.caps, starts=starts)
        skipped += no_pages
    return [each for each in (step, pages) if each], skipped


def _set(
    unit: DesiredUnit,
    properties: Mapping[str, PropertyValue],
    observed: ObservedUnit | None,
    *,
    reclaims: bool,
) -> StartUnit | SetProperties | None:
    """Return the step that brings a slice or a container to the desired state.

    With `reclaims`, memory is reclaimed before a limit below the current usage is set, which could
    cause OOM kills.
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
    used = observed.memory_bytes or 0
    limits = (int(change.new) for change in differing if change.name == MEMORY_MAX)
    is_reclaimed = reclaims and unit.owned
    target = next((limit for limit in limits if is_reclaimed and limit < used), None)
    # the partition that isolated CPUs are a part of must exist by then: it is set from the root down
    isolates = any(
        change.name == PARTITION and change.new == PARTITION_ISOLATED for change in differing
    )
    return SetProperties(
        unit=unit,
        changes=differing,
        tightens=any(map(_tightens, differing)) and not isolates,
        reclaim_bytes=target,
        used_bytes=None if target is None else observed.memory_bytes,
    )


def _changes(
    unit: DesiredUnit, properties: Mapping[str, PropertyValue], observed: ObservedUnit
) -> Iterator[Change]:
    """Yield stated values that differ and, on podslice's units, values that are not stated."""
    names: Iterable[str] = sorted(properties)
    if unit.owned:
        # the slice of all pods may be a partition no longer
        was_root = observed.properties.get(PARTITION) == PARTITION_ROOT
        is_over = was_root and PARTITION not in unit.values
        names = (*managed_of(unit), *((PARTITION, ALLOWED_CPUS) if is_over else ()))
    for name in names:
        if name not in observed.properties:
            continue
        old, new = observed.properties[name], properties.get(name)
        if new is None:
            unset = PROPERTIES[name].unset
            if unset not in (None, old):
                yield Change(name=name, old=old, new=unset, why="not requested by any manifest")
        elif old != new.value:
            yield _change(new, old)


def _change(new: PropertyValue, old: Value | None) -> Change:
    return Change(name=new.name, old=old, new=new.value, why=new.why, is_return=new.is_return)


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


def _spare(
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
    shown, most = human_amounts(MEMORY, used * 1000, int(limit.value) * 1000)
    why = (
        f"{shown} are in use, more than {most}; the kernel may"
        " OOM-kill processes; raise the reservation, or use --force"
    )
    return [Skipped(unit=unit.name, name=MEMORY_MAX, why=why, blocks=True)]


def _mount(unit: DesiredUnit, observed: ObservedUnit | None) -> tuple[list[Step], list[Skipped]]:
    """Return the step that mounts a volume; a mounted one keeps its size."""
    if not is_up(observed):
        return [StartUnit(unit=unit, changes=())], []
    wanted, has = (
        tmpfs_size_bytes(str(options.get("Options", "")))
        for options in (unit.structure, observed.properties)
    )
    if wanted is None or has is None or 0 <= has - wanted < _LARGEST_PAGE_BYTES:
        return [], []
    now, new = human_amounts(MEMORY, has * 1000, wanted * 1000)
    why = f"it is mounted with {now}, not {new}; delete the pod first to change the size"
    return [], [Skipped(unit=unit.name, name="the new size", why=why)]


def _limit_hugepages(
    unit: DesiredUnit, observed: ObservedUnit | None, caps: Caps, *, starts: bool
) -> tuple[SetHugepages | None, list[Skipped]]:
    """Return the step that limits the huge pages of a unit that is active, or `starts`.

    Source: opencontainers/cgroups, fs2/hugetlb.go, setHugeTlb, which writes both files of a size,
    and leaves out those of reserved pages where the kernel has none.
    """
    asks = any(unit.hugepages.values())
    if not caps.hugetlb:
        why = "the hugetlb controller is not enabled for podslice's slices; see: podslice doctor"
        if caps.manager.is_user:
            why = "a user manager has no hugetlb controller"
        skip = Skipped(unit=unit.name, name="limits of huge pages", why=why)
        # reported once, for the pod's slice
        return None, [skip] if asks and unit.kind is UnitKind.SLICE else []
    if not (starts or asks):
        # container runtimes enable the controller in running pods: not a difference
        return None, []
    there = {} if observed is None or observed.hugepages is None else observed.hugepages
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
