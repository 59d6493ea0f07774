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
    found = (
        *_check_enforced(config),
        *_check_reservations(config),
        *_check_eviction(config),
        *_check_tiers(config),
        *_check_cpus(config),
        *_check_alignment(config),
        *_check_exclusive(config, is_user=is_user),
        *_check_partition(config, is_user=is_user),
        *_check_pods_from(config),
    )
    return tuple(problem for problem in found if not {*problem.keys} & {*unread})


def _problem(options: str, message: str, hint: str = "") -> Problem:
    """Return a problem of the first of some options, which depends on the others as well."""
    keys = tuple(options.split(" "))
    return Problem(where=keys[0], message=message, hint=hint, keys=keys)


def _check_enforced(config: Config) -> Iterator[Problem]:
    enforced = config.enforce_node_allocatable
    option = "enforce-node-allocatable"
    if enforced and not config.cgroups_per_qos:
        yield _problem(
            f"{option} cgroups-per-qos",
            "nothing can be enforced without cgroups-per-qos",
            "set it to an empty string, or leave cgroups-per-qos at true",
        )
    for kind, cgroup, example in (
        (Enforce.KUBE_RESERVED, config.kube_reserved_cgroup, KUBE_RESERVED_SLICE),
        (Enforce.SYSTEM_RESERVED, config.system_reserved_cgroup, SYSTEM_RESERVED_SLICE),
    ):
        key = f"{kind}-cgroup"
        compressible = Enforce(f"{kind}-compressible")
        if {kind, compressible} <= enforced:
            yield _problem(option, f"{kind} and {compressible} exclude each other", "name one")
        if enforced & {kind, compressible} and not cgroup:
            name = kind if kind in enforced else compressible
            hint = f"set {key} to /{example}, for example"
            yield _problem(f"{option} {key}", f"{name} requires {key}", hint)


def _check_reservations(config: Config) -> Iterator[Problem]:
    """Check that no enforced limit is zero, which would stop the daemons, and none is of the root."""
    for kind, reserved in (
        (Enforce.KUBE_RESERVED, config.kube_reserved),
        (Enforce.SYSTEM_RESERVED, config.system_reserved),
    ):
        for resource in (MEMORY, PIDS):
            if kind in config.enforce_node_allocatable and reserved.get(resource) == 0:
                yield _problem(
                    f"{kind} enforce-node-allocatable",
                    f"{resource}=0 can't be enforced: no process could run",
                    f"leave {resource} out, or enforce {kind}-compressible",
                )

    for key, cgroup in (
        ("kube-reserved-cgroup", config.kube_reserved_cgroup),
        ("system-reserved-cgroup", config.system_reserved_cgroup),
    ):
        if cgroup and not cgroup.strip("/"):
            yield _problem(key, "a reservation can't be enforced on the root")


def _check_eviction(config: Config) -> Iterator[Problem]:
    """Check that soft thresholds have grace periods, and are above the hard ones."""
    for signal, soft in sorted(config.eviction_soft.items()):
        if signal not in config.eviction_soft_grace_period_usec:
            yield _problem(
                "eviction-soft eviction-soft-grace-period",
                f"{signal} has no grace period",
                f"add {signal}=1m30s to eviction-soft-grace-period, for example",
            )
        hard = config.eviction_hard.get(signal)
        if hard is not None and _is_below(soft, hard):
            yield _problem(
                "eviction-soft eviction-hard",
                f"{signal} is below its hard threshold",
                "a soft threshold must be higher",
            )
    for signal in sorted(
        config.eviction_soft_grace_period_usec.keys() - config.eviction_soft.keys()
    ):
        yield _problem(
            "eviction-soft-grace-period eviction-soft",
            f"{signal} has no soft threshold",
            "add it to eviction-soft, or leave it out here",
        )


def _check_tiers(config: Config) -> Iterator[Problem]:
    """Check that tiers with a threshold have a limit, and that what depends on tiers has some."""
    if config.eviction_tier and config.qos_reserved.get(MEMORY) is None:
        yield _problem(
            "eviction-tier qos-reserved",
            "the tiers have no memory limit",
            "set qos-reserved to memory=50%, for example",
        )
    if config.eviction_tier and not config.cgroups_per_qos:
        yield _problem(
            "eviction-tier cgroups-per-qos",
            "there are no tiers without cgroups-per-qos",
            "leave it out, or leave cgroups-per-qos at true",
        )
    for qos, signal in TIER_SIGNALS.items():
        if signal in config.eviction_minimum_reclaim and qos not in config.eviction_tier:
            yield _problem(
                "eviction-minimum-reclaim eviction-tier",
                f"{signal} has no threshold",
                f"add {qos.lower()} to eviction-tier, or leave it out here",
            )

    if config.oomd_memory_pressure_limit_percent is not None and not config.oomd_tiers:
        yield _problem(
            "oomd-memory-pressure-limit oomd-tiers",
            "oomd-tiers is empty",
            "add a tier to oomd-tiers, or leave this out",
        )


def _check_cpus(config: Config) -> Iterator[Problem]:
    """Check the CPU manager: some CPU remains for pods that share; and a stated topology.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/cpu_manager.go, NewManager;
    cmd/kubelet/app/server.go, --reserved-cpus, which overrides the amounts without an error.
    """
    topology = config.cpu_topology
    if topology is not None and config.capacity.get(CPU) != len(topology.cpus) * 1000:
        yield _problem(
            "capacity cpu-topology",
            f"cpu is not the number of CPUs of cpu-topology, {len(topology.cpus)}",
            "leave cpu out",
        )
    stated = [
        key
        for key, reserved in (
            ("kube-reserved", config.kube_reserved),
            ("system-reserved", config.system_reserved),
        )
        if reserved.get(CPU)
    ]
    if config.reserved_cpus:
        for key in stated:
            yield _problem(
                f"{key} reserved-cpus",
                "cpu and reserved-cpus exclude each other",
                "leave cpu out: reserved-cpus is what system daemons have",
            )
    if config.cpu_manager_policy is CpuManagerPolicy.STATIC:
        if not (config.reserved_cpus or stated):
            yield _problem(
                "cpu-manager-policy reserved-cpus kube-reserved system-reserved",
                "static requires reserved CPUs",
                "set reserved-cpus to 0, for example",
            )
    elif config.cpu_manager_policy_options:
        yield _problem(
            "cpu-manager-policy-options cpu-manager-policy",
            "they are options of the policy static",
            "set cpu-manager-policy to static, or leave them out",
        )
    exclusive = (CpuManagerOption.DISTRIBUTE_NUMA, CpuManagerOption.ALIGN_UNCORE)
    if config.cpu_manager_policy_options.issuperset(exclusive):
        # Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_options.go, NewStaticPolicyOptions.
        yield _problem(
            "cpu-manager-policy-options",
            f"{exclusive[0]} and {exclusive[1]} exclude each other",
            "leave one out",
        )


def _check_alignment(config: Config) -> Iterator[Problem]:
    """Check the topology manager, which places CPUs that the CPU manager assigns, and nothing else.

    Source: Kubernetes, pkg/kubelet/cm/topologymanager/topology_manager.go, NewManager.
    """
    if config.topology_manager_policy is not TopologyManagerPolicy.NONE:
        if config.cpu_manager_policy is not CpuManagerPolicy.STATIC:
            yield _problem(
                "topology-manager-policy cpu-manager-policy",
                f"{config.topology_manager_policy} has no CPUs to place",
                "set cpu-manager-policy to static, or this to none",
            )
    elif config.topology_manager_scope is not TopologyManagerScope.CONTAINER:
        yield _problem(
            "topology-manager-scope topology-manager-policy",
            "the policy none has no scope",
            "set topology-manager-policy to best-effort, or leave this out",
        )


def _check_exclusive(config: Config, *, is_user: bool) -> Iterator[Problem]:
    """Check that the slices of the host can be kept off the CPUs of pods."""
    if config.exclusive_for is not ExclusiveFor.HOST:
        return
    key = "exclusive-for"
    if config.cpu_manager_policy is not CpuManagerPolicy.STATIC:
        yield _problem(
            f"{key} cpu-manager-policy",
            "host requires a CPU manager",
            "set cpu-manager-policy to static, or leave this out",
        )
    if is_user:
        message = f"a user manager does not have {' and '.join(HOST_SLICES)}"
        yield _problem(key, message, "with --user, set it to pods")
    group = control_group_of(Tree(cgroup_root=config.cgroup_root).root)
    for name in HOST_SLICES:
        if group.startswith(f"/{name}/"):
            yield _problem(
                f"{key} cgroup-root",
                f"the pods are in {name}",
                "set it to pods, or choose another cgroup-root",
            )


def _check_partition(config: Config, *, is_user: bool) -> Iterator[Problem]:
    """Check that the slice of all pods can be a partition of the kernel, which the host leaves.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition: the parent of a
    partition is one, as the root is.
    """
    if config.cpuset_partition is not CpusetPartition.ISOLATED:
        return
    key = "cpuset-partition"
    if config.cpu_manager_policy is not CpuManagerPolicy.STATIC:
        yield _problem(
            f"{key} cpu-manager-policy",
            "isolated requires a CPU manager",
            "set cpu-manager-policy to static, or leave this out",
        )
    elif CpuManagerOption.STRICT not in config.cpu_manager_policy_options:
        yield _problem(
            f"{key} cpu-manager-policy-options",
            "isolated leaves the host the reserved CPUs only, so that pods may not use them",
            f"add {CpuManagerOption.STRICT}=true to cpu-manager-policy-options, or leave this out",
        )
    if is_user:
        yield _problem(key, "a user manager cannot divide the host's CPUs", "leave it out")
    elif parent_slice(Tree(cgroup_root=config.cgroup_root).root) != TOP_SLICE:
        yield _problem(
            f"{key} cgroup-root",
            "the slice of all pods is below another one",
            "leave it out, or set cgroup-root to /",
        )


def _check_pods_from(config: Config) -> Iterator[Problem]:
    """Check that the slices of a kubelet may be changed, and that nothing else is to be done."""
    if config.pods_from is not PodsFrom.KUBELET:
        return
    if not config.allow_kubelet_slices:
        yield _problem(
            "pods-from allow-kubelet-slices",
            "the slices of a kubelet may not be changed",
            "set allow-kubelet-slices to true, see podslice-kubelet(7)",
        )
    for key, is_stated in (
        ("manifests", config.manifests not in {(), DEFAULT_MANIFESTS}),
        ("containers", config.containers is not Containers.NONE),
        ("collect-orphans", config.collect_orphans),
        ("exclusive-for", config.exclusive_for is not ExclusiveFor.PODS),
        ("cpuset-partition", config.cpuset_partition is not CpusetPartition.MEMBER),
        ("eviction-tier", bool(config.eviction_tier)),
    ):
        if is_stated:
            message = "it has no meaning for the pods of a kubelet"
            hint = "leave it out, or set pods-from to manifests"
            yield _problem(f"{key} pods-from", message, hint)


def _is_below(soft: Threshold, hard: Threshold) -> bool:
    """Return whether a soft threshold is below the hard one; False if a capacity is needed."""
    if soft.amount is not None and hard.amount is not None:
        return soft.amount < hard.amount
    if soft.percent_milli is not None and hard.percent_milli is not None:
        return soft.percent_milli < hard.percent_milli
    return False
