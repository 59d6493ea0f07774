"""The one table of settings: the keys of the file, the flags of the command line, their readers.

The command line takes its options from it, and so does whatever documents them.
"""

from __future__ import annotations

from dataclasses import dataclass

from podslice.inputs.options.agent_values import (
    read_directories,
    read_listen,
    read_pressure_limit,
    read_sync_period,
    read_tiers,
)
from podslice.inputs.options.cgroup_values import read_cgroup, read_root
from podslice.inputs.options.values import (
    Reader,
    choose,
    read_accounting,
    read_boolean,
    read_capacity,
    read_driver,
    read_duration,
    read_enforce,
    read_grace_periods,
    read_percents,
    read_period,
    read_reclaims,
    read_reservation,
    read_seconds,
    read_thresholds,
)
from podslice.model.config import MemoryProtection, OomPolicy, Rules, WeightMapping


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOption:
    """One setting: a key of the file, a flag of the command line, and a field of `Config`."""

    key: str
    """As the kubelet's flag of the same meaning."""
    field: str | None
    """The field of `Config`; None for one that is only checked."""
    read: Reader
    help: str
    metavar: str = ""
    """What stands for the value in the help; empty for a boolean."""
    aliases: tuple[str, ...] = ()
    is_agent_only: bool = False
    """Only the agent uses it, so that no other verb has the flag."""

    @property
    def is_boolean(self) -> bool:
        """Whether it is true or false."""
        return self.read is read_boolean


OPTIONS = (
    ConfigOption(
        key="rules",
        field="rules",
        read=choose(Rules),
        metavar="proposal|kubernetes",
        help="Follow the pod level proposals, or what the kubelet does today.",
    ),
    ConfigOption(
        key="capacity",
        field="capacity",
        read=read_capacity,
        metavar="RESOURCE=QUANTITY,…",
        help="Plan for a node with this capacity; what is not stated is this host's.",
    ),
    ConfigOption(
        key="memory-hugetlb-accounting",
        field="memory_hugetlb_accounting",
        read=read_accounting,
        metavar="true|false",
        help="Plan for a node that counts huge pages as memory, or not; empty for what this host"
        " does.",
    ),
    ConfigOption(
        key="kube-reserved",
        field="kube_reserved",
        read=read_reservation,
        metavar="RESOURCE=QUANTITY,…",
        help="Keep this for container runtimes and podslice.",
    ),
    ConfigOption(
        key="system-reserved",
        field="system_reserved",
        read=read_reservation,
        metavar="RESOURCE=QUANTITY,…",
        help="Keep this for the system's daemons.",
    ),
    ConfigOption(
        key="kube-reserved-cgroup",
        field="kube_reserved_cgroup",
        read=read_cgroup,
        metavar="PATH",
        help="The slice to hold to kube-reserved, such as /podruntime.slice.",
    ),
    ConfigOption(
        key="system-reserved-cgroup",
        field="system_reserved_cgroup",
        read=read_cgroup,
        metavar="PATH",
        help="The slice to hold to system-reserved, such as /system.slice.",
    ),
    ConfigOption(
        key="enforce-node-allocatable",
        field="enforce_node_allocatable",
        read=read_enforce,
        metavar="NAME,…",
        help="What to enforce: pods, kube-reserved, system-reserved, the latter two also with"
        " -compressible for CPU only; empty for nothing.",
    ),
    ConfigOption(
        key="eviction-hard",
        field="eviction_hard",
        read=read_thresholds,
        metavar="SIGNAL<QUANTITY,…",
        help="Thresholds that are kept free of pods; empty for none.",
    ),
    ConfigOption(
        key="eviction-soft",
        field="eviction_soft",
        read=read_thresholds,
        metavar="SIGNAL<QUANTITY,…",
        help="Thresholds that pods are evicted for when they are met for a while.",
    ),
    ConfigOption(
        key="eviction-soft-grace-period",
        field="eviction_soft_grace_period_usec",
        read=read_grace_periods,
        metavar="SIGNAL=DURATION,…",
        help="For how long each soft threshold has to be met.",
    ),
    ConfigOption(
        key="eviction-minimum-reclaim",
        field="eviction_minimum_reclaim",
        read=read_reclaims,
        metavar="SIGNAL=QUANTITY,…",
        help="How much beyond a threshold has to be free before a shortage is over.",
    ),
    ConfigOption(
        key="eviction-max-pod-grace-period",
        field="eviction_max_pod_grace_period_sec",
        read=read_seconds,
        metavar="SECONDS",
        help="The most time that a pod gets to end when a soft threshold evicts it.",
    ),
    ConfigOption(
        key="eviction-pressure-transition-period",
        field="eviction_pressure_transition_period_usec",
        read=read_duration,
        metavar="DURATION",
        help="How long a shortage counts after it was last seen.",
    ),
    ConfigOption(
        key="ignore-eviction-threshold",
        field="ignore_eviction_threshold",
        read=read_boolean,
        help="Do not subtract hard eviction thresholds from what pods may request.",
        aliases=("experimental-node-allocatable-ignore-eviction-threshold",),
    ),
    ConfigOption(
        key="qos-reserved",
        field="qos_reserved",
        read=read_percents,
        metavar="memory=PERCENT%",
        help="Keep this share of what better classes request from the lower ones.",
        aliases=("experimental-qos-reserved",),
    ),
    ConfigOption(
        key="cgroups-per-qos",
        field="cgroups_per_qos",
        read=read_boolean,
        help="Have slices for QoS classes and pods.",
    ),
    ConfigOption(
        key="cgroup-root",
        field="cgroup_root",
        read=read_root,
        metavar="PATH",
        help="Put everything below this slice.",
    ),
    ConfigOption(
        key="cgroup-driver",
        field=None,
        read=read_driver,
        metavar="systemd",
        help="Only systemd.",
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
        help="The period of quotas, 1ms to 1s.",
    ),
    ConfigOption(
        key="cpu-weight-mapping",
        field="cpu_weight_mapping",
        read=choose(WeightMapping),
        metavar="systemd|kubelet|kubelet-linear|oci",
        help="How CPU requests become CPUWeight.",
    ),
    ConfigOption(
        key="memory-protection",
        field="memory_protection",
        read=choose(MemoryProtection),
        metavar="low|min|none",
        help="Which property carries memory requests.",
    ),
    ConfigOption(
        key="admission",
        field="admission",
        read=read_boolean,
        help="Refuse pods that do not fit.",
    ),
    ConfigOption(
        key="oomd-tiers",
        field="oomd_tiers",
        read=read_tiers,
        metavar="burstable,besteffort",
        help="Let systemd-oomd kill in these tiers; empty for none.",
    ),
    ConfigOption(
        key="oomd-memory-pressure-limit",
        field="oomd_memory_pressure_limit_percent",
        read=read_pressure_limit,
        metavar="PERCENT%",
        help="From which memory pressure on systemd-oomd kills in them; empty for its own limit.",
    ),
    ConfigOption(
        key="oom-policy",
        field="oom_policy",
        read=choose(OomPolicy),
        metavar="process|container|pod",
        help="What ends when the kernel kills a process in a pod for lack of memory.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="manifests",
        field="manifests",
        read=read_directories,
        metavar="DIR,…",
        help="Keep the pods whose manifests are in these directories; empty for none.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="listen",
        field="listen",
        read=read_listen,
        metavar="HOST:PORT",
        help="Serve metrics at this loopback address, too.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="collect-orphans",
        field="collect_orphans",
        read=read_boolean,
        help="Remove slices of pods that no record knows.",
        is_agent_only=True,
    ),
    ConfigOption(
        key="sync-period",
        field="sync_period_usec",
        read=read_sync_period,
        metavar="DURATION",
        help="How often to look when nothing has happened, 100ms to 1h.",
        is_agent_only=True,
    ),
)
"""Every setting. To add one, add a row here and a field there."""
