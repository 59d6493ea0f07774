"""What podslice processes publish for each other: the state of an agent, the change of a verb."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

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


SIZE_LIMIT = "emptydirfs.limit"
"""The signal of a volume that exceeds its `sizeLimit`, which a service of the pod compares.

Source: Kubernetes, pkg/kubelet/eviction/eviction_manager.go, signalEmptyDirFsLimit.
"""


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


class Account(NamedTuple):
    """A user of the host."""

    uid: int | None
    """None where it is not known."""
    name: str = ""
    """Empty where it is not known."""

    def __str__(self) -> str:
        """Return the name, or else the uid."""
        return self.name or f"uid {self.uid}"


class Caller(NamedTuple):
    """The user who has called a verb, from two sources."""

    login: Account | None = None
    """The account of the login, which the kernel keeps through su and sudo; None without a login,
    as in services. Source: proc(5), /proc/PID/loginuid."""
    sudo: Account | None = None
    """The account that the environment names, which any caller can set. Source: sudo(8)."""

    @property
    def fields(self) -> dict[str, str]:
        """Return the known values as fields of an event."""
        found = {}
        for source, account in (("LOGIN", self.login), ("SUDO", self.sudo)):
            if account is not None and account.uid is not None:
                found[f"{source}_UID"] = str(account.uid)
            if account is not None and account.name:
                found[f"{source}_USER"] = account.name
        return found

    def __str__(self) -> str:
        """Return the account of the login; that of the environment where it differs."""
        if self.login is None:
            return "" if self.sudo is None else f"SUDO_USER={self.sudo}"
        if self.sudo is None or str(self.sudo) == str(self.login):
            return str(self.login)
        return f"{self.login} (SUDO_USER={self.sudo})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualChange:
    """What a verb is about to change, recorded before it acts.

    By it the agent distinguishes the change from an external one.
    """

    verb: str
    pods: tuple[str, ...]
    """The pods, as `namespace/name`."""
    units: tuple[UnitName, ...]
    """The units of the plan."""
    pid: int
    started_ticks: int
    """Identifies the process, together with its pid."""
    is_over: bool = False
    """Whether the verb has done all that it will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The runs of a Job or CronJob."""

    pod: str
    state: str
    """`running`, `completed`, `failed` with the reason, `waiting` or `suspended`."""
    started_usec: int | None
    """The begin of the last run; None where systemd no longer knows it."""
    ended_usec: int | None
    """The end of the last run that has completed or failed."""
    next_usec: int | None
    """The next run of a CronJob."""


class Kubelet(NamedTuple):
    """A kubelet process."""

    pid: int
    name: str
    """The program: `kubelet`, `k3s-server`, …"""


class Neighbour(NamedTuple):
    """What a kubelet has beside podslice; None where the kernel has no such control group."""

    memory_max_bytes: int | None = None
    """The limit of the kubelet's root."""
    cpu_weight: int | None = None
    """The weight of the kubelet's root."""
    own_weight: int | None = None
    """The weight of the slice that has podslice's root and is beside the kubelet's."""


class Foreign(NamedTuple):
    """A root slice that belongs to a kubelet; podslice changes nothing below it."""

    reason: str
    """The evidence, in one sentence."""
    way_out: str

    def __str__(self) -> str:
        """Return the evidence, its consequence and the way out."""
        return f"{self.reason}; podslice changes nothing; {self.way_out}"
