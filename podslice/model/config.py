"""The node's configuration as values; keys and flags are read by `inputs.options`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from podslice.errors import Problem
from podslice.model.node import CpuTopology
from podslice.model.pod import Qos
from podslice.model.resources import Amounts, ExactAmounts


class KubernetesVersion(StrEnum):
    """The version that the rules `kubernetes` follow."""

    V1_36 = "1.36"
    V1_37 = "1.37"


class VersionRules(NamedTuple):
    """What differs between versions: the defaults of their feature gates and options."""

    counts_empty_level: bool
    """Whether a pod level that is stated and empty makes a pod BestEffort.

    Source: Kubernetes, pull request 137150, PodLevelResourcesFixKubeletQOSClass.
    """
    defaults_level_limits: bool
    """Whether a pod level has the sum of the containers' limits, if all of them have one.

    Source: Kubernetes, pull request 140514, PodLevelResourcesFixDefaulting; KEP-2837.
    """
    throttling_factor_milli: int | None
    """The factor where MemoryQoS is on, and none is stated.

    Source: KEP-2570, "Alpha v1.36" and "Beta v1.37".
    """
    has_memory_qos: bool
    """Whether MemoryQoS is on by default, which has an effect only with a factor or a policy.

    Source: KEP-2570, "Beta v1.37".
    """


VERSION_RULES: Mapping[KubernetesVersion, VersionRules] = {
    KubernetesVersion.V1_36: VersionRules(
        counts_empty_level=True,
        defaults_level_limits=False,
        throttling_factor_milli=900,
        has_memory_qos=False,
    ),
    KubernetesVersion.V1_37: VersionRules(
        counts_empty_level=False,
        defaults_level_limits=True,
        throttling_factor_milli=None,
        has_memory_qos=True,
    ),
}


def version_of(version: tuple[int, int]) -> KubernetesVersion:
    """Return the rules that a version of the kubelet follows; those of 1.36 for earlier ones."""
    return KubernetesVersion.V1_37 if version >= (1, 37) else KubernetesVersion.V1_36


class Rules(StrEnum):
    """The rule set that applies where the design proposals and the present kubelet differ."""

    PROPOSAL = "proposal"
    KUBERNETES = "kubernetes"


class WeightMapping(StrEnum):
    """The mapping from CPU shares to systemd's CPUWeight."""

    SYSTEMD = "systemd"
    KUBELET = "kubelet"
    """As on a current node: slices linear, by the kubelet; containers by the runtime's curve."""
    KUBELET_LINEAR = "kubelet-linear"
    """As on a node with runc 1.1 or earlier: slices and containers linear."""
    OCI = "oci"


class MemoryProtection(StrEnum):
    """The property that holds a memory request."""

    LOW = "low"
    MIN = "min"
    TIERED = "tiered"
    """`min` for Guaranteed pods, and `low` for the others."""
    NONE = "none"


class SwapBehavior(StrEnum):
    """The swap that containers may use."""

    UNLIMITED = "unlimited"
    NO_SWAP = "NoSwap"
    LIMITED_SWAP = "LimitedSwap"
    """A share of the node's swap for each container of a Burstable pod."""


class CpuManagerPolicy(StrEnum):
    """How CPUs are given to pods."""

    NONE = "none"
    """All pods share all CPUs."""
    STATIC = "static"
    """Containers and pods that request whole CPUs have exclusive CPUs."""


class CpuManagerOption(StrEnum):
    """Options of the static policy."""

    FULL_PCPUS = "full-pcpus-only"
    STRICT = "strict-cpu-reservation"
    DISTRIBUTE_NUMA = "distribute-cpus-across-numa"
    ALIGN_UNCORE = "prefer-align-cpus-by-uncorecache"


class TopologyManagerPolicy(StrEnum):
    """The NUMA nodes of the exclusive CPUs of pods and containers."""

    NONE = "none"
    """Any."""
    BEST_EFFORT = "best-effort"
    """As few as possible."""
    RESTRICTED = "restricted"
    """As few as on an idle machine."""
    SINGLE_NUMA_NODE = "single-numa-node"
    """One."""


class TopologyManagerScope(StrEnum):
    """What is placed as a whole."""

    CONTAINER = "container"
    POD = "pod"


class ExclusiveFor(StrEnum):
    """What does not run on the CPUs that a pod has for itself."""

    PODS = "pods"
    """Other pods."""
    HOST = "host"
    """Other pods, `system.slice` and `user.slice`."""


class CpusetPartition(StrEnum):
    """Whether the kernel separates the CPUs of pods from those of the host."""

    MEMBER = "member"
    """No: they are only limits."""
    ISOLATED = "isolated"
    """Exclusive CPUs are isolated, without balancing of load."""


class OomPolicy(StrEnum):
    """What is stopped together with a process that the OOM killer has killed."""

    PROCESS = "process"
    """Nothing."""
    CONTAINER = "container"
    """The whole container."""
    POD = "pod"
    """The whole pod, which the agent stops."""


class Containers(StrEnum):
    """What runs the containers of pods in manifest directories."""

    NONE = "none"
    """Whatever users start in the pods."""
    QUADLET = "quadlet"
    """podman, as quadlets that the agent keeps."""


class PodsFrom(StrEnum):
    """Where the agent reads its pods."""

    MANIFESTS = "manifests"
    KUBELET = "kubelet"
    """A kubelet of this host, whose slices get the pod levels that it does not apply."""


class Validate(StrEnum):
    """What an unknown field of a manifest is."""

    STRICT = "strict"
    """An error, which rejects the pod."""
    WARN = "warn"
    """A warning; the field is ignored."""
    IGNORE = "ignore"
    """Nothing; the field is ignored."""


class Enforce(StrEnum):
    """The values of `--enforce-node-allocatable`."""

    PODS = "pods"
    KUBE_RESERVED = "kube-reserved"
    SYSTEM_RESERVED = "system-reserved"
    KUBE_RESERVED_COMPRESSIBLE = "kube-reserved-compressible"
    SYSTEM_RESERVED_COMPRESSIBLE = "system-reserved-compressible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One eviction threshold: an amount (thousandths) or a share of the capacity (thousandths).

    Exactly one of the two is stated.
    """

    amount: int | None = None
    percent_milli: int | None = None
    """10% is 10,000."""


# Source: Kubernetes, pkg/kubelet/apis/config/v1beta1/defaults_linux.go, DefaultEvictionHard.
DEFAULT_EVICTION_HARD: Mapping[str, Threshold] = {
    "memory.available": Threshold(amount=100 * 2**20 * 1000),
    "nodefs.available": Threshold(percent_milli=10_000),
    "nodefs.inodesFree": Threshold(percent_milli=5_000),
    "imagefs.available": Threshold(percent_milli=15_000),
    "imagefs.inodesFree": Threshold(percent_milli=5_000),
}


TIER_SIGNALS: Mapping[Qos, str] = {
    Qos.BURSTABLE: "burstable.memory.available",
    Qos.BESTEFFORT: "besteffort.memory.available",
}
"""The eviction signals of the tiers: the memory that is left of a tier's MemoryMax."""

DEFAULT_MANIFESTS = ("/etc/podslice/manifests",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The operator's options; every field has the key of the same name with dashes.

    Defaults are the kubelet's.
    """

    rules: Rules = Rules.PROPOSAL
    kubernetes_version: KubernetesVersion = KubernetesVersion.V1_36
    """The version that the rules `kubernetes` follow."""
    cpu_weight_mapping: WeightMapping = WeightMapping.SYSTEMD
    memory_protection: MemoryProtection = MemoryProtection.LOW
    memory_throttling_factor_milli: int | None = None
    """The share of the memory above its request from which a container is throttled; None for none."""
    memory_swap_behavior: SwapBehavior | None = None
    """None: unlimited by the rules `proposal`, NoSwap by `kubernetes`."""
    validate: Validate = Validate.STRICT
    """What an unknown field of a manifest is."""
    admission: bool = True
    cgroup_root: str = "/"
    cgroups_per_qos: bool = True
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_usec: int = 100_000
    cpu_manager_policy: CpuManagerPolicy = CpuManagerPolicy.NONE
    cpu_manager_policy_options: frozenset[CpuManagerOption] = frozenset()
    topology_manager_policy: TopologyManagerPolicy = TopologyManagerPolicy.NONE
    topology_manager_scope: TopologyManagerScope = TopologyManagerScope.CONTAINER
    reserved_cpus: frozenset[int] = frozenset()
    """The CPUs of system daemons; without any, their number follows from the reservations."""
    exclusive_for: ExclusiveFor = ExclusiveFor.PODS
    cpuset_partition: CpusetPartition = CpusetPartition.MEMBER
    pod_max_pids: int | None = None
    """The most process ids of a pod; None without a limit."""
    capacity: Amounts = field(default_factory=dict)
    """Stated instead of the host's, per resource."""
    cpu_topology: CpuTopology | None = None
    """The CPUs of another machine; the capacity has their number."""
    memory_hugetlb_accounting: bool | None = None
    """Stated instead of the host's mount option of cgroup v2; see `Node`."""
    kube_reserved: ExactAmounts = field(default_factory=dict)
    system_reserved: ExactAmounts = field(default_factory=dict)
    kube_reserved_cgroup: str = ""
    system_reserved_cgroup: str = ""
    enforce_node_allocatable: frozenset[Enforce] = frozenset({Enforce.PODS})
    qos_reserved: Mapping[str, int] = field(default_factory=dict)
    """Resource → percent, 0 to 100; only memory."""
    eviction_hard: Mapping[str, Threshold] = field(default_factory=lambda: DEFAULT_EVICTION_HARD)
    eviction_soft: Mapping[str, Threshold] = field(default_factory=dict)
    eviction_soft_grace_period_usec: Mapping[str, int] = field(default_factory=dict)
    """How long a soft threshold must be met; required for each of them."""
    eviction_minimum_reclaim: Mapping[str, Threshold] = field(default_factory=dict)
    """What must be free beyond a threshold before the pressure ends."""
    eviction_max_pod_grace_period_sec: int = 0
    """The maximum grace period of a pod that a soft threshold evicts."""
    eviction_pressure_transition_period_usec: int = 300_000_000
    """How long a condition lasts after it was last observed: 5 minutes."""
    ignore_eviction_threshold: bool = False
    eviction_tier: Mapping[Qos, Threshold] = field(default_factory=dict)
    """The hard thresholds of memory within tiers; a share is one of the tier's MemoryMax."""
    oomd_tiers: frozenset[Qos] = frozenset()
    """The tiers in which systemd-oomd may kill; never Guaranteed, which has no tier."""
    oomd_memory_pressure_limit_percent: int | None = None
    """The pressure from which it kills in them; None: the default of oomd.conf(5)."""
    oom_policy: OomPolicy = OomPolicy.CONTAINER
    pods_from: PodsFrom = PodsFrom.MANIFESTS
    allow_kubelet_slices: bool = False
    """Whether the agent may change slices of a kubelet."""
    manifests: tuple[str, ...] = DEFAULT_MANIFESTS
    """The directories whose pods the agent applies."""
    containers: Containers = Containers.NONE
    listen: str = ""
    """The address at which the agent serves metrics, beside its socket: `127.0.0.1:9469`, `[::1]:9469`."""
    collect_orphans: bool = False
    """Whether the agent removes slices below the root that belong to no record."""
    sync_period_usec: int = 60_000_000
    """How often the agent reconciles without an event."""
    usage_history: str = "/var/lib/podslice/usage"
    """The directory of the histories that the agent records; empty for none."""


class Source(StrEnum):
    """The configuration that a command uses."""

    FILES = "files"
    """The configuration files, with the flags of the command line."""
    LAST_VALID = "last-valid"
    """The one of the last command that changed units, because the files are invalid."""
    DEFAULT = "default"
    """The built-in one, because the files are invalid and no valid one is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a configuration."""

    source: Source = Source.FILES
    options: Mapping[str, object] | None = None
    """The options in the files, by key; None if the files are invalid or not to be recorded."""
    problems: tuple[Problem, ...] = ()
    """All problems of the files, if another configuration replaces them."""
