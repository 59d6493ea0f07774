"""What has to go, and what has to stay although it should go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.model.desired import Desired, Refusal
from podslice.model.pod import Pod
from podslice.model.unit import Observed, ObservedUnit, UnitKind, UnitName
from podslice.plan.changes import is_up
from podslice.plan.steps import Skipped, StopUnit, depth_of

CLASS_CHANGED = "QOSClassChanged"
"""Why a pod with processes in it is not moved to the slice of another class."""

_MOUNT = f".{UnitKind.MOUNT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatingPods:
    """The pods that go for good, and how."""

    pods: Mapping[UnitName, Pod] = field(default_factory=dict)
    """By their slices."""
    grace_sec: int | None = None
    """How long what runs in them has to end by itself; None: as each pod states."""


def settle_moves(
    desired: Desired, observed: Observed
) -> tuple[dict[str, ObservedUnit], tuple[Refusal, ...]]:
    """Pods whose class changed while something is in them can't move: they stay as they are.

    Returns the slice that each of them stays in, by pod, and why.

    Source: Kubernetes refuses a change of a pod's class likewise ("Pod QOS Class may not change").
    """
    volumes = _slices_with_volumes(observed)
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
            message = f"the pod is now {pod.qos}, but {what} in {held.name}"
            refusals.append(
                Refusal(
                    pod=pod.pod.key,
                    reason=CLASS_CHANGED,
                    message=f"{message}; delete the pod first",
                )
            )
    return staying, tuple(refusals)


def _slices_with_volumes(observed: Observed) -> set[object]:
    return {
        unit.properties.get("Slice")
        for name, unit in observed.units.items()
        if name.endswith(_MOUNT) and is_up(unit)
    }


def _last_component(name: UnitName) -> str:
    """What a slice is called in its parent: `pod12_34` of `kubepods-burstable-pod12_34.slice`."""
    return name.removesuffix(".slice").rpartition("-")[2]


def find_stops(
    desired: Desired, observed: Observed, keep: set[UnitName], terminating: TerminatingPods
) -> tuple[list[StopUnit], list[Skipped]]:
    """Units that have to go. Tiers and root go only when nothing of others is in them."""
    unwanted = {**_lost_volumes(desired, observed), **desired.unwanted}
    going = {name for name in unwanted if name in observed.units} - keep
    mounts = {name for name in going if name.endswith(_MOUNT)}
    pods = {name for name in going - mounts if _last_component(name).startswith("pod")}
    stops = [_stop(name, unwanted[name], observed, terminating) for name in pods | mounts]
    skipped = []
    for name in sorted(going - pods - mounts, key=depth_of, reverse=True):
        foreign = _foreign(name, going, observed)
        if foreign:
            skipped.append(Skipped(unit=name, name="stop", why=foreign))
        else:
            # what it holds is in pods that go before it
            stops.append(StopUnit(name=name, why=unwanted[name]))
    return stops, skipped


def _lost_volumes(desired: Desired, observed: Observed) -> dict[UnitName, str]:
    """Volumes that are mounted in the slices of pods and that these do not have."""
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
        # a control group that outlived its slice has no units in which systemd would end it
        signals = (name,)
    elif grace_sec > pod.grace_period_sec:
        # those of ours, which systemd would kill after the pod's own
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


def _foreign(name: UnitName, going: set[UnitName], observed: Observed) -> str:
    """What others have in an inner slice; empty when nothing."""
    inside = f"{name.removesuffix('.slice')}-"
    theirs = [other for other in observed.units if other.startswith(inside) and other not in going]
    if theirs:
        return f"{min(theirs)} is not managed by podslice"
    ours = sum(
        observed.units[pod].tasks
        for pod in going
        if pod.startswith(inside) and _last_component(pod).startswith("pod")
    )
    others = observed.units[name].tasks - ours
    return f"{count_processes(others)} in it outside of any pod" if others > 0 else ""


def count_processes(number: int) -> str:
    """`1 process runs`, `5 processes run`."""
    return "1 process runs" if number == 1 else f"{number} processes run"
