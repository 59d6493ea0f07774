"""The desired state: the units that should exist, and the decisions on pods behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from podslice.errors import Problem, Severity
from podslice.model.naming import service_name
from podslice.model.node import Allocation
from podslice.model.pod import ContainerKind, Pod, Qos
from podslice.model.resources import Amounts
from podslice.model.unit import DesiredUnit, PropertyValue, UnitName


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDecision:
    """The decision on one container of a pod."""

    name: str
    kind: ContainerKind
    scope: UnitName
    oom_score_adj: int
    properties: tuple[PropertyValue, ...]
    oom_group: bool
    """Whether the OOM killer kills all of its processes together."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes."""

    @property
    def units(self) -> tuple[UnitName, UnitName]:
        """Return the units that it may run in: its scope, and the service of its name."""
        return self.scope, service_name(self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeDecision:
    """The decision on one volume in memory."""

    name: str
    unit: UnitName
    """Its mount unit, whose name follows from the path."""
    path: str
    size_bytes: int | None
    """None: limited only by the memory limits that apply to it."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDecision:
    """The decision on one pod. A pod with an error has one as well, as far as it could be read."""

    pod: Pod
    qos: Qos
    requests: Amounts
    limits: Amounts
    slice: UnitName
    control_group: str
    properties: tuple[PropertyValue, ...]
    containers: tuple[ContainerDecision, ...]
    overhead: ContainerDecision | None = None
    """The scope of the pod's helpers, where the pod has an overhead; its name is `overhead`."""
    volumes: tuple[VolumeDecision, ...] = ()
    init_properties: tuple[PropertyValue, ...] | None = None
    """The slice's properties until the init containers have finished, if they differ."""
    hugepages: Mapping[int, int] = field(default_factory=dict)
    """Size of a page in bytes → limit in bytes."""
    hugepages_in_memory_bytes: int = 0
    """The part of its memory limit and protection that is for huge pages."""
    notes: tuple[str, ...] = ()
    """Properties that are unset, and why: `no MemoryMax: container log has no memory limit`."""
    problems: tuple[Problem, ...] = ()
    has_own_cpus: bool = False
    """Whether its properties are those with CPUs of its own, without a quota."""
    units: tuple[DesiredUnit, ...] = field(default=(), compare=False, repr=False)
    """The resulting units: its slice first, then volumes, then scopes."""
    elsewhere: tuple[UnitName, ...] = field(default=(), compare=False, repr=False)
    """The slices that it would have in the other classes."""

    @property
    def scopes(self) -> tuple[ContainerDecision, ...]:
        """Return everything that may hold processes: the containers and the helpers."""
        return (*self.containers, self.overhead) if self.overhead else self.containers

    @property
    def is_valid(self) -> bool:
        """Return whether the pod may be applied."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that is not admitted. Its units that were applied before do not change."""

    pod: str
    reason: str
    """`OutOfcpu`, `OutOfmemory`, …, as the kubelet calls them."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Every unit that should exist, and podslice's units that should not."""

    root: UnitName
    units: tuple[DesiredUnit, ...] = ()
    """Parents before children."""
    unwanted: Mapping[UnitName, str] = field(default_factory=dict)
    """Units that must not exist, and why.

    One that is also among `units` has these properties until it can be removed.
    """
    pods: tuple[PodDecision, ...] = ()
    refused: tuple[Refusal, ...] = ()
    own_cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The exclusive CPUs of pods, by the pod's key."""
    lacking_cpus: tuple[Refusal, ...] = ()
    """The pods in force that cannot have the exclusive CPUs which they claim."""
    available_cpus: frozenset[int] | None = None
    """The CPUs that a pod may claim for itself; None without a CPU manager."""
    allocation: Allocation = field(default_factory=lambda: Allocation(capacity={}))
    requested: Amounts = field(default_factory=dict)
    """The sum of the effective requests of all pods."""
    initializing: frozenset[str] = frozenset()
    """The pods (`namespace/name`) in their init phase: their slices have `init_properties`."""

    @property
    def lasting(self) -> tuple[DesiredUnit, ...]:
        """Return the units that remain."""
        return tuple(unit for unit in self.units if unit.name not in self.unwanted)


Values = Mapping[UnitName, Mapping[str, int | str]]
"""Values by property, by unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A value that was set with `apply --confirm` and is not confirmed."""

    old: int | str
    """The value that is restored unless the new one is confirmed."""
    new: int | str | None
    """None if it could not be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedValue:
    """One value of a slice outside the root."""

    before: int | str
    """The value before podslice set it, restored once the configuration requests none."""
    ours: tuple[int | str, ...]
    """The values that podslice has set: several if it is unknown which is in force."""
    trial: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedValues:
    """All values that podslice has set outside its root since boot."""

    units: Mapping[UnitName, Mapping[str, ReservedValue]] = field(default_factory=dict)
    until_usec: int = 0
    """When unconfirmed values are restored, by the clock since boot."""
    cgroup_root: str = "/"
    """The root of the podslice that has set them."""

    def __bool__(self) -> bool:
        """Return whether there is any value."""
        return any(self.units.values())

    @property
    def unconfirmed(self) -> Unconfirmed | None:
        """Return the values that are not confirmed; None if there are none."""
        old: dict[UnitName, dict[str, int | str]] = {}
        new: dict[UnitName, dict[str, int | str]] = {}
        for unit, values in self.units.items():
            for name, held in values.items():
                if held.trial is not None:
                    old.setdefault(unit, {})[name] = held.trial.old
                    if held.trial.new is not None:
                        new.setdefault(unit, {})[name] = held.trial.new
        return Unconfirmed(old=old, new=new, until_usec=self.until_usec) if old else None

    def confirmed(self) -> ReservedValues:
        """Return the same with every trial confirmed."""
        return replace(
            self,
            until_usec=0,
            units={
                unit: {name: replace(held, trial=None) for name, held in values.items()}
                for unit, values in self.units.items()
            },
        )


class TrialState(StrEnum):
    """The state of unconfirmed values."""

    ARMED = "armed"
    """A timer will restore the old ones."""
    RETURNED = "returned"
    """The timer has restored them, in whole or in part."""
    STOPPED = "stopped"
    """The new ones remain in force: the timer was stopped."""


class Unconfirmed(NamedTuple):
    """The values that were set with `apply --confirm`, with the previous ones."""

    old: Values
    new: Values
    """Without those that could not be set."""
    until_usec: int
    """When the old ones are restored, by the clock since boot."""

    def at_old(self, observed: Values) -> frozenset[tuple[UnitName, str]]:
        """Return the properties that have their old values instead of new ones."""
        return frozenset(
            (unit, name)
            for unit, values in self.new.items()
            for name, new in values.items()
            # A value that the trial does not change shows nothing.
            if new != (old := self.old[unit][name]) and observed.get(unit, {}).get(name) == old
        )


class PendingTrial(NamedTuple):
    """Unconfirmed values, with their current state."""

    values: Unconfirmed
    state: TrialState
    remaining_sec: int = 0
    """The time until the old ones are restored, if they will be."""
