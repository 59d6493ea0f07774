"""What an agent knows of its node, and leaves for others to read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from podslice.errors import Problem


class Condition(StrEnum):
    """What a node may be short of.

    Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, NodeConditionType.
    """

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that had to go, and stays away until its manifest changes or it is readmitted."""

    pod: str
    """`namespace/name`."""
    uid: str
    digest: str
    """Of the manifest that it was evicted with; another one may be applied."""
    signal: str
    """The eviction signal: `memory.available`."""
    message: str
    """The numbers, in a sentence."""
    at_usec: int
    """When, since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """What a running agent lets others know. It holds only while that process lives."""

    pid: int
    started_ticks: int
    """With the id it names one process for good."""
    conditions: tuple[Condition, ...] = ()
    terminating: tuple[str, ...] = ()
    """The pods, `namespace/name`, that were asked to end and are still there."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with manifests, or keeps the agent from its work, until it is mended."""
