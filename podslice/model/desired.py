"""What policy decides: the units that should be, and why, pod by pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.errors import Problem, Severity
from podslice.model.node import Allocation
from podslice.model.pod import ContainerKind, Pod, Qos
from podslice.model.resources import Amounts
from podslice.model.unit import DesiredUnit, PropertyValue, UnitName


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDecision:
    """What one container of a pod gets."""

    name: str
    kind: ContainerKind
    scope: UnitName
    oom_score_adj: int
    properties: tuple[PropertyValue, ...]
    oom_group: bool
    """Whether all of its processes end when the kernel kills one of them for lack of memory."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeDecision:
    """What one volume in memory gets."""

    name: str
    unit: UnitName
    """Its mount unit; its name says where it is."""
    path: str
    size_bytes: int | None
    """None: as large as what it is charged to allows."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDecision:
    """What one pod gets. A pod with an error has one too, as far as it could be read."""

    pod: Pod
    qos: Qos
    requests: Amounts
    limits: Amounts
    slice: UnitName
    control_group: str
    properties: tuple[PropertyValue, ...]
    containers: tuple[ContainerDecision, ...]
    overhead: ContainerDecision | None = None
    """The scope of the pod's helpers, where the pod has an overhead; it is called `overhead`."""
    volumes: tuple[VolumeDecision, ...] = ()
    init_properties: tuple[PropertyValue, ...] | None = None
    """The slice's properties until the init containers have finished, where they are others."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes."""
    hugepages_in_memory_bytes: int = 0
    """What its memory limit and its protection include for huge pages."""
    notes: tuple[str, ...] = ()
    """What is left unset and why: `no MemoryMax: container log has no memory limit`."""
    problems: tuple[Problem, ...] = ()
    units: tuple[DesiredUnit, ...] = field(default=(), compare=False, repr=False)
    """What follows from all that: its slice first, then its volumes and what holds processes."""
    elsewhere: tuple[UnitName, ...] = field(default=(), compare=False, repr=False)
    """The slices that it would have in the other classes."""

    @property
    def scopes(self) -> tuple[ContainerDecision, ...]:
        """Everything that may hold processes: the containers and the helpers."""
        return (*self.containers, self.overhead) if self.overhead else self.containers

    @property
    def is_valid(self) -> bool:
        """Whether it may be applied."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A pod that is not admitted. What was applied of it before stays as it is."""

    pod: str
    reason: str
    """`OutOfcpu`, `OutOfmemory`, …, as the kubelet calls them."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Everything that should be, and the units of ours that should not."""

    root: UnitName
    units: tuple[DesiredUnit, ...] = ()
    """Parents before children."""
    unwanted: Mapping[UnitName, str] = field(default_factory=dict)
    """Units that must not be there, if they are, and why.

    One that is among `units`, too, has these properties for as long as it can't go.
    """
    pods: tuple[PodDecision, ...] = ()
    refused: tuple[Refusal, ...] = ()
    allocation: Allocation = field(default_factory=lambda: Allocation(capacity={}))
    requested: Amounts = field(default_factory=dict)
    """The sum of the effective requests of all pods."""
    initializing: frozenset[str] = frozenset()
    """The pods (`namespace/name`) in their init phase: their slices have `init_properties`."""

    @property
    def lasting(self) -> tuple[DesiredUnit, ...]:
        """The units that are to stay."""
        return tuple(unit for unit in self.units if unit.name not in self.unwanted)
