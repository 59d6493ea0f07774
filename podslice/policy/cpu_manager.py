"""The CPU manager of a node: which CPUs it gives to pods, and to which pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from podslice.errors import Problem
from podslice.model.config import (
    Config,
    CpuManagerOption,
    CpuManagerPolicy,
    CpusetPartition,
    ExclusiveFor,
    TopologyManagerScope,
)
from podslice.model.cpu_list import format_cpus, parse_cpus
from podslice.model.cpu_topology import Cpus, CpuTopology, regular_topology
from podslice.model.desired import ContainerDecision, Desired, PodDecision, Refusal
from podslice.model.naming import HOST_SLICES, Tree
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.properties import ALLOWED_CPUS, ALLOWED_MEMORY_NODES, PARTITION, PARTITION_ROOT
from podslice.model.resources import CPU, total
from podslice.model.unit import (
    DesiredUnit,
    PropertyValue,
    UnitKind,
    UnitName,
    control_group_of,
    parent_slice,
)
from podslice.policy.allocatable import reserved_for_system
from podslice.policy.cpu_assignment import CpuOptions, assign_cpus, without_own_cpus
from podslice.policy.cpu_pools import (
    NO_POOLS,
    AllowedCpus,
    CpuManager,
    CpuPools,
    HeldCpus,
    allowed_cpus,
    pool_cpus,
)
from podslice.policy.decide import decide, units_of

_NAMES = frozenset({ALLOWED_CPUS, ALLOWED_MEMORY_NODES, PARTITION})
_WHY_NODES = "the NUMA nodes of its own CPUs"
_WHY_PARTITION = "cpuset-partition isolated"


def cpu_manager(node: Node, config: Config) -> CpuManager | None:
    """Return what gives CPUs to pods; None by the policy `none`, or if the CPUs are not known.

    With a configured capacity the CPUs are cores of one thread each. CPUs that are reserved by
    their number are the first of as few places as possible.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, NewStaticPolicy.
    """
    if config.cpu_manager_policy is CpuManagerPolicy.NONE:
        return None
    topology = node_topology(node, config)
    if topology is None:
        return None
    chosen = config.cpu_manager_policy_options
    reserved = config.reserved_cpus & topology.all
    if not reserved:
        amount = total((config.kube_reserved, reserved_for_system(config))).get(CPU, 0)
        count = min(int(-(-amount // 1000)), len(topology.all))
        found = assign_cpus(topology, count, free=topology.all, options=CpuOptions())
        reserved = found if isinstance(found, frozenset) else topology.all
    return CpuManager(
        topology=topology,
        reserved=reserved,
        options=CpuOptions(
            full_cores=CpuManagerOption.FULL_PCPUS in chosen,
            distribute_numa=CpuManagerOption.DISTRIBUTE_NUMA in chosen,
            align_uncore=CpuManagerOption.ALIGN_UNCORE in chosen,
        ),
        is_strict=CpuManagerOption.STRICT in chosen,
        alignment=config.topology_manager_policy,
        aligns_pods=config.topology_manager_scope is TopologyManagerScope.POD,
        for_host=config.exclusive_for is ExclusiveFor.HOST,
        isolates=config.cpuset_partition is CpusetPartition.ISOLATED,
    )


def node_topology(node: Node, config: Config) -> CpuTopology | None:
    """Return the CPUs of the node; None if they are not known."""
    if config.cpu_topology is not None or CPU not in config.capacity:
        return config.cpu_topology or node.topology
    cores = max(-(-config.capacity[CPU] // 1000), 1)
    return regular_topology(sockets=1, numa=1, cores=cores, threads=1)


def assign(
    in_force: Sequence[PodDecision],
    candidates: Sequence[PodDecision],
    node: Node,
    config: Config,
    now: Mapping[UnitName, str],
) -> CpuPools:
    """Return the CPUs of all pods. `now` are the CPUs that units have."""
    manager = cpu_manager(node, config)
    if manager is None:
        return NO_POOLS
    units = {name: frozenset(parse_cpus(text)) for name, text in now.items()}
    tier = Tree(cgroup_root=config.cgroup_root).tier(Qos.BURSTABLE)
    held = HeldCpus(units=units, shared=units.get(tier, frozenset()))
    return pool_cpus(manager, in_force, candidates, held)


def fit_quota(pod: PodDecision, pools: CpuPools, node: Node, config: Config) -> PodDecision:
    """Return a decision with the quotas of a pod that lacks the CPUs which it claims, else without."""
    is_lacking = any(each.pod == pod.pod.key for each in pools.lacking)
    if is_lacking and pod.has_own_cpus:
        return decide(pod.pod, node, without_own_cpus(config), qos=pod.qos)
    if pod.pod.key in pools.pods and not pod.has_own_cpus:
        return decide(pod.pod, node, config, qos=pod.qos)
    return pod


def lack_cpus(pod: PodDecision, why: Refusal, node: Node, config: Config) -> PodDecision:
    """Return the decision on a pod that cannot have the CPUs which it claims, with this problem."""
    decided = decide(pod.pod, node, without_own_cpus(config), qos=pod.qos)
    message = f"pod {why.pod} cannot have exclusive CPUs ({why.reason}): {why.message}"
    problem = Problem(where=pod.pod.where, message=message)
    return replace(decided, problems=(*pod.problems, problem))


def with_cpus(pod: PodDecision, pools: CpuPools) -> PodDecision:
    """Return a decision with the CPUs of the pod's units; it is the same if it has them already."""
    allowed = allowed_cpus(pools, pod)
    slice_ = allowed.get(pod.slice)
    before = pod.init_properties
    decided = replace(
        pod,
        properties=_replace_cpus(pod.properties, slice_),
        init_properties=None if before is None else _replace_cpus(before, slice_),
        containers=tuple(_with_own(each, allowed) for each in pod.containers),
        overhead=None if pod.overhead is None else _with_own(pod.overhead, allowed),
    )
    return pod if decided == pod else replace(decided, units=tuple(units_of(decided)))


def _with_own(
    container: ContainerDecision, allowed: Mapping[UnitName, AllowedCpus]
) -> ContainerDecision:
    cpus = allowed.get(container.scope)
    return replace(container, properties=_replace_cpus(container.properties, cpus))


def with_lasting_cpus(decisions: Iterable[PodDecision], desired: Desired) -> Iterator[PodDecision]:
    """Yield decisions with the CPUs that pods have for themselves, for files of their containers.

    A file outlives changes of the shared CPUs; the container has those of its slice then.
    """
    assigned = {each.pod.key: each for each in desired.pods}
    for decision in decisions:
        found = assigned.get(decision.pod.key)
        own = desired.own_cpus.get(decision.pod.key)
        is_same = found is not None and found.pod == decision.pod
        yield _without_shared(found, own) if found and own and is_same else decision


def _without_shared(pod: PodDecision, own: Cpus) -> PodDecision:
    def keep(container: ContainerDecision) -> ContainerDecision:
        values = {each.name: each.value for each in container.properties}
        if own.issuperset(parse_cpus(str(values.get(ALLOWED_CPUS, "")))):
            return container
        return replace(container, properties=_replace_cpus(container.properties, None))

    return replace(pod, containers=tuple(map(keep, pod.containers)))


def with_shared(unit: DesiredUnit, pools: CpuPools) -> DesiredUnit:
    """Return a unit outside of pods; a tier has the CPUs that no pod has for itself."""
    if pools is NO_POOLS or not unit.is_tier:
        return unit
    cpus = AllowedCpus(cpus=pools.shared, why="the CPUs that no pod has for itself")
    return replace(unit, properties=_replace_cpus(unit.properties, cpus))


def with_partition(root: DesiredUnit, pools: CpuPools) -> DesiredUnit:
    """Return the slice of all pods; it is a partition if CPUs of some pods are isolated.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition: the parent of a
    partition is one, and no other control group has its CPUs.
    """
    if not pools.partition:
        return root
    why = f"{_WHY_PARTITION}: the CPUs that are not reserved, which the host leaves"
    cpus = AllowedCpus(cpus=pools.partition, why=why, partition=PARTITION_ROOT)
    return replace(root, properties=_replace_cpus(root.properties, cpus))


def host_units(reserved: Iterable[DesiredUnit], pools: CpuPools) -> Iterator[DesiredUnit]:
    """Yield the reserved slices, and those of the host that are kept off the CPUs of pods.

    The reserved CPUs are among theirs.

    Source: systemd.special(7), system.slice, user.slice; kubernetes#85764 (a kubelet limits neither).
    """
    limited = dict.fromkeys(HOST_SLICES if pools.host else ())
    why = "exclusive-for host: the CPUs that no pod has for itself"
    allowed = AllowedCpus(cpus=pools.host, why=why)
    for unit in reserved:
        is_limited = unit.name in limited
        limited.pop(unit.name, None)
        properties = _replace_cpus(unit.properties, allowed) if is_limited else unit.properties
        yield replace(unit, properties=properties)
    for name in limited:
        yield DesiredUnit(
            name=name,
            kind=UnitKind.SLICE,
            parent=parent_slice(name),
            control_group=control_group_of(name),
            description="processes of the host",
            properties=_replace_cpus((), allowed),
            owned=False,
        )


def _replace_cpus(
    properties: tuple[PropertyValue, ...], allowed: AllowedCpus | None
) -> tuple[PropertyValue, ...]:
    others = tuple(each for each in properties if each.name not in _NAMES)
    if allowed is None:
        return others
    stated = [PropertyValue(name=ALLOWED_CPUS, value=format_cpus(allowed.cpus), why=allowed.why)]
    if allowed.memory_nodes:
        nodes = format_cpus(allowed.memory_nodes)
        stated.append(PropertyValue(name=ALLOWED_MEMORY_NODES, value=nodes, why=_WHY_NODES))
    if allowed.partition:
        value = PropertyValue(name=PARTITION, value=allowed.partition, why=_WHY_PARTITION)
        stated.append(value)
    return (*stated, *others)
