"""A node with a kubelet: its pods, its configuration, what an audit of it finds, and its pod levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from podslice.model.config import Config
from podslice.model.node import Node
from podslice.model.pod import Pod, Qos
from podslice.model.properties import CPU_QUOTA, CPU_WEIGHT, MEMORY_LOW, MEMORY_MAX
from podslice.model.unit import PropertyValue, UnitName, Value

KUBELET_VERSION = (1, 36)
"""The kubelet whose rules podslice follows, and which an audit assumes where no other is stated."""

CONTAINERD = "cri-containerd-"
"""The beginning of the names of containerd's scopes, whose defaults are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletPod:
    """A pod of a kubelet, with the part of its status that an audit uses."""

    pod: Pod
    """Its uid is the one in the name of its slice."""
    has_own_level: bool = False
    """Whether an annotation of podslice's states its pod level, which the kubelet does not know."""
    has_runtime_class: bool = False
    """Whether it states a runtime, whose sandbox may be a virtual machine with processes of the host."""
    qos: Qos | None = None
    """The class that its status states, in which the kubelet keeps it."""
    is_running: bool = False
    """Whether its slice must exist: a pending pod may not have one yet, a deleted one no longer."""
    is_terminal: bool = False
    """Whether it has succeeded or failed, so that it has no slice."""
    is_resizing: bool = False
    """Whether its resources are being changed in place."""
    started_sec: int | None = None
    """When the kubelet began with it, in seconds since the epoch."""
    scopes: Mapping[str, UnitName] = field(default_factory=dict)
    """The scopes of its running containers, by name; empty if the status is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletSettings:
    """The configuration of a kubelet, as far as the values in control groups depend on it."""

    config: Config
    version: tuple[int, int] = KUBELET_VERSION
    """Major and minor."""
    pod_pids_limit: int | None = None
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    """The gates that the configuration states."""
    configures_memory_qos: bool = False
    """Whether a factor of throttling, or the reservation of memory, is configured."""
    has_static_cpus: bool = False
    """Whether containers may get exclusive CPUs (the policy `static` of the CPU manager)."""
    has_static_memory: bool = False
    """Whether the memory manager may assign NUMA nodes to containers."""
    has_cgroupfs: bool = False
    """Whether the driver of control groups is `cgroupfs`, as the configuration states it."""
    ignored_thresholds: tuple[str, ...] = ()
    """The signals whose hard threshold is 0% or 100%, which the kubelet ignores."""
    changed_sec: int | None = None
    """When the configuration was changed last, in seconds since the epoch."""


class KubeletNode(NamedTuple):
    """A node with a kubelet: its pods, its configuration, and the host."""

    pods: tuple[KubeletPod, ...]
    settings: KubeletSettings
    node: Node


class FindingKind(StrEnum):
    """A kind of finding. The kinds below `KNOWN` are known behaviour of a kubelet."""

    UNIT_MISSING = "unit-missing"
    UNIT_ORPHANED = "unit-orphaned"
    LIMIT_MISSING = "limit-missing"
    """A limit that neither systemd nor the kernel has."""
    VALUE_CHANGED = "value-changed"
    FILE_CHANGED = "file-changed"
    """systemd has the expected value, the kernel another one."""
    FILE_ONLY = "file-only"
    """The kernel has the expected value, systemd another one."""
    UNIT_STRAY = "unit-stray"
    """A unit or a control group below the root that is not the kubelet's."""
    PROCESS_STRAY = "process-stray"
    """A process of the host in a container."""
    CONTAINER_OUTSIDE = "container-outside"
    CPUS_MISSING = "cpus-missing"
    """`kubepods.slice` may not use all CPUs of the node."""
    REQUESTS_EXCEED = "requests-exceed-allocatable"
    NOT_ENFORCED = "reservation-not-enforced"
    CGROUP_DRIVER = "cgroup-driver"
    """The kubelet is configured not to use systemd."""
    NO_THRESHOLD = "eviction-threshold-ignored"
    POD_LEVEL_IGNORED = "pod-level-ignored"
    """The kubelet does not know `spec.resources`."""
    POD_LEVEL_REJECTED = "pod-level-rejected"
    """The kubelet knows `spec.resources`, and rejects pods with it."""
    SIDECAR = "sidecar-without-limit"
    STATUS_CLASS = "status-class"
    """A pod whose status has another class than its resources give."""
    ROOT_CPUS = "root-cpus"
    OLDER_CONFIGURATION = "older-configuration"
    RUNTIME_WEIGHT = "runtime-weight"
    RESIZING = "resize-pending"
    POD_LEVEL_APPLIED = "pod-level-applied"
    """A value of an agent of podslice, in place of the kubelet's."""
    POD_LEVEL_BY_KUBELET = "pod-level-by-kubelet"
    """A value of the pod level that podslice has not set."""
    MEMORY_QOS = "memory-qos"
    """Values of the feature MemoryQoS, which podslice does not compute."""

    @property
    def is_known(self) -> bool:
        """Whether it is known behaviour of a kubelet, and not a problem."""
        return self in KNOWN


KNOWN = frozenset(
    {
        FindingKind.SIDECAR,
        FindingKind.STATUS_CLASS,
        FindingKind.ROOT_CPUS,
        FindingKind.OLDER_CONFIGURATION,
        FindingKind.RUNTIME_WEIGHT,
        FindingKind.RESIZING,
        FindingKind.POD_LEVEL_APPLIED,
        FindingKind.POD_LEVEL_BY_KUBELET,
        FindingKind.MEMORY_QOS,
    }
)
"""The kinds that are known behaviour of a kubelet, or of podslice's agent."""


class AuditFinding(NamedTuple):
    """One thing that differs from what the kubelet's rules give, or is known to surprise."""

    kind: FindingKind
    object: str
    """The unit, or the pod as `namespace/name`."""
    message: str
    hint: str = ""
    pod: str | None = None
    """`namespace/name`; None where it concerns the node."""
    property: str | None = None
    """systemd's property, or the file of the control group; None for the unit itself."""


class ExpectedValue(NamedTuple):
    """The value that a property must have, or a file of the control group."""

    name: str
    """systemd's property, or a file that systemd has no property for: `hugetlb.2MB.max`."""
    value: Value | None
    """None: unset."""
    why: str
    other: Value | None = None
    """A second value that a container runtime may set as well."""
    also: Value | None = None
    """A second value that is right: in systemd of a property, in the kernel of a file."""
    pod_level: Value | None = None
    """The value that an agent of podslice sets, where the kubelet does not apply the pod level."""
    older: frozenset[Value] | None = frozenset()
    """The values that pods may keep from before a change of the configuration; None: any."""
    has_source: bool = True
    """Whether the kubelet or the runtime sets it, so that it returns with its unit."""
    is_periodic: bool = False
    """Whether the kubelet sets it again once a minute."""


class ExpectedUnit(NamedTuple):
    """A slice or scope with the values that the kubelet and the runtime set."""

    name: UnitName
    control_group: str
    pod: KubeletPod | None = None
    container: str | None = None
    is_required: bool = True
    """Whether it must exist."""
    exclusive_cpus: int = 0
    """The number of exclusive CPUs of a container; the kubelet chooses the CPUs."""
    values: tuple[ExpectedValue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedNode:
    """All that is expected of a node, and the findings that follow from its pods alone."""

    root: UnitName
    units: tuple[ExpectedUnit, ...] = ()
    """Parents before children."""
    sandbox: tuple[ExpectedValue, ...] = ()
    """The values of the scope of each pod's sandbox, whose name follows from no manifest."""
    terminated: Mapping[UnitName, str] = field(default_factory=dict)
    """The slices that pods had before they ended, or would have in another class → the reason."""
    findings: tuple[AuditFinding, ...] = ()
    cpus: int = 0
    """The number of CPUs of the node."""


class AuditedValue(NamedTuple):
    """One expected value with the values that systemd and the kernel have."""

    expected: ExpectedValue
    systemd: Value | None = None
    """None: systemd does not know it."""
    kernel: str | None = None
    """In the kernel's format; None where it cannot be read."""
    kind: FindingKind | None = None
    """The kind of its finding, if it has one."""


class AuditedUnit(NamedTuple):
    """One expected unit and its present values."""

    expected: ExpectedUnit
    exists: bool
    values: tuple[AuditedValue, ...] = ()


class NodeAudit(NamedTuple):
    """The result of an audit."""

    units: tuple[AuditedUnit, ...]
    findings: tuple[AuditFinding, ...]
    """Problems first."""

    @property
    def problems(self) -> tuple[AuditFinding, ...]:
        """Return the findings that are not known behaviour of a kubelet."""
        return tuple(each for each in self.findings if not each.kind.is_known)


LEVEL_PROPERTIES = (CPU_QUOTA, CPU_WEIGHT, MEMORY_LOW, MEMORY_MAX)
"""The properties that podslice sets on a slice of a kubelet; it sets no others."""

LevelValues = Mapping[UnitName, Mapping[str, int | str]]
"""Slice → property → value."""


class LeftReason(StrEnum):
    """Why a pod with a pod level, or one of its properties, is not changed."""

    KUBELET_APPLIES = "kubelet-applies"
    """The kubelet applies `spec.resources` itself."""
    INVALID = "invalid"
    """The pod has an error."""
    NO_SLICE = "no-slice"
    """The kubelet has not created the slice yet, or has removed it."""
    NOT_CREATED_BY_KUBELET = "not-created-by-kubelet"
    RESIZING = "resizing"
    """The kubelet changes the pod's resources in place."""
    OTHER_VALUE = "other-value"
    """The property has a value that follows neither from the containers nor from the pod level."""
    EXCLUSIVE_CPUS = "exclusive-cpus"
    """Containers have exclusive CPUs, which no quota may limit."""
    MEMORY_QOS = "memory-qos"
    """The kubelet protects memory itself."""
    CONTESTED = "contested"
    """The values were replaced again and again."""
    FAILED = "failed"
    """systemd has refused the values."""


class LeftAlone(NamedTuple):
    """A pod with a pod level, or one of its properties, that is not changed."""

    pod: str
    """`namespace/name`."""
    unit: UnitName
    reason: LeftReason
    message: str
    property: str | None = None
    """None for the whole pod."""


class LevelChange(NamedTuple):
    """Properties to set on the slice of a pod."""

    pod: str
    """`namespace/name`."""
    unit: UnitName
    properties: tuple[PropertyValue, ...]

    @property
    def values(self) -> dict[str, int | str]:
        """Return the values by property."""
        return {each.name: each.value for each in self.properties}


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPlan:
    """What to set on the slices of a kubelet."""

    changes: tuple[LevelChange, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    own: LevelValues = field(default_factory=dict)
    """The values of podslice once the changes are made."""
    pods: Mapping[UnitName, str] = field(default_factory=dict)
    """The pods of these slices, as `namespace/name`, of those that the kubelet has listed."""
