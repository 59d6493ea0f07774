"""The steps of a plan as values, and their order."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import ClassVar

from podslice.model.desired import Refusal
from podslice.model.unit import (
    NO_OCCUPANTS,
    DesiredUnit,
    Occupants,
    TransientUnit,
    UnitKind,
    UnitName,
    Value,
)


class Action(StrEnum):
    """The kind of a step, as JSON documents show it."""

    START = "start"
    SET = "set"
    STOP = "stop"


class Stage(IntEnum):
    """When a step is taken. What takes away goes from the leaves up, what gives from the root down.

    Tiers tighten before a new pod's slice is created, and relax after one is gone.

    Source: seed 000, "QoS level cgroups" ("Prior to starting a pod …", "after deletion …").
    """

    STOP = 0
    TIGHTEN = 1
    START = 2
    GROW = 3
    HUGEPAGES = 4
    """The files are there once the units are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One property, or file of the kernel: what it is, what it will be, and why."""

    name: str
    old: Value | None
    new: int | str
    why: str = field(default="", compare=False)
    is_return: bool = field(default=False, compare=False)
    """Whether a unit outside the root gets back what it had before podslice set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnUnit:
    """A step that gives a unit new values."""

    unit: DesiredUnit
    changes: tuple[Change, ...]

    @property
    def name(self) -> UnitName:
        """The unit's name."""
        return self.unit.name


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUnit(_OnUnit):
    """Start a slice, or mount a volume, that is not there."""

    action: ClassVar = Action.START


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties(_OnUnit):
    """Change properties of a unit that is there."""

    action: ClassVar = Action.SET
    tightens: bool
    reclaim_bytes: int | None = None
    """What the unit has to come down to before it is limited to that, since it uses more."""
    used_bytes: int | None = field(default=None, compare=False)
    """What it uses now, where it has to come down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHugepages(_OnUnit):
    """Limit the huge pages of a unit, in the kernel's files: systemd has no property for them."""

    action: ClassVar = Action.SET


@dataclass(frozen=True, slots=True, kw_only=True)
class StopUnit:
    """Stop a unit, with everything below it."""

    action: ClassVar = Action.STOP
    name: UnitName
    why: str
    tasks: int = 0
    """Processes and threads that it holds now."""
    pod: str | None = None
    """`namespace/name` of the pod whose slice it is, where that goes for good."""
    grace_sec: int | None = None
    """How long what runs in it has to end by itself; None: as systemd has it."""
    occupants: Occupants = NO_OCCUPANTS
    signals: tuple[UnitName, ...] = ()
    """The units whose processes are signalled before anything is stopped, since a stop would end
    them too early; or the slice itself, where a stop would miss some."""

    @property
    def takes_time(self) -> bool:
        """Whether something runs in it that has time to end by itself."""
        return self.grace_sec is not None and (self.tasks > 0 or bool(self.signals))


Step = StartUnit | SetProperties | SetHugepages | StopUnit


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

    def only(self, names: Collection[UnitName]) -> Plan:
        """What is about some units, refusals aside."""
        return Plan(
            steps=tuple(step for step in self.steps if step.name in names),
            skipped=tuple(skipped for skipped in self.skipped if skipped.unit in names),
        )

    def only_stops(self) -> Plan:
        """Return the plan without the steps that set values."""
        steps = tuple(step for step in self.steps if isinstance(step, StopUnit))
        return Plan(steps=steps, refused=self.refused)

    def without(self, names: Collection[UnitName]) -> Plan:
        """The same without what is about some units, refusals aside."""
        return replace(
            self,
            steps=tuple(step for step in self.steps if step.name not in names),
            skipped=tuple(skipped for skipped in self.skipped if skipped.unit not in names),
        )


def stage_of(step: Step) -> tuple[Stage, int]:
    """The stage of a step and, within it, its turn; steps with the same turn may go at once."""
    depth = depth_of(step.name)
    if isinstance(step, StopUnit):
        return Stage.STOP, -depth
    if isinstance(step, StartUnit):
        return Stage.START, depth
    if isinstance(step, SetHugepages):
        return Stage.HUGEPAGES, depth
    return (Stage.TIGHTEN, -depth) if step.tightens else (Stage.GROW, depth)


def depth_of(name: UnitName) -> int:
    """How deep a unit lies; what is no slice lies deepest."""
    return name.count("-") if name.endswith(".slice") else 1000


def transient_unit(unit: DesiredUnit, values: Mapping[str, int | str]) -> TransientUnit:
    """The slice or mount to start, with its structure.

    Source: Kubernetes' and opencontainers' systemd drivers: Wants= the parent, no default
    dependencies, accounting on.
    """
    if unit.kind is UnitKind.MOUNT:
        # in the pod's slice: what is written to it is the pod's, and it goes when that goes
        structure = {"Description": unit.description, "Slice": unit.parent, **unit.structure}
        return TransientUnit(name=unit.name, properties=structure)
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
