"""Make the plan: the difference between desired and observed state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.model.desired import Desired, Refusal
from podslice.model.pod import Pod
from podslice.model.unit import DesiredUnit, Observed, ObservedUnit, UnitKind, UnitName
from podslice.plan import Plan, Skipped, StartUnit, Step, StopUnit, order_of
from podslice.plan.changes import (
    feasible,
    hugepages_step,
    is_up,
    not_active,
    spare,
    step_for,
    volume_step,
)

CLASS_CHANGED = "QOSClassChanged"
"""The reason why a pod with processes is not moved to the slice of another class."""

_MOUNT = f".{UnitKind.MOUNT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatingPods:
    """The terminating pods, and their grace period."""

    pods: Mapping[UnitName, Pod] = field(default_factory=dict)
    """By slice."""
    grace_sec: int | None = None
    """The grace period of their processes; None: each pod's own."""


def settle_moves(
    desired: Desired, observed: Observed
) -> tuple[dict[str, ObservedUnit], tuple[Refusal, ...]]:
    """Return the slices in which pods stay although their class has changed, and the refusals.

    A pod with processes or mounted volumes can't move to another slice.

    Source: Kubernetes refuses a change of a pod's class likewise ("Pod QOS Class may not change").
    """
    volumes = {
        unit.properties.get("Slice")
        for name, unit in observed.units.items()
        if name.endswith(_MOUNT) and is_up(unit)
    }
    busy = {
        _last_component(name): observed.units[name]
        for name in desired.unwanted
        if name in observed.units and (observed.units[name].tasks or name in volumes)
    }
    staying: dict[str, ObservedUnit] = {}
    refusals = []
    for pod in desired.pods if busy else ():
        held = busy.get(_last_component(pod.slice))
        if held is not None:
            staying[pod.pod.key] = held
            what = count_processes(held.tasks) if held.tasks else "volumes are mounted"
            message = f"the pod is now {pod.qos}, but {what} in {held.name}; delete the pod first"
            refusals.append(Refusal(pod=pod.pod.key, reason=CLASS_CHANGED, message=message))
    return staying, tuple(refusals)


def _last_component(name: UnitName) -> str:
    """Return the last component of a slice's name: `pod12_34` of `kubepods-burstable-pod12_34.slice`."""
    return name.removesuffix(".slice").rpartition("-")[2]


def find_stops(
    desired: Desired, observed: Observed, keep: set[UnitName], terminating: TerminatingPods
) -> tuple[list[StopUnit], list[Skipped]]:
    """Return the units to stop. Tiers and root are stopped only without foreign units in them."""
    unwanted = {**_lost_volumes(desired, observed), **desired.unwanted}
    stopped = {name for name in unwanted if name in observed.units} - keep
    mounts = {name for name in stopped if name.endswith(_MOUNT)}
    pods = {name for name in stopped - mounts if _last_component(name).startswith("pod")}
    stops = [_stop(name, unwanted[name], observed, terminating) for name in pods | mounts]
    skipped = []
    for name in stopped - pods - mounts:
        foreign = _foreign(name, stopped, observed)
        if foreign:
            skipped.append(Skipped(unit=name, name="stop", why=foreign))
        else:
            # its processes are in pods that are stopped before it
            stops.append(StopUnit(name=name, why=unwanted[name]))
    return stops, skipped


def _lost_volumes(desired: Desired, observed: Observed) -> dict[UnitName, str]:
    """Return volumes that are mounted in the slices of pods without being theirs."""
    wanted = {unit.name for unit in desired.units}
    pods = {pod.slice: pod.pod.key for pod in desired.pods}
    return {
        name: f"pod {pods[slice_]} has no such volume"
        for name, unit in observed.units.items()
        if name.endswith(_MOUNT)
        and name not in wanted
        and (slice_ := UnitName(str(unit.properties.get("Slice")))) in pods
    }


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
    theirs = [
        other for other in observed.units if other.startswith(inside) and other not in stopped
    ]
    if theirs:
        return f"{min(theirs)} is not managed by podslice"
    ours = sum(
        observed.units[pod].tasks
        for pod in stopped
        if pod.startswith(inside) and _last_component(pod).startswith("pod")
    )
    others = observed.units[name].tasks - ours
    return f"{count_processes(others)} in it outside of any pod" if others > 0 else ""


def count_processes(number: int) -> str:
    """Return `1 process runs`, `5 processes run`."""
    return "1 process runs" if number == 1 else f"{number} processes run"


_NONE = TerminatingPods()
_OF_PROCESSES = (UnitKind.SCOPE, UnitKind.SERVICE)


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
    staying, moving = settle_moves(desired, observed)
    keep = {unit.name for unit in staying.values()}
    stops, skipped = find_stops(desired, observed, keep, terminating)
    stopped = {stop.name for stop in stops}
    units = [unit for unit in desired.units if unit.pod not in staying and unit.name not in stopped]
    steps: list[Step] = []
    for unit in units:
        taken, left_out = _steps_for(unit, desired, observed, stopped, force=force)
        steps += taken
        skipped += left_out
    return Plan(
        steps=tuple(sorted((*stops, *steps), key=order_of)),
        skipped=tuple(sorted(skipped, key=lambda each: (each.unit, each.name))),
        refused=tuple(sorted((*desired.refused, *moving), key=lambda refusal: refusal.pod)),
        caps=observed.caps,
    )


def _steps_for(
    unit: DesiredUnit, desired: Desired, observed: Observed, stopped: set[UnitName], *, force: bool
) -> tuple[list[Step], list[Skipped]]:
    """Return the steps on a unit that is not stopped, and what is left out."""
    there = observed.units.get(unit.name)
    is_elsewhere = there is not None and there.properties.get("Slice", unit.parent) != unit.parent
    if unit.kind in _OF_PROCESSES and (there is None or is_elsewhere):
        # a container that is not running needs no properties, one outside its pod is not podslice's
        return [], []
    if there is None and unit.name in desired.unwanted:
        return [], []
    if there is None and not unit.owned:
        return [], [not_active(unit)]
    if unit.kind is UnitKind.MOUNT:
        if there is not None and there.properties.get("Slice") in stopped:
            there = None  # it is stopped with the slice that contains it now
        mount, skipped = volume_step(unit, there)
        return [mount] if mount else [], skipped
    properties, skipped = feasible(unit.name, unit.properties, observed.caps)
    if there is not None and not force:
        skipped += spare(unit, properties, there)
    # the limit of a tier already respects its usage; see policy.desire
    step = step_for(unit, properties, there, reclaims=not force and not unit.is_tier)
    pages, no_pages = hugepages_step(unit, there, observed.caps, starts=isinstance(step, StartUnit))
    return [each for each in (step, pages) if each], skipped + no_pages
