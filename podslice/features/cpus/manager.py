"""The CPU manager of a node: which CPUs each pod has, its own ones or the pool that all others share.

No file records an assignment: the CPUs that a unit has are its own as long as they can be.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from podslice.features.cpus.assignment import (
    NOT_ENOUGH,
    CpuOptions,
    CpuRefusal,
    align_cpus,
    assign_cpus,
    numa_nodes_of,
    union_of,
)
from podslice.model.config import (
    Config,
    CpuManagerOption,
    CpuManagerPolicy,
    CpusetPartition,
    ExclusiveFor,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from podslice.model.desired import ContainerDecision, PodDecision, Refusal
from podslice.model.naming import HOST_SLICES, Tree
from podslice.model.node import Cpus, CpuTopology, Node, format_cpus, parse_cpus, regular_topology
from podslice.model.pod import ContainerKind, Qos
from podslice.model.properties import (
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    PARTITION,
    PARTITION_ISOLATED,
    PARTITION_ROOT,
)
from podslice.model.resources import CPU, total
from podslice.model.unit import (
    DesiredUnit,
    PropertyValue,
    UnitName,
    slice_unit,
)
from podslice.policy.allocatable import reserved_for_system
from podslice.policy.decide import decide, units_of
from podslice.policy.exclusive import (
    CpuAssignment,
    CpuClaim,
    claim_cpus,
    without_cpus,
    without_own_cpus,
)

_NONE: Cpus = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuManager:
    """The CPUs of a node, and how they are given to pods."""

    topology: CpuTopology
    reserved: Cpus
    """The CPUs that no pod has for itself."""
    options: CpuOptions = field(default_factory=CpuOptions)
    is_strict: bool = False
    """`strict-cpu-reservation`: other pods do not run on the reserved CPUs either."""
    alignment: TopologyManagerPolicy = TopologyManagerPolicy.NONE
    """The NUMA nodes of a pod's or container's own CPUs; its memory follows them."""
    aligns_pods: bool = False
    """Whether all containers of a pod are on the same NUMA nodes."""
    for_host: bool = False
    """`exclusive-for` host: `system.slice` and `user.slice` do not run on the CPUs of pods."""
    isolates: bool = False
    """`cpuset-partition` isolated: the kernel keeps the host off the CPUs of all pods."""

    @property
    def is_aligning(self) -> bool:
        """Return whether NUMA nodes count."""
        return self.alignment is not TopologyManagerPolicy.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCpus:
    """The CPUs that a pod has for itself."""

    pod: Cpus
    """All of them."""
    containers: Mapping[str, Cpus]
    """Those of the containers with CPUs of their own, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCpus:
    """The CPUs that units have now."""

    units: Mapping[UnitName, Cpus] = field(default_factory=dict)
    """Those of the slices of pods and of the containers that run; one without limits is absent."""
    shared: Cpus = _NONE
    """Those of the tiers."""


class PodAssignment(NamedTuple):
    """Divides CPUs among the containers of a pod."""

    manager: CpuManager
    pod: PodDecision
    claim: CpuClaim

    def keep(self, held: HeldCpus, free: Cpus) -> PodCpus | None:
        """Return what the pod's units have; None if it is not what the pod claims.

        A slice whose pod has containers without CPUs of their own has the shared ones, too.
        """
        own = held.units.get(self.pod.slice, _NONE)
        if not self.claim.pod and self._sharing:
            own -= held.shared
        if len(own) != self._count or not own <= free:
            return None
        divided = self._divide(own, held.units, self._inside)
        return None if isinstance(divided, CpuRefusal) else PodCpus(pod=own, containers=divided)

    def assign(self, free: Cpus) -> PodCpus | CpuRefusal:
        """Return CPUs among the free ones, or why there are none."""
        policy = self.manager.alignment
        if self.claim.pod or self.manager.aligns_pods:
            found = self._take(self._count, free, policy)
            if isinstance(found, CpuRefusal):
                return found
            free, policy = found, self._inside
        divided = self._divide(free, {}, policy)
        if isinstance(divided, CpuRefusal):
            return divided
        own = free if self.claim.pod else union_of(divided.values())
        return PodCpus(pod=own, containers=divided)

    @property
    def _count(self) -> int:
        """Return the number of CPUs of the whole pod: init containers use those of later ones."""
        # Source: Kubernetes, policy_static.go, podGuaranteedCPUs; KEP-753, "Resources calculation
        # for scheduling and pod admission".
        alone = lasting = 0
        for each in self._claiming:
            count = self.claim.containers[each.name]
            if each.kind is ContainerKind.INIT:
                alone = max(alone, lasting + count)
            else:
                lasting += count
        return self.claim.pod or max(alone, lasting)

    @property
    def _claiming(self) -> Sequence[ContainerDecision]:
        """Return the containers with exclusive CPUs in the order in which they start."""
        claiming = [each for each in self.pod.containers if each.name in self.claim.containers]
        return sorted(claiming, key=lambda each: each.kind is ContainerKind.APP)

    @property
    def _sharing(self) -> tuple[ContainerDecision, ...]:
        """Return what has no CPUs of its own."""
        return tuple(each for each in self.pod.scopes if each.name not in self.claim.containers)

    @property
    def _inside(self) -> TopologyManagerPolicy:
        """Return the policy for the containers of a pod whose CPUs were accepted."""
        is_aligning = self.manager.is_aligning
        return TopologyManagerPolicy.BEST_EFFORT if is_aligning else TopologyManagerPolicy.NONE

    def _take(
        self, count: int, free: Cpus, policy: TopologyManagerPolicy, reused: Cpus = _NONE
    ) -> Cpus | CpuRefusal:
        topology, options = self.manager.topology, self.manager.options
        return align_cpus(topology, count, free=free, options=options, policy=policy, reused=reused)

    def _divide(
        self, free: Cpus, held: Mapping[UnitName, Cpus], policy: TopologyManagerPolicy
    ) -> Mapping[str, Cpus] | CpuRefusal:
        """Return the CPUs of each container with CPUs of its own; they keep those that are held.

        Containers get CPUs in the order in which they start. An init container leaves its CPUs to
        those that start after it.
        """
        # Source: Kubernetes, policy_static.go, updateCPUsToReuse, allocateCPUs, AllocatePod.
        kept = dict(self._keep_containers(held, free))
        divided: dict[str, Cpus] = {}
        lasting = used = _NONE
        for each in self._claiming:
            is_init = each.kind is ContainerKind.INIT
            found: Cpus | CpuRefusal | None = kept.pop(each.name, None)
            if found is None:
                usable = free - lasting if is_init else free - lasting - union_of(kept.values())
                count = self.claim.containers[each.name]
                found = self._take(count, usable, policy, reused=used & usable)
            if isinstance(found, CpuRefusal):
                return found
            used |= found
            if not is_init:
                divided[each.name] = found
                lasting |= found
        is_sharing = any(each.kind is not ContainerKind.INIT for each in self._sharing)
        if self.claim.pod and is_sharing and not free - lasting:
            message = (
                "its containers request all CPUs of the pod level, and others need a part of it"
            )
            return CpuRefusal(reason=NOT_ENOUGH, message=message)
        return self._add_inits(divided, free if self.claim.pod else used)

    def _add_inits(
        self, lasting: Mapping[str, Cpus], usable: Cpus
    ) -> Mapping[str, Cpus] | CpuRefusal:
        """Return the CPUs of all containers: init containers have some of the pod's CPUs.

        They depend on nothing else, so that they are the same the next time. Some usable CPUs are
        left over if init containers and later ones chose different CPUs: the kubelet then gives the
        pod more than it requests.
        """
        # Source: kubernetes#112228, "Static CPU Manager can fail with UnexpectedAdmissionError".
        own = union_of(lasting.values())
        more = self._take(max(self._count - len(own), 0), usable - own, self._inside)
        if isinstance(more, CpuRefusal):
            return more
        divided = dict(lasting)
        free = own | more
        for each in self._claiming:
            if each.kind is ContainerKind.INIT:
                found = self._take(self.claim.containers[each.name], free, self._inside)
                if isinstance(found, CpuRefusal):
                    return found
                divided[each.name] = found
            else:
                free -= lasting[each.name]
        return divided

    def _keep_containers(
        self, held: Mapping[UnitName, Cpus], free: Cpus
    ) -> Iterator[tuple[str, Cpus]]:
        """Yield the containers that run with CPUs which they can keep, whatever others need."""
        for each in self._claiming:
            now = held.get(each.scope, _NONE)
            # An init container uses the CPUs of containers that start later, and keeps no CPUs.
            is_lasting = each.kind is not ContainerKind.INIT
            if is_lasting and len(now) == self.claim.containers[each.name] and now <= free:
                free -= now
                yield each.name, now


class AllowedCpus(NamedTuple):
    """The CPUs that a unit may use."""

    cpus: Cpus
    why: str
    memory_nodes: frozenset[int] = frozenset()
    """The NUMA nodes of its memory; empty for all."""
    partition: str = ""
    """The kind of its partition in the kernel; empty if it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuPools:
    """The CPUs of all pods."""

    shared: Cpus
    """Those of the pods and containers without CPUs of their own."""
    host: Cpus = _NONE
    """Those of `system.slice` and `user.slice`; none if they have all."""
    partition: Cpus = _NONE
    """Those of all pods, where these are a partition of the kernel; none if they are not."""
    pods: Mapping[str, PodCpus]
    """By key."""
    numa_nodes: Mapping[int, Cpus] = field(default_factory=dict)
    """The NUMA nodes where memory follows a pod's own CPUs; none without a topology manager."""
    refused: tuple[Refusal, ...] = ()
    lacking: tuple[Refusal, ...] = ()
    """The pods in force that cannot have the CPUs which they claim: they use the shared ones."""
    available: Cpus = _NONE
    """The shared CPUs that are not reserved."""


def pool_cpus(
    manager: CpuManager,
    in_force: Sequence[PodDecision],
    candidates: Sequence[PodDecision],
    held: HeldCpus,
) -> CpuPools:
    """Assign CPUs to the pods in force, then to the candidates by priority, then in their order.

    A candidate replaces the pod of its name; one that is refused leaves it as it is. What one
    candidate releases is available to all. A pod keeps what it holds.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, Allocate, RemoveContainer.
    """
    pools = _Pools(manager, held)
    # First all keep what they have: an assignment must not take the CPUs of another pod.
    for pod in in_force:
        pools.keep(pod)
    for pod in sorted(in_force, key=_priority):
        pools.supply(pod)
    before = {pod.pod.key for pod in in_force}
    refused = _replace_all(pools, sorted(candidates, key=_priority), before)
    return CpuPools(
        shared=pools.shared,
        host=pools.host,
        partition=pools.partition,
        pods=pools.pods,
        numa_nodes=manager.topology.numa_nodes if manager.is_aligning else {},
        refused=_refusals(refused),
        lacking=_refusals(pools.lacking),
        available=pools.shared - manager.reserved,
    )


def _replace_all(
    pools: _Pools, waiting: list[PodDecision], before: Container[str]
) -> Mapping[str, CpuRefusal]:
    """Replace pods until no candidate has released CPUs; return why the others are refused."""
    refused: dict[str, CpuRefusal] = {}
    has_more = True
    while has_more:
        tried, waiting, has_more = waiting, [], False
        for pod in tried:
            why = pools.replace(pod)
            if why is None:
                has_more = has_more or pod.pod.key in before
                refused.pop(pod.pod.key, None)
            else:
                waiting.append(pod)
                refused[pod.pod.key] = why
    return refused


def allowed_cpus(pools: CpuPools, pod: PodDecision) -> Mapping[UnitName, AllowedCpus]:
    """Return the CPUs of a pod's slice and of its containers, where these differ from the slice's.

    A pod in a tier has those of its tier. The slice of a pod is limited as well, since processes can
    be in it without being in a container; the kubelet limits containers only.
    """
    own = pools.pods.get(pod.pod.key)
    shared = AllowedCpus(cpus=pools.shared, why=_WHY_SHARED)
    if own is None:
        return {pod.slice: shared} if pod.qos is Qos.GUARANTEED else {}
    without = ", without system.slice and user.slice" if pools.host else ""
    allowed: dict[UnitName, AllowedCpus] = {}
    if claim_cpus(pod.pod, pod.qos).pod:
        why = f"the pod's own{without}: its level requests whole CPUs"
        allowed[pod.slice] = _isolated(_own(pools, own.pod, why), pools)
        # the containers with CPUs of their own that run together
        lasting = (each.name for each in pod.containers if each.kind is not ContainerKind.INIT)
        rest = own.pod - union_of(own.containers.get(name, _NONE) for name in lasting)
        shared = AllowedCpus(cpus=rest or own.pod, why="the rest of the pod's own CPUs")
    elif len(own.containers) == len(pod.scopes):
        why = f"the pod's own{without}: all containers request whole CPUs"
        allowed[pod.slice] = _isolated(_own(pools, own.pod, why), pools)
    else:
        why = "the pod's own, and those that no pod has for itself"
        allowed[pod.slice] = AllowedCpus(cpus=own.pod | pools.shared, why=why)
    for each in pod.scopes:
        cpus = own.containers.get(each.name)
        if cpus is not None:
            why = f"its own{without}: it requests whole CPUs"
            allowed[each.scope] = _own(pools, cpus, why)
        elif shared.cpus != allowed[pod.slice].cpus:
            allowed[each.scope] = shared
    return allowed


def _own(pools: CpuPools, cpus: Cpus, why: str) -> AllowedCpus:
    """Return CPUs of one's own with their memory, which is not limited if they are on all nodes."""
    nodes = numa_nodes_of(pools.numa_nodes, cpus)
    is_limit = nodes != pools.numa_nodes.keys()
    return AllowedCpus(cpus=cpus, why=why, memory_nodes=nodes if is_limit else frozenset())


def _isolated(own: AllowedCpus, pools: CpuPools) -> AllowedCpus:
    return own._replace(partition=PARTITION_ISOLATED if pools.partition else "")


def _priority(pod: PodDecision) -> int:
    return -pod.pod.priority


def _refusals(refused: Mapping[str, CpuRefusal]) -> tuple[Refusal, ...]:
    return tuple(Refusal(key, why.reason, why.message) for key, why in sorted(refused.items()))


class _Pools:
    """The CPUs of the pods so far."""

    def __init__(self, manager: CpuManager, held: HeldCpus) -> None:
        self._manager = manager
        self._held = held
        self.pods: dict[str, PodCpus] = {}
        self.lacking: dict[str, CpuRefusal] = {}

    @property
    def _exclusive(self) -> Cpus:
        return union_of(each.pod for each in self.pods.values())

    @property
    def _free(self) -> Cpus:
        return self._manager.topology.all - self._manager.reserved - self._exclusive

    @property
    def shared(self) -> Cpus:
        """Return the CPUs that no pod has for itself."""
        kept = self._manager.reserved if self._manager.is_strict else _NONE
        return self._manager.topology.all - kept - self._exclusive

    @property
    def host(self) -> Cpus:
        """Return the CPUs of the host's own slices; system daemons may use the reserved ones."""
        limits = self._manager.for_host and bool(self.pods)
        return self._manager.topology.all - self._exclusive if limits else _NONE

    @property
    def partition(self) -> Cpus:
        """Return the CPUs of all pods if some have CPUs of their own that are to be isolated."""
        isolates = self._manager.isolates and bool(self.pods)
        return self._manager.topology.all - self._manager.reserved if isolates else _NONE

    def keep(self, pod: PodDecision) -> None:
        """Keep the current CPUs of a pod if they match its claim and are free."""
        claim = claim_cpus(pod.pod, pod.qos)
        if not claim:
            return
        assignment = PodAssignment(self._manager, pod, claim)
        if (kept := assignment.keep(self._held, self._free)) is not None:
            self.pods[pod.pod.key] = kept

    def supply(self, pod: PodDecision) -> None:
        """Assign CPUs to a pod in force that has none."""
        if pod.pod.key not in self.pods and (why := self._assign(pod)):
            self.lacking[pod.pod.key] = why

    def replace(self, pod: PodDecision) -> CpuRefusal | None:
        """Assign CPUs to a candidate in place of the pod of its name, or return why not."""
        key = pod.pod.key
        released, lacked = self.pods.pop(key, None), self.lacking.pop(key, None)
        self.keep(pod)
        why = None if key in self.pods else self._assign(pod)
        if why is not None:
            if released is not None:
                self.pods[key] = released
            if lacked is not None:
                self.lacking[key] = lacked
        return why

    def _assign(self, pod: PodDecision) -> CpuRefusal | None:
        claim = claim_cpus(pod.pod, pod.qos)
        if not claim:
            return None
        assignment = PodAssignment(manager=self._manager, pod=pod, claim=claim)
        found = assignment.assign(self._free)
        if isinstance(found, CpuRefusal):
            return found
        # Without a CPU the list of the tiers would be empty, which allows all.
        if found.pod >= self.shared:
            message = f"requested CPUs: {len(found.pod)}; none would remain for other pods"
            return CpuRefusal(reason=NOT_ENOUGH, message=message)
        self.pods[pod.pod.key] = found
        return None


_WHY_SHARED = "the CPUs that no pod has for itself"
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
        # Rounded up to whole CPUs, as the kubelet does.
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
) -> CpuAssignment:
    """Return the CPUs of all pods: the stage of `policy.exclusive`."""
    manager = cpu_manager(node, config)
    if manager is None:
        return CpuAssignment()
    units = {name: frozenset(parse_cpus(text)) for name, text in now.items()}
    tier = Tree(cgroup_root=config.cgroup_root).tier(Qos.BURSTABLE)
    held = HeldCpus(units=units, shared=units.get(tier, frozenset()))
    pools = pool_cpus(manager, in_force, candidates, held)
    return CpuAssignment(
        own={key: each.pod for key, each in pools.pods.items()},
        available=pools.available,
        refused=pools.refused,
        lacking=pools.lacking,
        place=lambda pod: with_cpus(fit_quota(pod, pools, node, config), pools),
        limit=lambda units: limit_units(units, pools),
    )


def fit_quota(pod: PodDecision, pools: CpuPools, node: Node, config: Config) -> PodDecision:
    """Return a decision with the quotas of a pod that lacks the CPUs which it claims, else without."""
    is_lacking = any(each.pod == pod.pod.key for each in pools.lacking)
    if is_lacking and pod.has_own_cpus:
        return decide(pod.pod, node, without_own_cpus(config), qos=pod.qos)
    if pod.pod.key in pools.pods and not pod.has_own_cpus:
        return decide(pod.pod, node, config, qos=pod.qos)
    return pod


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


def limit_units(units: Iterable[DesiredUnit], pools: CpuPools) -> Iterator[DesiredUnit]:
    """Yield the units outside of pods with their CPUs, and the slices of the host that get CPUs."""
    units = tuple(units)
    yield from _limit_host([unit for unit in units if not unit.owned], pools.host)
    shared = AllowedCpus(cpus=pools.shared, why=_WHY_SHARED)
    for unit in units:
        if unit.is_tier:
            yield _with_allowed(unit, shared)
        elif unit.owned:
            yield _isolate(unit, pools.partition)


def _limit_host(reserved: Iterable[DesiredUnit], cpus: Cpus) -> Iterable[DesiredUnit]:
    """Return the reserved slices, and those of the host that are kept off the CPUs of pods.

    The reserved CPUs are among theirs.

    Source: systemd.special(7), system.slice, user.slice; kubernetes#85764 (a kubelet limits neither).
    """
    why = "exclusive-for host: the CPUs that no pod has for itself"
    found = {unit.name: unit for unit in reserved}
    for name in HOST_SLICES if cpus else ():
        unit = found.get(name) or slice_unit(name, "processes of the host")
        found[name] = _with_allowed(unit, AllowedCpus(cpus=cpus, why=why))
    return found.values()


def _isolate(root: DesiredUnit, cpus: Cpus) -> DesiredUnit:
    """Return the slice of all pods; it is a partition if CPUs of some pods are isolated.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition: the parent of a
    partition is one, and no other control group has its CPUs.
    """
    if not cpus:
        return root
    why = f"{_WHY_PARTITION}: the CPUs that are not reserved, which the host leaves"
    return _with_allowed(root, AllowedCpus(cpus=cpus, why=why, partition=PARTITION_ROOT))


def _with_allowed(unit: DesiredUnit, allowed: AllowedCpus) -> DesiredUnit:
    return replace(unit, properties=_replace_cpus(unit.properties, allowed))


def _replace_cpus(
    properties: tuple[PropertyValue, ...], allowed: AllowedCpus | None
) -> tuple[PropertyValue, ...]:
    others = without_cpus(properties)
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
