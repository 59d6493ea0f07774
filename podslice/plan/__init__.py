"""The plan: the difference between desired and observed state, as steps in order.

Policy states intent; what the service manager does not support is left out here, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import ClassVar, NamedTuple

from podslice.errors import Problem, Severity
from podslice.model.desired import Refusal
from podslice.model.event import Kind
from podslice.model.unit import (
    NO_OCCUPANTS,
    Caps,
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
    WRITE = "write"
    REMOVE = "remove"
    REMOVE_VOLUME = "remove-volume"
    REMOVE_NETWORK = "remove-network"


class Stage(IntEnum):
    """The order of steps. Stops and tighter limits run from the leaves up, others from the root down.

    Tiers tighten before a new pod's slice is created, and relax after one is removed.

    Source: Kubelet pod level resource management, "QoS level cgroups" ("Prior to starting a pod …",
    "after deletion …").
    """

    STOP = 0
    TIGHTEN = 1
    START = 2
    GROW = 3
    HUGEPAGES = 4
    """The files exist once the units do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one property, or of one of the kernel's files, and why."""

    name: str
    old: Value | None
    new: int | str
    why: str = field(default="", compare=False)
    is_return: bool = field(default=False, compare=False)
    """Whether it restores the value of a unit outside the root before podslice set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnUnit:
    """A step that sets values of a unit."""

    unit: DesiredUnit
    changes: tuple[Change, ...]

    @property
    def name(self) -> UnitName:
        """Return the unit's name."""
        return self.unit.name

    @property
    def pod(self) -> str | None:
        """Return the pod of the unit, `namespace/name`."""
        return self.unit.pod


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUnit(_OnUnit):
    """Start a slice, or mount a volume."""

    action: ClassVar = Action.START


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProperties(_OnUnit):
    """Change properties of an active unit."""

    action: ClassVar = Action.SET
    tightens: bool
    reclaim_bytes: int | None = None
    """The limit to which the unit's memory is reclaimed first, since it uses more."""
    used_bytes: int | None = field(default=None, compare=False)
    """The current usage, if it is reclaimed."""


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
    """Processes and threads in it now."""
    pod: str | None = None
    """`namespace/name` of the pod whose slice it is, if the pod is terminating."""
    grace_sec: int | None = None
    """The grace period of its processes; None: systemd's."""
    occupants: Occupants = NO_OCCUPANTS
    signals: tuple[UnitName, ...] = ()
    """The units whose processes are signalled before anything is stopped, since a stop would kill
    them too early; or the slice itself, if a stop would miss some."""

    @property
    def takes_time(self) -> bool:
        """Return whether it has processes with a grace period."""
        return self.grace_sec is not None and (self.tasks > 0 or bool(self.signals))


Step = StartUnit | SetProperties | SetHugepages | StopUnit


@dataclass(frozen=True, kw_only=True)
class PodStepEntry:
    """A step on a file, a service or a volume of a pod in a document."""

    action: Action
    pod: str
    name: str
    why: str
    outcome: str | None = None
    error: str | None = None


PodStepEntries = tuple[PodStepEntry, ...]
"""The steps of a feature in a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStep:
    """A step on a file, a service or a volume of a pod, before or after the steps on slices.

    A feature plans it and takes it, and its class describes it.
    """

    section: ClassVar[str]
    """The key of the list in JSON documents that it is in."""
    is_counted: ClassVar[bool] = True
    """Whether a summary counts it."""
    action: Action
    pod: str
    """`namespace/name`."""
    name: str
    """The service, the file or the volume."""
    path: str = ""
    """The absolute path of the file; empty for others."""
    why: str = ""
    problem: Problem | None = None
    """Why it cannot be taken."""

    @property
    def is_end(self) -> bool:
        """Whether something ends by it."""
        return self.action is Action.STOP

    @property
    def event(self) -> tuple[Kind, str] | None:
        """The kind and the message of the event that it is logged as once it is taken."""
        return None

    @property
    def planned_subject(self) -> str:
        """What it concerns, before it is taken."""
        return self.subject

    @property
    def subject(self) -> str:
        """What it concerns, and why."""
        return f"{self.path or self.name} ({self.pod})" + (f": {self.why}" if self.why else "")

    def describe_rest(self, error: str) -> tuple[str, Severity | None]:
        """Describe what followed it, or is left to do; empty if there is nothing to say.

        `error` is that of its result.
        """
        return "", None

    def entry(self) -> object:
        """Return the step for a document, before it is taken: a frozen dataclass."""
        return PodStepEntry(
            action=self.action, pod=self.pod, name=self.path or self.name, why=self.why
        )

    def result(self, outcome: str, error: str) -> object:
        """Return the step for a document, with its outcome: a frozen dataclass."""
        return PodStepEntry(
            action=self.action,
            pod=self.pod,
            name=self.path or self.name,
            why=self.why,
            outcome=outcome,
            error=error,
        )


class PodSteps(NamedTuple):
    """The steps on files and services of pods around the steps on slices."""

    before: tuple[PodStep, ...] = ()
    after: tuple[PodStep, ...] = ()


class Skipped(NamedTuple):
    """Something that the plan leaves out, and why."""

    unit: UnitName
    name: str
    why: str
    blocks: bool = False
    """Whether the desired state is not reached without it, so that the operator must decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order in which they are taken."""

    steps: tuple[Step, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    refused: tuple[Refusal, ...] = ()
    caps: Caps | None = field(default=None, compare=False, repr=False)
    """The capabilities of the service manager whose units were observed."""

    def __bool__(self) -> bool:
        """Return whether there are steps."""
        return bool(self.steps)

    @property
    def is_blocked(self) -> bool:
        """Return whether something is left out on which the operator must decide."""
        return any(skipped.blocks for skipped in self.skipped)

    def only(self, names: Collection[UnitName]) -> Plan:
        """Return the part that concerns some units, without refusals."""
        return Plan(
            steps=tuple(step for step in self.steps if step.name in names),
            skipped=tuple(skipped for skipped in self.skipped if skipped.unit in names),
        )

    def only_stops(self) -> Plan:
        """Return the plan without the steps that set values."""
        steps = tuple(step for step in self.steps if isinstance(step, StopUnit))
        return Plan(steps=steps, refused=self.refused)

    def without(self, names: Collection[UnitName]) -> Plan:
        """Return the plan without the part that concerns some units; refusals stay."""
        return replace(
            self,
            steps=tuple(step for step in self.steps if step.name not in names),
            skipped=tuple(skipped for skipped in self.skipped if skipped.unit not in names),
        )


def stage_of(step: Step) -> tuple[Stage, int]:
    """Return the stage of a step and its turn in it; steps of the same turn may run concurrently."""
    depth = depth_of(step.name)
    if isinstance(step, StopUnit):
        return Stage.STOP, -depth
    if isinstance(step, StartUnit):
        return Stage.START, depth
    if isinstance(step, SetHugepages):
        return Stage.HUGEPAGES, depth
    return (Stage.TIGHTEN, -depth) if step.tightens else (Stage.GROW, depth)


def order_of(step: Step) -> tuple[tuple[Stage, int], UnitName]:
    """Return the position of a step in a plan, to sort by."""
    return stage_of(step), step.name


def depth_of(name: UnitName) -> int:
    """Return the depth of a unit; units other than slices are the deepest."""
    # In the name of a slice each dash is a level, and no name is long enough for 1000 of them.
    return name.count("-") if name.endswith(".slice") else 1000


def transient_unit(unit: DesiredUnit, values: Mapping[str, int | str]) -> TransientUnit:
    """Return the slice or mount to start, with its structure.

    Source: Kubernetes' and opencontainers' systemd drivers: Wants= the parent, no default
    dependencies, accounting on.
    """
    if unit.kind is UnitKind.MOUNT:
        # in the pod's slice, so that its pages are charged to the pod, and it is stopped with the pod
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
