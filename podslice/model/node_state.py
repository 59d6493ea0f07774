"""The state that an agent publishes for other podslice processes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podslice.errors import Problem
from podslice.model.unit import UnitName


class Condition(StrEnum):
    """A condition of the node, or of one of its tiers: what it is short of.

    Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, NodeConditionType; those of tiers
    are podslice's own.
    """

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"
    BURSTABLE_MEMORY = "BurstableMemoryPressure"
    BESTEFFORT_MEMORY = "BestEffortMemoryPressure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The mark of an evicted pod, in force until its manifest changes or it is readmitted."""

    pod: str
    """`namespace/name`."""
    uid: str
    digest: str
    """The digest of its manifest; a changed manifest may be applied."""
    signal: str
    """The eviction signal: `memory.available`."""
    message: str
    """A sentence with the numbers."""
    at_usec: int
    """The time of the eviction since the Unix epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A pod that is wanted, and does not run as its manifest states."""

    pod: str
    """`namespace/name`."""
    reason: str
    """`OutOfcpu`, `Evicted`, `MemoryPressure`, `NotApplied`, …"""
    message: str
    hint: str = ""
    qos: str = ""
    """The QoS class; empty where the manifest is not known."""
    source: str | None = None
    """Its file in a manifest directory."""
    is_applied: bool = False
    """Whether a pod of this name is applied, from another manifest."""

    @property
    def condition(self) -> Condition | None:
        """Return the condition of the node that holds the pod back."""
        return next((each for each in Condition if each.value == self.reason), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckPod:
    """A stopped pod of which something remains; its record is kept."""

    pod: str
    """`namespace/name`."""
    why: str
    """What remains of it."""
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFailure:
    """Why containers of the agent's pods do not run as their manifests state."""

    where: str = ""
    """The manifest, with the place in it; empty where that is not the reason."""
    message: str
    hint: str = ""
    pod: str | None = None
    """`namespace/name`; None for all pods, or those of the manifest."""
    unit: UnitName | None = None
    """The service that did not start; the failure is over when it is active."""

    def __str__(self) -> str:
        """Return `where: message`."""
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The state of a running agent, valid as long as its process runs."""

    pid: int
    started_ticks: int
    """Identifies the process, together with its pid."""
    conditions: tuple[Condition, ...] = ()
    terminating: tuple[str, ...] = ()
    """The terminating pods, as `namespace/name`."""
    problems: tuple[Problem, ...] = ()
    """The current problems of manifests."""
    failures: tuple[Problem, ...] = ()
    """What keeps the agent from its work."""
    pending: tuple[PendingPod, ...] | None = None
    """The pods that are wanted and do not run; None before the first round."""
    stuck: tuple[StuckPod, ...] = ()
