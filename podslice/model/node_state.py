"""The state that an agent publishes for other podslice processes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podslice.errors import Problem


class Condition(StrEnum):
    """A condition of the node: what it is short of.

    Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, NodeConditionType.
    """

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"


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
class AgentState:
    """The state of a running agent, valid as long as its process runs."""

    pid: int
    started_ticks: int
    """Identifies the process, together with its pid."""
    conditions: tuple[Condition, ...] = ()
    terminating: tuple[str, ...] = ()
    """The terminating pods, as `namespace/name`."""
    problems: tuple[Problem, ...] = ()
    """The current problems of manifests and of the agent."""
