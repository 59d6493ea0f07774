"""The table of options: keys of the configuration file, flags of the command line, their readers.

The command line and the manual pages are generated from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from podslice.inputs.options import values
from podslice.inputs.options.values import choose, optional
from podslice.model import config
from podslice.model.naming import KUBE_RESERVED_SLICE, SYSTEM_RESERVED_SLICE


class ConfigOption(NamedTuple):
    """One option: a key of the file, a flag of the command line, and a field of `Config`."""

    key: str
    """The name of the kubelet's flag, if it has one of the same meaning."""
    metavar: str
    """The placeholder of the value in help texts; empty for a boolean."""
    read: values.Reader
    brief: str
    """What the value is, in at most 31 characters: the help of the command line."""
    help: str
    """The sentence of the manual."""
    own_field: str | None = ""
    """The field of `Config` unless it is named as the key; None for an option that is only checked."""
    aliases: tuple[str, ...] = ()
    is_agent_only: bool = False
    """Only the agent uses it, so that no other verb has the flag."""

    @property
    def field(self) -> str | None:
        """Return the field of `Config`; None for an option that is only checked."""
        return self.key.replace("-", "_") if self.own_field == "" else self.own_field

    @property
    def is_boolean(self) -> bool:
        """Return whether the value is a boolean."""
        return self.read is values.read_boolean


def _choice(
    key: str, kinds: type[StrEnum], brief: str, text: str, *, is_agent_only: bool = False
) -> ConfigOption:
    """Return an option whose values are the names of an enumeration."""
    metavar = "|".join(kinds)
    return ConfigOption(key, metavar, choose(kinds), brief, text, is_agent_only=is_agent_only)


OPTIONS = (
    ConfigOption("validate", "strict|warn|ignore", values.read_validate,
                 "How to treat unknown fields",
                 "Reject manifests with unknown fields, warn of the fields, or ignore them."),
    _choice("rules", config.Rules,
            "proposal, or kubernetes",
            "Follow the pod-level resources proposals, or the current kubelet."),
    _choice("kubernetes-version", config.KubernetesVersion,
            "Kubelet version of the rules",
            "The version of the kubelet that the rules kubernetes follow."),
    ConfigOption("capacity", "RESOURCE=QUANTITY,…", values.read_capacity,
                 "Capacity of the node",
                 "Capacity of the node; resources not listed are taken from this host."),
    ConfigOption("cpu-topology", "sockets=NUMBER,…|FILE", values.read_topology,
                 "CPUs of another machine",
                 "CPUs of another machine to plan for: their numbers, or a JSON file; empty for"
                 " this host's."),
    ConfigOption("memory-hugetlb-accounting", "true|false", optional(values.read_boolean),
                 "Huge pages count as memory",
                 "Whether the node counts huge pages as memory; empty to detect it on this host."),
    ConfigOption("kube-reserved", "RESOURCE=QUANTITY,…", values.read_reservation,
                 "Amounts for container runtimes",
                 "Reserve these resources for container runtimes and podslice."),
    ConfigOption("system-reserved", "RESOURCE=QUANTITY,…", values.read_reservation,
                 "Amounts for system daemons",
                 "Reserve these resources for system daemons."),
    ConfigOption("kube-reserved-cgroup", "PATH", values.read_cgroup,
                 "Slice of container runtimes",
                 f"Slice on which kube-reserved is enforced, such as /{KUBE_RESERVED_SLICE}."),
    ConfigOption("system-reserved-cgroup", "PATH", values.read_cgroup,
                 "Slice of system daemons",
                 f"Slice on which system-reserved is enforced, such as /{SYSTEM_RESERVED_SLICE}."),
    ConfigOption("enforce-node-allocatable", "NAME,…", values.read_enforce,
                 "Limits that are enforced",
                 "Limits to enforce: pods, kube-reserved, system-reserved, the latter two also"
                 " with -compressible for CPU only; empty for none."),
    ConfigOption("eviction-hard", "SIGNAL<QUANTITY,…", values.read_thresholds,
                 "Hard eviction thresholds",
                 "Hard eviction thresholds, also subtracted from allocatable; empty for none."),
    ConfigOption("eviction-soft", "SIGNAL<QUANTITY,…", values.read_thresholds,
                 "Soft eviction thresholds",
                 "Soft eviction thresholds, which must be met for a grace period before pods are"
                 " evicted."),
    ConfigOption("eviction-soft-grace-period", "SIGNAL=DURATION,…", values.read_grace_periods,
                 "Grace periods of soft ones",
                 "Grace period of each soft eviction threshold.",
                 own_field="eviction_soft_grace_period_usec"),
    ConfigOption("eviction-minimum-reclaim", "SIGNAL=QUANTITY,…", values.read_reclaims,
                 "Amounts above thresholds",
                 "Amount above a threshold that must be available before a shortage ends."),
    ConfigOption("eviction-max-pod-grace-period", "SECONDS", values.read_seconds,
                 "Longest grace period of pods",
                 "Maximum grace period of pods that are evicted because of a soft threshold.",
                 own_field="eviction_max_pod_grace_period_sec"),
    ConfigOption("eviction-pressure-transition-period", "DURATION", values.read_duration,
                 "How long pressure persists",
                 "Time for which a pressure condition persists after it was last observed.",
                 own_field="eviction_pressure_transition_period_usec"),
    ConfigOption("eviction-tier", "TIER=memory.available<QUANTITY,…", values.read_tier_thresholds,
                 "Thresholds within tiers",
                 "Hard eviction thresholds within the limits of tiers that qos-reserved sets."),
    ConfigOption("ignore-eviction-threshold", "", values.read_boolean,
                 "Ignore them in allocatable",
                 "Do not subtract hard eviction thresholds from allocatable.",
                 aliases=("experimental-node-allocatable-ignore-eviction-threshold",)),
    ConfigOption("qos-reserved", "memory=PERCENT%", values.read_percents,
                 "Share of requests withheld",
                 "Reserve this share of higher QoS classes' requests, withholding it from lower"
                 " classes.", aliases=("experimental-qos-reserved",)),
    ConfigOption("cgroups-per-qos", "", values.read_boolean,
                 "A slice per QoS class",
                 "Create a slice per QoS class and per pod."),
    ConfigOption("cgroup-root", "PATH", values.read_root,
                 "Parent of all slices",
                 "Create all slices below this one."),
    ConfigOption("cgroup-driver", "systemd", values.read_driver,
                 "systemd",
                 "Control group driver; only systemd is supported.", own_field=None),
    ConfigOption("cpu-cfs-quota", "", values.read_boolean,
                 "Enforce CPU limits",
                 "Enforce CPU limits with quotas."),
    ConfigOption("cpu-cfs-quota-period", "DURATION", values.read_period,
                 "Period of CPU quotas",
                 "Period of CPU quotas, 1ms to 1s.", own_field="cpu_cfs_quota_period_usec"),
    _choice("cpu-manager-policy", config.CpuManagerPolicy,
            "static: exclusive CPUs",
            "Whether containers and pods that request whole CPUs have exclusive CPUs."),
    ConfigOption("cpu-manager-policy-options", "OPTION=true,…", values.read_cpu_options,
                 "Options of the policy static",
                 "Options of the policy static: full-pcpus-only, strict-cpu-reservation,"
                 " distribute-cpus-across-numa, prefer-align-cpus-by-uncorecache."),
    ConfigOption("topology-manager-policy", "POLICY", choose(config.TopologyManagerPolicy),
                 "NUMA nodes of exclusive CPUs",
                 "The NUMA nodes of exclusive CPUs: none (any), best-effort"
                 " (as few as possible), restricted (as few as on an idle machine) or"
                 " single-numa-node."),
    _choice("topology-manager-scope", config.TopologyManagerScope,
            "container or pod",
            "Whether each container or the whole pod is placed on these NUMA nodes."),
    ConfigOption("reserved-cpus", "CPU,…", values.read_cpus,
                 "CPUs for system daemons",
                 "CPUs reserved for system daemons, such as 0-1; empty for none."),
    _choice("exclusive-for", config.ExclusiveFor,
            "pods, or host",
            "What does not run on exclusive CPUs: other pods, or also"
            " system.slice and user.slice."),
    _choice("cpuset-partition", config.CpusetPartition,
            "isolated: no load balancing",
            "Whether exclusive CPUs are isolated in the kernel's"
            " scheduler; it requires systemd 261."),
    _choice("cpu-weight-mapping", config.WeightMapping,
            "From CPU requests to weights",
            "Conversion of CPU requests to CPUWeight."),
    _choice("memory-protection", config.MemoryProtection,
            "Property for memory requests",
            "Property that protects memory requests: MemoryLow, MemoryMin, by QoS class, or none."),
    ConfigOption("memory-throttling-factor", "FACTOR", optional(values.read_factor),
                 "Where throttling begins",
                 "Throttle containers from this part of their memory above the request, such as"
                 " 0.9.", own_field="memory_throttling_factor_milli"),
    # Source: Kubernetes, pkg/kubelet/types/constants.go, SwapBehavior.
    ConfigOption("memory-swap-behavior", "unlimited|NoSwap|LimitedSwap", optional(choose(config.SwapBehavior)),
                 "Swap of containers",
                 "Swap of containers; empty for unlimited, or NoSwap by the rules kubernetes."),
    ConfigOption("pod-max-pids", "NUMBER", values.read_pids,
                 "Process ids per pod",
                 "Maximum number of process ids of each pod; -1 for no limit."),
    ConfigOption("admission", "", values.read_boolean,
                 "Reject pods that do not fit",
                 "Reject pods that do not fit."),
    ConfigOption("oomd-tiers", "burstable,besteffort", values.read_tiers,
                 "Tiers of systemd-oomd",
                 "Tiers in which systemd-oomd may kill processes; empty for none."),
    ConfigOption("oomd-memory-pressure-limit", "PERCENT%", optional(values.read_pressure_limit),
                 "Pressure for systemd-oomd",
                 "Memory pressure from which systemd-oomd kills in these tiers; empty for its"
                 " default.", own_field="oomd_memory_pressure_limit_percent"),
    _choice("oom-policy", config.OomPolicy,
            "What an out-of-memory kill ends",
            "What to kill when the kernel kills a process of a pod for lack of memory.",
            is_agent_only=True),
    _choice("pods-from", config.PodsFrom,
            "manifests, or kubelet",
            "Where the agent reads its pods; kubelet: apply pod levels on the slices of a"
            " kubelet.", is_agent_only=True),
    ConfigOption("allow-kubelet-slices", "", values.read_boolean,
                 "Change slices of a kubelet",
                 "Allow pods-from=kubelet to change slices of the kubelet's pods.",
                 is_agent_only=True),
    ConfigOption("manifests", "DIR,…", values.read_directories,
                 "Directories of manifests",
                 "Directories whose manifests the agent applies; empty for none.",
                 is_agent_only=True),
    _choice("containers", config.Containers,
            "quadlet: run by podman",
            "What runs the containers of these pods; quadlet: podman, kept by the agent.",
            is_agent_only=True),
    ConfigOption("listen", "HOST:PORT", values.read_listen,
                 "Loopback address of metrics",
                 "Also serve metrics at this loopback address.", is_agent_only=True),
    ConfigOption("collect-orphans", "", values.read_boolean,
                 "Remove slices without a record",
                 "Remove pod slices without a record.", is_agent_only=True),
    ConfigOption("sync-period", "DURATION", values.read_sync_period,
                 "Interval of synchronization",
                 "Interval of the periodic synchronization, 100ms to 1h.",
                 own_field="sync_period_usec", is_agent_only=True),
    ConfigOption("usage-history", "DIR", values.read_directory,
                 "Directory of recorded usage",
                 "Directory in which the agent records the usage of pods; empty to record"
                 " nothing.", is_agent_only=True),
)  # fmt: skip
"""All options. To add one, add an entry here and a field to `Config`."""
