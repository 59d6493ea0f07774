"""The difference between what should be and what is, as steps in order.

Policy states intent; what the service manager at hand can't do is left out here, and said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from podslice.model.desired import Desired, Refusal
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.quantity import format_bytes
from podslice.model.unit import (
    Caps,
    DesiredUnit,
    Observed,
    ObservedUnit,
    Setting,
    TransientUnit,
    UnitKind,
    UnitName,
    Value,
)

_LIMITS = ("CPUQuotaPerSecUSec", "MemoryHigh", "MemoryMax", "TasksMax")
"""Properties whose lower value takes something away; all of them are unset at infinity."""


CLASS_CHANGED = "QOSClassChanged"
"""Why a pod with processes in it is not moved to the slice of another class."""


class Stage(IntEnum):
    """When a step is taken. What takes away goes from the leaves up, what gives from the root down.

    Tiers tighten before a new pod's slice is created, and relax after one is gone.

    Source: seed 000, "QoS level cgroups" ("Prior to starting a pod …", "after deletion …").
    """

    STOP = 0
    TIGHTEN = 1
    START = 2
    GROW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One property: what it is, what it will be, and why."""

    name: str
    old: Value | None
    new: int
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUnit:
    """Start a slice that is not there."""

    unit: DesiredUnit
    changes: tuple[Change, ...]

    @property
    def name(self) -> UnitName:
        """The unit's name."""
        return self.unit.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties:
    """Change properties of a unit that is there."""

    unit: DesiredUnit
    changes: tuple[Change, ...]
    tightens: bool

    @property
    def name(self) -> UnitName:
        """The unit's name."""
        return self.unit.name


@dataclass(frozen=True, slots=True, kw_only=True)
class StopUnit:
    """Stop a unit, with everything below it."""

    name: UnitName
    why: str
    tasks: int = 0
    """Processes that it holds now."""


Step = StartUnit | SetProperties | StopUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Something that is left out of the plan, and why."""

    unit: UnitName
    name: str
    why: str
    blocks: bool = False
    """Whether what should be is not reached without it, and the operator has to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order in which they are taken."""

    steps: tuple[Step, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.steps)

    @property
    def is_blocked(self) -> bool:
        """Whether something is left out that the operator has to decide on."""
        return any(skipped.blocks for skipped in self.skipped)


def make_plan(desired: Desired, observed: Observed, *, force: bool = False) -> Plan:
    """What has to be done so that `observed` becomes `desired`.

    A slice that is not ours is not limited to less memory than it uses, unless with `force`.
    """
    staying, moving = _settle_moves(desired, observed)
    steps: list[Step] = []
    skipped: list[Skipped] = []
    stops, kept = _stops(desired, observed, {unit.name for unit in staying.values()})
    going = {stop.name for stop in stops}
    for unit in desired.units:
        is_unwanted = unit.name in desired.absent and unit.name not in observed.units
        if unit.pod in staying or unit.name in going or is_unwanted:
            continue
        there = observed.units.get(unit.name)
        if there is None and not unit.owned:
            skipped.append(_not_there(unit))
            continue
        feasible, left_out = _feasible(unit, observed.caps)
        if there is not None and not force:
            left_out += _spare(unit, feasible, there)
        step = _step(unit, feasible, there)
        steps += [step] if step else []
        skipped += left_out if unit.name in observed.units or unit.kind is UnitKind.SLICE else []
    return Plan(
        steps=tuple(sorted([*stops, *steps], key=_order)),
        skipped=tuple(sorted((*skipped, *kept), key=lambda each: (each.unit, each.name))),
        refused=tuple(sorted((*desired.refused, *moving), key=lambda refusal: refusal.pod)),
    )


def stage_of(step: Step) -> tuple[Stage, int]:
    """The stage of a step and, within it, its turn; steps with the same turn may go at once."""
    depth = depth_of(step.name)
    if isinstance(step, StopUnit):
        return Stage.STOP, -depth
    if isinstance(step, StartUnit):
        return Stage.START, depth
    return (Stage.TIGHTEN, -depth) if step.tightens else (Stage.GROW, depth)


def depth_of(name: UnitName) -> int:
    """How deep a unit lies; scopes lie deepest."""
    return name.count("-") if name.endswith(".slice") else 1000


def transient_unit(unit: DesiredUnit, values: Mapping[str, int]) -> TransientUnit:
    """The slice to start, with its structure.

    Source: Kubernetes' and opencontainers' systemd drivers: Wants= the parent, no default
    dependencies, accounting on.
    """
    properties: dict[str, Value] = {
        "Description": unit.description,
        "DefaultDependencies": False,
        "CPUAccounting": True,
        "IOAccounting": True,
        "MemoryAccounting": True,
        "TasksAccounting": True,
        **values,
    }
    if unit.parent != "-.slice":
        properties["Wants"] = (unit.parent,)
    return TransientUnit(name=unit.name, properties=properties)


def _order(step: Step) -> tuple[tuple[Stage, int], UnitName]:
    return stage_of(step), step.name


def _step(
    unit: DesiredUnit, settings: Mapping[str, Setting], observed: ObservedUnit | None
) -> Step | None:
    there = observed is not None and observed.active_state in ("active", "activating")
    if unit.kind is UnitKind.SLICE and unit.owned and not (observed and there and _ours(observed)):
        changes = tuple(_change(setting, None) for setting in settings.values())
        return StartUnit(unit=unit, changes=changes)
    if observed is None or not there:
        return None
    differing = tuple(_changes(unit, settings, observed))
    if not differing:
        return None
    return SetProperties(
        unit=unit,
        changes=differing,
        tightens=any(map(_tightens, differing)),
    )


def _ours(observed: ObservedUnit) -> bool:
    """Whether the slice was started, and is not merely implied by a child."""
    return observed.transient or bool(observed.fragment_path)


def _changes(
    unit: DesiredUnit, settings: Mapping[str, Setting], observed: ObservedUnit
) -> Iterator[Change]:
    """Stated values that differ, and on units of ours values that nobody stated."""
    for name in MANAGED[unit.kind] if unit.owned else sorted(settings):
        if name not in observed.properties:
            continue
        old, setting = observed.properties[name], settings.get(name)
        if setting is None:
            unset = PROPERTIES[name].unset
            if old != unset and isinstance(unset, int):
                yield Change(name=name, old=old, new=unset, why="nothing asks for it")
        elif old != setting.value:
            yield _change(setting, old)


def _change(setting: Setting, old: Value | None) -> Change:
    return Change(name=setting.name, old=old, new=setting.value, why=setting.why)


def _tightens(change: Change) -> bool:
    """Whether a limit becomes lower; no limit is infinity, which is above every other."""
    return change.name in _LIMITS and isinstance(change.old, int) and change.new < change.old


def _feasible(unit: DesiredUnit, caps: Caps) -> tuple[dict[str, Setting], list[Skipped]]:
    """The settings that this service manager takes, and the others."""
    takes: dict[str, Setting] = {}
    skipped: list[Skipped] = []
    for setting in unit.settings:
        row = PROPERTIES[setting.name]
        if row.since > caps.systemd_version:
            why = f"systemd {caps.systemd_version} does not know it; it came with {row.since}"
        elif not row.takes(setting.value):
            why = f"systemd takes {row.minimum} to {row.maximum}, not {setting.value}"
        else:
            takes[setting.name] = setting
            continue
        skipped.append(Skipped(unit=unit.name, name=setting.name, why=why))
    return takes, skipped


def _not_there(unit: DesiredUnit) -> Skipped:
    """A reservation can be enforced only on a slice that is there; podslice does not make it.

    Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go, enforceExistingCgroup.
    """
    why = f"it is not there; start it: systemctl start {unit.name}"
    return Skipped(unit=unit.name, name="start", why=why, blocks=True)


def _spare(
    unit: DesiredUnit, settings: dict[str, Setting], observed: ObservedUnit
) -> list[Skipped]:
    """Take a memory limit below the current use off what is set on a slice of others.

    Source: seed 004, "General guidelines" ("can lead to critical services being … OOM killed").
    """
    limit, used = settings.get("MemoryMax"), observed.memory_bytes
    if unit.owned or limit is None or used is None or used <= limit.value:
        return []
    if observed.properties.get("MemoryMax") == limit.value:
        return []
    del settings["MemoryMax"]
    why = (
        f"{format_bytes(used)} are in use, more than {format_bytes(limit.value)}; the kernel would"
        " kill what runs there; raise the reservation, or use --force"
    )
    return [Skipped(unit=unit.name, name="MemoryMax", why=why, blocks=True)]


def _settle_moves(
    desired: Desired, observed: Observed
) -> tuple[dict[str, ObservedUnit], tuple[Refusal, ...]]:
    """Pods whose class changed while processes run in them can't move: they stay as they are.

    Returns the slice that each of them stays in, by pod, and why.

    Source: Kubernetes refuses a change of a pod's class likewise ("Pod QOS Class may not change").
    """
    busy = {
        _last_component(name): observed.units[name]
        for name in desired.absent
        if name in observed.units and observed.units[name].tasks
    }
    staying: dict[str, ObservedUnit] = {}
    refusals = []
    for pod in desired.pods if busy else ():
        held = busy.get(_last_component(pod.slice))
        if held is not None:
            staying[pod.pod.key] = held
            message = f"the pod is {pod.qos} now, and {count_processes(held.tasks)} in {held.name}"
            refusals.append(
                Refusal(
                    pod=pod.pod.key,
                    reason=CLASS_CHANGED,
                    message=f"{message}; delete the pod first",
                )
            )
    return staying, tuple(refusals)


def _last_component(name: UnitName) -> str:
    """What a slice is called in its parent: `pod12_34` of `kubepods-burstable-pod12_34.slice`."""
    return name.removesuffix(".slice").rpartition("-")[2]


def _stops(
    desired: Desired, observed: Observed, keep: set[UnitName]
) -> tuple[list[StopUnit], list[Skipped]]:
    """Units that have to go. Tiers and root go only when nothing of others is in them."""
    going = {name for name in desired.absent if name in observed.units} - keep
    pods = {name for name in going if _last_component(name).startswith("pod")}
    stops = [_stop(observed.units[name], desired.absent[name]) for name in pods]
    skipped = []
    for name in sorted(going - pods, key=depth_of, reverse=True):
        foreign = _foreign(name, going, observed)
        if foreign:
            skipped.append(Skipped(unit=name, name="stop", why=foreign))
        else:
            stops.append(_stop(observed.units[name], desired.absent[name]))
    return stops, skipped


def _stop(unit: ObservedUnit, why: str) -> StopUnit:
    return StopUnit(name=unit.name, why=why, tasks=unit.tasks)


def _foreign(name: UnitName, going: set[UnitName], observed: Observed) -> str:
    """What others have in an inner slice; empty when nothing."""
    inside = f"{name.removesuffix('.slice')}-"
    theirs = [other for other in observed.units if other.startswith(inside) and other not in going]
    if theirs:
        return f"{min(theirs)} is not podslice's to stop"
    ours = sum(
        observed.units[pod].tasks
        for pod in going
        if pod.startswith(inside) and _last_component(pod).startswith("pod")
    )
    others = observed.units[name].tasks - ours
    return f"{count_processes(others)} in it that no pod accounts for" if others > 0 else ""


def count_processes(number: int) -> str:
    """`1 process runs`, `5 processes run`."""
    return "1 process runs" if number == 1 else f"{number} processes run"
