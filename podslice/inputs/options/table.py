"""The table of options: keys of the configuration file, flags of the command line, their readers.

The command line and the manual pages are generated from it.
"""

from __future__ import annotations

from typing import NamedTuple

from podslice.inputs.options.values import (
    Reader,
    choose,
    read_accounting,
    read_boolean,
    read_capacity,
    read_cgroup,
    read_cpu_options,
    read_cpus,
    read_directories,
    read_directory,
    read_driver,
    read_duration,
    read_enforce,
    read_factor,
    read_grace_periods,
    read_listen,
    read_percents,
    read_period,
    read_pids,
    read_pressure_limit,
    read_reclaims,
    read_reservation,
    read_root,
    read_seconds,
    read_swap_behavior,
    read_sync_period,
    read_thresholds,
    read_tier_thresholds,
    read_tiers,
    read_topology,
    read_validate,
)
from podslice.model.config import (
    Containers,
    CpuManagerPolicy,
    CpusetPartition,
    ExclusiveFor,
    KubernetesVersion,
    MemoryProtection,
    OomPolicy,
    PodsFrom,
    Rules,
    TopologyManagerPolicy,
    TopologyManagerScope,
    WeightMapping,
)
from podslice.model.naming import KUBE_RESERVED_SLICE, SYSTEM_RESERVED_SLICE


class ConfigOption(NamedTuple):
    """One option: a key of the file, a flag of the command line, and a field of `Config`."""

    key: str
    """The name of the kubelet's flag, if it has one of the same meaning."""
    field: str | None
    """The field of `Config`; None for an option that is only checked."""
    read: Reader
    help: str
    metavar: str = ""
    """The placeholder of the value in help texts; empty for a boolean."""
    aliases: tuple[str, ...] = ()
    is_agent_only: bool = False
    """Only the agent uses it, so that no other verb has the flag."""

    @property
    def is_boolean(self) -> bool:
        """Return whether the value is a boolean."""
        return self.read is read_boolean


OPTIONS = (
    ConfigOption(
        key="validate",
        field="validate",
        read=read_validate,
        metavar="strict|warn|ignore",
        help="Reject manifests with unknown fields, warn of the fields, or ignore them.",
    ),
    ConfigOption(
        key="rules",
        field="rules",
        read=choose(Rules),
        metavar="proposal|kubernetes",
        help="Follow the pod-level resources proposals, or the current kubelet.",
    ),
    ConfigOption(
        key="kubernetes-version",
        field="kubernetes_version",
        read=choose(KubernetesVersion),
        metavar="1.36|1.37",
        help="The version of the kubelet that the rules kubernetes follow.",
    ),
    ConfigOption(
        key="capacity",
        field="capacity",
        read=read_capacity,
        metavar="RESOURCE=QUANTITY,…",
        help="Capacity of the node; resources not listed are taken from this host.",
    ),
    ConfigOption(
        key="cpu-topology",
        field="cpu_topology",
        read=read_topology,
        metavar="sockets=NUMBER,…|FILE",
        help="CPUs of another machine to plan for: their numbers, or a JSON file; empty for this host's.",
    ),
    ConfigOption(
        key="memory-hugetlb-accounting",
        field="memory_hugetlb_accounting",
        read=read_accounting,
        metavar="true|false",
        help="Whether the node counts huge pages as memory; empty to detect it on this host.",
    ),
    ConfigOption(
        key="kube-reserved",
        field="kube_reserved",
        read=read_reservation,
        metavar="RESOURCE=QUANTITY,…",
        help="Reserve these resources for container runtimes and podslice.",
    ),
    ConfigOption(
        key="system-reserved",
        field="system_reserved",
        read=read_reservation,
        metavar="RESOURCE=QUANTITY,…",
        help="Reserve these resources for system daemons.",
    ),
    ConfigOption(
        key="kube-reserved-cgroup",
        field="kube_reserved_cgroup",
        read=read_cgroup,
        metavar="PATH",
        help=f"Slice on which kube-reserved is enforced, such as /{KUBE_RESERVED_SLICE}.",
    ),
    ConfigOption(
        key="system-reserved-cgroup",
        field="system_reserved_cgroup",
        read=read_cgroup,
        metavar="PATH",
        help=f"Slice on which system-reserved is enforced, such as /{SYSTEM_RESERVED_SLICE}.",
    ),
    ConfigOption(
        key="enforce-node-allocatable",
        field="enforce_node_allocatable",
        read=read_enforce,
        metavar="NAME,…",
        help="Limits to enforce: pods, kube-reserved, system-reserved, the latter two also with -compressible for CPU only; empty for none.",
    ),
    ConfigOption(
        key="eviction-hard",
        field="eviction_hard",
        read=read_thresholds,
        metavar="SIGNAL<QUANTITY,…",
        help="Hard eviction thresholds, also subtracted from allocatable; empty for none.",
    ),
    ConfigOption(
        key="eviction-soft",
        field="eviction_soft",
        read=read_thresholds,
        metavar="SIGNAL<QUANTITY,…",
        help="Soft eviction thresholds, which must be met for a grace period before pods are evicted.",
    ),
    ConfigOption(
        key="eviction-soft-grace-period",
        field="eviction_soft_grace_period_usec",
        read=read_grace_periods,
        metavar="SIGNAL=DURATION,…",
        help="Grace period of each soft eviction threshold.",
    ),
    ConfigOption(
        key="eviction-minimum-reclaim",
        field="eviction_minimum_reclaim",
        read=read_reclaims,
        metavar="SIGNAL=QUANTITY,…",
        help="Amount above a threshold that must be available before a shortage ends.",
    ),
    ConfigOption(
        key="eviction-max-pod-grace-period",
        field="eviction_max_pod_grace_period_sec",
        read=read_seconds,
        metavar="SECONDS",
        help="Maximum grace period of pods that are evicted because of a soft threshold.",
    ),
    ConfigOption(
        key="eviction-pressure-transition-period",
        field="eviction_pressure_transition_period_usec",
        read=read_duration,
        metavar="DURATION",
        help="Time for which a pressure condition persists after it was last observed.",
    ),
    ConfigOption(
        key="eviction-tier",
        field="eviction_tier",
        read=read_tier_thresholds,
        metavar="TIER=memory.available<QUANTITY,…",
        help="Hard eviction thresholds within the limits of tiers that qos-reserved sets.",
    ),
    ConfigOption(
        key="ignore-eviction-threshold",
        field="ignore_eviction_threshold",
        read=read_boolean,
        help="Do not subtract hard eviction thresholds from allocatable.",
        aliases=("experimental-node-allocatable-ignore-eviction-threshold",),
    ),
    ConfigOption(
        key="qos-reserved",
        field="qos_reserved",
        read=read_percents,
        metavar="memory=PERCENT%",
        help="Reserve this share of higher QoS classes' requests, withholding it from lower classes.",
        aliases=("experimental-qos-reserved",),
    ),
    ConfigOption(
        key="cgroups-per-qos",
        field="cgroups_per_qos",
        read=read_boolean,
        help="Create a slice per QoS class and per pod.",
    ),
    ConfigOption(
        key="cgroup-root",
        field="cgroup_root",
        read=read_root,
        metavar="PATH",
        help="Create all slices below this one.",
    ),
    ConfigOption(
        key="cgroup-driver",
        field=None,
        read=read_driver,
        metavar="systemd",
        help="Control group driver; only systemd is supported.",
    ),
    ConfigOption(
        key="cpu-cfs-quota",
        field="cpu_cfs_quota",
        read=read_boolean,
        help="Enforce CPU limits with quotas.",
    ),
    ConfigOption(
        key="cpu-cfs-quota-period",
        field="cpu_cfs_quota_period_usec",
        read=read_period,
        metavar="DURATION",
        help="Period of CPU quotas, 1ms to 1s.",
    ),
    ConfigOption(
        key="cpu-manager-policy",
        field="cpu_manager_policy",
        read=choose(CpuManagerPolicy),
        metavar="none|static",
        help="Whether containers and pods that request whole CPUs have them for themselves.",
    ),
    ConfigOption(
        key="cpu-manager-policy-options",
        field="cpu_manager_policy_options",
        read=read_cpu_options,
        metavar="OPTION=true,…",
        help="Options of the policy static: full-pcpus-only, strict-cpu-reservation, distribute-cpus-across-numa, prefer-align-cpus-by-uncorecache.",
    ),
    ConfigOption(
        key="topology-manager-policy",
        field="topology_manager_policy",
        read=choose(TopologyManagerPolicy),
        metavar="POLICY",
        help="The NUMA nodes on which pods have CPUs for themselves: none (any), best-effort (as few as possible), restricted (as few as on an idle machine) or single-numa-node.",
    ),
    ConfigOption(
        key="topology-manager-scope",
        field="topology_manager_scope",
        read=choose(TopologyManagerScope),
        metavar="container|pod",
        help="Whether each container or the whole pod is placed on these NUMA nodes.",
    ),
    ConfigOption(
        key="reserved-cpus",
        field="reserved_cpus",
        read=read_cpus,
        metavar="CPU,…",
        help="CPUs reserved for system daemons, such as 0-1; empty for none.",
    ),
    ConfigOption(
        key="exclusive-for",
        field="exclusive_for",
        read=choose(ExclusiveFor),
        metavar="pods|host",
        help="What does not run on the CPUs that pods have for themselves: other pods, or also system.slice and user.slice.",
    ),
    ConfigOption(
        key="cpuset-partition",
        field="cpuset_partition",
        read=choose(CpusetPartition),
        metavar="member|isolated",
        help="Whether the CPUs that pods have for themselves are isolated in the kernel's scheduler; it requires systemd 261.",
    ),
    ConfigOption(
        key="cpu-weight-mapping",
        field="cpu_weight_mapping",
        read=choose(WeightMapping),
        metavar="systemd|kubelet|kubelet-linear|oci",
        help="Conversion of CPU requests to CPUWeight.",
    ),
    ConfigOption(
        key="memory-protection",
        field="memory_protection",
        read=choose(MemoryProtection),
        metavar="low|min|tiered|none",
        help="Property that protects memory requests: MemoryLow, MemoryMin, by QoS class, or none.",
    ),
    ConfigOption(
        key="memory-throttling-factor",
        field="memory_throttling_factor_milli",
        read=read_factor,
        metavar="FACTOR",
        help="Throttle containers from this part of their memory above the request, such as 0.9.",
    ),
    ConfigOption(
        key="memory-swap-behavior",
        field="memory_swap_behavior",
        read=read_swap_behavior,
        metavar="unlimited|NoSwap|LimitedSwap",
        help="Swap of containers; empty for unlimited, or NoSwap by the rules kubernetes.",
    ),
    ConfigOption(
        key="pod-max-pids",
        field="pod_max_pids",
        read=read_pids,
        metavar="NUMBER",
        help="Maximum number of process ids of each pod; -1 for no limit.",
    ),
    ConfigOption(
        key="admission",
        field="admission",
        read=read_boolean,
        help="Reject pods that do not fit.",
    ),
    ConfigOption(
        key="oomd-tiers",
        field="oomd_tiers",
        read=read_tiers,
        metavar="burstable,besteffort",
        help="Tiers in which systemd-oomd may kill processes; empty for none.",
    ),
    ConfigOption(
        key="oomd-memory-pressure-limit",
        field="oomd_memory_pressure_limit_percent",
        read=read_pressure_limit,
        metavar="PERCENT%",
        help="Memory pressure from which systemd-oomd kills in these tiers; empty for its default.",
    ),
    ConfigOption(
        key="oom-policy",
        field="oom_policy",
        read=choose(OomPolicy),
        metavar="process|container|pod",
        help="What to kill when the kernel kills a process of a pod for lack of memory.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="pods-from",
        field="pods_from",
        read=choose(PodsFrom),
        metavar="manifests|kubelet",
        help="Where the agent reads its pods; kubelet: apply pod levels on the slices of a kubelet.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="allow-kubelet-slices",
        field="allow_kubelet_slices",
        read=read_boolean,
        help="Allow pods-from=kubelet to change slices of the kubelet's pods.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="manifests",
        field="manifests",
        read=read_directories,
        metavar="DIR,…",
        help="Directories whose manifests the agent applies; empty for none.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="containers",
        field="containers",
        read=choose(Containers),
        metavar="none|quadlet",
        help="What runs the containers of these pods; quadlet: podman, kept by the agent.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="listen",
        field="listen",
        read=read_listen,
        metavar="HOST:PORT",
        help="Also serve metrics at this loopback address.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="collect-orphans",
        field="collect_orphans",
        read=read_boolean,
        help="Remove pod slices without a record.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="sync-period",
        field="sync_period_usec",
        read=read_sync_period,
        metavar="DURATION",
        help="Interval of the periodic synchronization, 100ms to 1h.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="usage-history",
        field="usage_history",
        read=read_directory,
        metavar="DIR",
        help="Directory in which the agent records the usage of pods; empty to record nothing.",
        is_agent_only=True,
    ),
)
"""All options. To add one, add an entry here and a field to `Config`."""
