"""Rules between options whose values are valid one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from podslice.errors import Problem
from podslice.model.config import (
    DEFAULT_MANIFESTS,
    TIER_SIGNALS,
    Config,
    Containers,
    CpuManagerOption,
    CpuManagerPolicy,
    CpusetPartition,
    Enforce,
    ExclusiveFor,
    PodsFrom,
    Threshold,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from podslice.model.naming import HOST_SLICES, KUBE_RESERVED_SLICE, SYSTEM_RESERVED_SLICE, Tree
from podslice.model.resources import CPU, MEMORY, PIDS
from podslice.model.unit import TOP_SLICE, control_group_of, parent_slice

_Rule = tuple[object, str, str, str]
"""Whether it is broken, its options, of which the first is to be changed, and message and hint."""


def validate_config(
    config: Config, unread: Collection[str] = (), *, is_user: bool = False
) -> tuple[Problem, ...]:
    """Return the contradictions between options; the first of a problem's `keys` is to be changed.

    Args:
        config: the configuration; options that could not be read have their defaults.
        unread: the keys of these; rules that depend on them are not checked.
        is_user: whether it is for a user's service manager.

    Source: Node Allocatable Resources, "Phase 2", the rules of --enforce-node-allocatable;
    Kubernetes, pkg/kubelet/apis/config/validation/validation.go, ValidateKubeletConfiguration.
    """
    rules = (
        *_rules_of_enforcement(config),
        *_rules_of_eviction(config),
        *_rules_of_tiers(config),
        *_rules_of_cpus(config),
        *_rules_of_exclusive_cpus(config, is_user=is_user),
        *_rules_of_kubelet(config),
    )
    found = (
        (options.split(" "), message, hint) for broken, options, message, hint in rules if broken
    )
    return tuple(
        Problem(where=keys[0], message=message, hint=hint, keys=tuple(keys))
        for keys, message, hint in found
        if not {*keys} & {*unread}
    )


# fmt: off
def _rules_of_enforcement(config: Config) -> Iterator[_Rule]:
    enforced, option = config.enforce_node_allocatable, "enforce-node-allocatable"
    yield (enforced and not config.cgroups_per_qos, f"{option} cgroups-per-qos",
           "nothing can be enforced without cgroups-per-qos",
           "set it to an empty string, or leave cgroups-per-qos at true")
    kinds = (
        (Enforce.KUBE_RESERVED, config.kube_reserved,
         config.kube_reserved_cgroup, KUBE_RESERVED_SLICE),
        (Enforce.SYSTEM_RESERVED, config.system_reserved,
         config.system_reserved_cgroup, SYSTEM_RESERVED_SLICE),
    )
    for kind, _, cgroup, example in kinds:
        compressible = Enforce(f"{kind}-compressible")
        name = kind if kind in enforced else compressible
        yield ({kind, compressible} <= enforced, option,
               f"{kind} and {compressible} exclude each other", "name one")
        yield (enforced & {kind, compressible} and not cgroup, f"{option} {kind}-cgroup",
               f"{name} requires {kind}-cgroup", f"set {kind}-cgroup to /{example}, for example")
    # an enforced limit of zero would stop the daemons
    for kind, reserved, _, _ in kinds:
        for resource in (MEMORY, PIDS):
            yield (kind in enforced and reserved.get(resource) == 0, f"{kind} {option}",
                   f"{resource}=0 can't be enforced: no process could run",
                   f"leave {resource} out, or enforce {kind}-compressible")
    for kind, _, cgroup, _ in kinds:
        yield (cgroup and not cgroup.strip("/"), f"{kind}-cgroup",
               "a reservation can't be enforced on the root", "")


def _rules_of_eviction(config: Config) -> Iterator[_Rule]:
    soft_thresholds, periods = config.eviction_soft, config.eviction_soft_grace_period_usec
    for signal, soft in sorted(soft_thresholds.items()):
        hard = config.eviction_hard.get(signal)
        yield (signal not in periods, "eviction-soft eviction-soft-grace-period",
               f"{signal} has no grace period",
               f"add {signal}=1m30s to eviction-soft-grace-period, for example")
        yield (hard is not None and _is_below(soft, hard), "eviction-soft eviction-hard",
               f"{signal} is below its hard threshold", "a soft threshold must be higher")
    for signal in sorted(periods.keys() - soft_thresholds.keys()):
        yield (True, "eviction-soft-grace-period eviction-soft",
               f"{signal} has no soft threshold", "add it to eviction-soft, or leave it out here")


def _rules_of_tiers(config: Config) -> Iterator[_Rule]:
    thresholds = config.eviction_tier
    yield (thresholds and config.qos_reserved.get(MEMORY) is None, "eviction-tier qos-reserved",
           "the tiers have no memory limit", "set qos-reserved to memory=50%, for example")
    yield (thresholds and not config.cgroups_per_qos, "eviction-tier cgroups-per-qos",
           "there are no tiers without cgroups-per-qos",
           "leave it out, or leave cgroups-per-qos at true")
    for qos, signal in TIER_SIGNALS.items():
        yield (signal in config.eviction_minimum_reclaim and qos not in thresholds,
               "eviction-minimum-reclaim eviction-tier", f"{signal} has no threshold",
               f"add {qos.lower()} to eviction-tier, or leave it out here")
    yield (config.oomd_memory_pressure_limit_percent is not None and not config.oomd_tiers,
           "oomd-memory-pressure-limit oomd-tiers", "oomd-tiers is empty",
           "add a tier to oomd-tiers, or leave this out")


def _rules_of_cpus(config: Config) -> Iterator[_Rule]:
    """Yield the rules of the CPU manager, of a stated topology, and of the topology manager.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/cpu_manager.go, NewManager, policy_options.go,
    NewStaticPolicyOptions; pkg/kubelet/cm/topologymanager/topology_manager.go, NewManager;
    cmd/kubelet/app/server.go, --reserved-cpus, which overrides the amounts without an error.
    """
    count = None if config.cpu_topology is None else len(config.cpu_topology.cpus)
    yield (count is not None and config.capacity.get(CPU) != count * 1000, "capacity cpu-topology",
           f"cpu is not the number of CPUs of cpu-topology, {count}", "leave cpu out")
    reservations = {"kube-reserved": config.kube_reserved, "system-reserved": config.system_reserved}
    stated = [key for key, reserved in reservations.items() if reserved.get(CPU)]
    for key in stated:
        yield (config.reserved_cpus, f"{key} reserved-cpus",
               "cpu and reserved-cpus exclude each other",
               "leave cpu out: reserved-cpus is what system daemons have")
    is_static = config.cpu_manager_policy is CpuManagerPolicy.STATIC
    yield (is_static and not (config.reserved_cpus or stated),  # some CPU remains for other pods
           "cpu-manager-policy reserved-cpus kube-reserved system-reserved",
           "static requires reserved CPUs", "set reserved-cpus to 0, for example")
    yield (not is_static and config.cpu_manager_policy_options,
           "cpu-manager-policy-options cpu-manager-policy", "they are options of the policy static",
           "set cpu-manager-policy to static, or leave them out")
    exclusive = (CpuManagerOption.DISTRIBUTE_NUMA, CpuManagerOption.ALIGN_UNCORE)
    yield (config.cpu_manager_policy_options.issuperset(exclusive), "cpu-manager-policy-options",
           f"{exclusive[0]} and {exclusive[1]} exclude each other", "leave one out")
    # it places CPUs that the CPU manager assigns, and nothing else
    policy = config.topology_manager_policy
    is_placing = policy is not TopologyManagerPolicy.NONE
    yield (is_placing and not is_static, "topology-manager-policy cpu-manager-policy",
           f"{policy} has no CPUs to place", "set cpu-manager-policy to static, or this to none")
    yield (not is_placing and config.topology_manager_scope is not TopologyManagerScope.CONTAINER,
           "topology-manager-scope topology-manager-policy", "the policy none has no scope",
           "set topology-manager-policy to best-effort, or leave this out")


def _rules_of_exclusive_cpus(config: Config, *, is_user: bool) -> Iterator[_Rule]:
    """Yield the rules of CPUs that the slices of the host leave to pods.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition: the parent of a
    partition is one, as the root is.
    """
    is_static = config.cpu_manager_policy is CpuManagerPolicy.STATIC
    root = Tree(cgroup_root=config.cgroup_root).root
    is_for_host, key = config.exclusive_for is ExclusiveFor.HOST, "exclusive-for"
    yield (is_for_host and not is_static, f"{key} cpu-manager-policy",
           "host requires a CPU manager", "set cpu-manager-policy to static, or leave this out")
    yield (is_for_host and is_user, key, f"a user manager does not have {' and '.join(HOST_SLICES)}",
           "with --user, set it to pods")
    for name in HOST_SLICES:
        yield (is_for_host and control_group_of(root).startswith(f"/{name}/"), f"{key} cgroup-root",
               f"the pods are in {name}", "set it to pods, or choose another cgroup-root")
    isolated, key = config.cpuset_partition is CpusetPartition.ISOLATED, "cpuset-partition"
    yield (isolated and not is_static, f"{key} cpu-manager-policy",
           "isolated requires a CPU manager", "set cpu-manager-policy to static, or leave this out")
    is_strict = CpuManagerOption.STRICT in config.cpu_manager_policy_options
    yield (isolated and is_static and not is_strict, f"{key} cpu-manager-policy-options",
           "isolated leaves the host the reserved CPUs only, so that pods may not use them",
           f"add {CpuManagerOption.STRICT}=true to cpu-manager-policy-options, or leave this out")
    yield (isolated and is_user, key, "a user manager cannot divide the host's CPUs", "leave it out")
    yield (isolated and not is_user and parent_slice(root) != TOP_SLICE, f"{key} cgroup-root",
           "the slice of all pods is below another one", "leave it out, or set cgroup-root to /")


def _rules_of_kubelet(config: Config) -> Iterator[_Rule]:
    """Yield the rules of a kubelet's slices: they may be changed, and nothing else is to be done."""
    is_kubelets = config.pods_from is PodsFrom.KUBELET
    yield (is_kubelets and not config.allow_kubelet_slices, "pods-from allow-kubelet-slices",
           "the slices of a kubelet may not be changed",
           "set allow-kubelet-slices to true, see podslice-kubelet(7)")
    for key, is_stated in (
        ("manifests", config.manifests not in {(), DEFAULT_MANIFESTS}),
        ("containers", config.containers is not Containers.NONE),
        ("collect-orphans", config.collect_orphans),
        ("exclusive-for", config.exclusive_for is not ExclusiveFor.PODS),
        ("cpuset-partition", config.cpuset_partition is not CpusetPartition.MEMBER),
        ("eviction-tier", config.eviction_tier),
    ):
        yield (is_kubelets and is_stated, f"{key} pods-from",
               "it has no meaning for the pods of a kubelet",
               "leave it out, or set pods-from to manifests")
# fmt: on


def _is_below(soft: Threshold, hard: Threshold) -> bool:
    """Return whether a soft threshold is below the hard one; False if a capacity is needed."""
    if soft.amount is not None and hard.amount is not None:
        return soft.amount < hard.amount
    if soft.percent_milli is not None and hard.percent_milli is not None:
        return soft.percent_milli < hard.percent_milli
    return False
