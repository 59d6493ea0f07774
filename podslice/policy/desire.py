"""The desired state: from pods, node and configuration to the units that should exist.

The tiers get CPU by their pods' requests, and memory without what is reserved for the tiers above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from podslice.model.codec import share_of_percent
from podslice.model.config import Config, Enforce, ExclusiveFor, MemoryProtection, Rules
from podslice.model.desired import Desired, PodDecision, Refusal
from podslice.model.naming import TIERS, Tree, slice_of_cgroup
from podslice.model.node import Allocation, Node
from podslice.model.pod import NO_PROGRESS, ContainerKind, InitProgress, Pod, Qos
from podslice.model.properties import (
    CPU_WEIGHT,
    MEMORY_HIGH,
    MEMORY_MAX,
    OOMD_PRESSURE,
    OOMD_PRESSURE_LIMIT,
    OOMD_SWAP,
    PROTECTIONS,
    TASKS_MAX,
)
from podslice.model.quantity import human_bytes
from podslice.model.resources import (
    CPU,
    MEMORY,
    PIDS,
    Amounts,
    format_amount,
    human_amounts,
    memory_bytes,
    total,
    whole,
)
from podslice.model.unit import (
    DesiredUnit,
    PropertyValue,
    UnitKind,
    UnitName,
    slice_unit,
)
from podslice.policy.admit import admit
from podslice.policy.allocatable import allocate, threshold_amount
from podslice.policy.convert import MAX_WEIGHT, MIN_SHARES, shares_from_milli
from podslice.policy.decide import decide
from podslice.policy.eviction import is_critical
from podslice.policy.exclusive import CpuAssignment, CpuStage
from podslice.policy.unit_properties import cpu_weight, memory_limit, memory_request, settle, weight


def desire(  # noqa: PLR0913 (the whole input; arguments with a default are keywords)
    candidates: Iterable[PodDecision],
    node: Node,
    config: Config,
    *,
    current: Iterable[Pod] = (),
    terminating: Iterable[Pod] = (),
    used_bytes: Mapping[UnitName, int] | None = None,
    progress: Mapping[str, InitProgress] | None = None,
    known: Iterable[PodDecision] = (),
    stage: CpuStage | None = None,
    cpus: Mapping[UnitName, str] | None = None,
    mounts: bool = True,
) -> Desired:
    """Return the desired state once the candidates have joined the current pods.

    A candidate replaces the current pod of its name, which stays if the candidate is not admitted.
    `known` are earlier decisions for the same node and configuration, `used_bytes` is unreclaimable
    memory per tier, `progress` is by uid; `mounts`: volumes have units. `stage` assigns exclusive
    CPUs, and gets the present CPUs of units, `cpus`; without a stage nothing is exclusive.
    """
    tree, allocation = Tree(cgroup_root=config.cgroup_root), allocate(node, config)
    leaving = tuple(terminating)
    removed = {pod.key for pod in leaving}
    wanted = [decision for decision in candidates if decision.pod.key not in removed]
    by_uid = {decision.pod.uid: decision for decision in (*known, *wanted)}
    staying = (pod for pod in current if pod.key not in removed)
    in_force = [_known(pod, by_uid) or decide(pod, node, config) for pod in staying]
    accepted, refused = _admitting(wanted, in_force, allocation, config)
    assigned = CpuAssignment()
    if stage is not None:
        assigned = stage(in_force, accepted, node, config, cpus or {})
        # Exclusive CPUs are assigned after admission: whole or aligned CPUs may be lacking where
        # the sum fits.
        without = {each.pod for each in assigned.refused}
        accepted = [pod for pod in accepted if pod.pod.key not in without]
    by_key = {pod.pod.key: pod for pod in (*in_force, *accepted)}
    pods = tuple([assigned.place(by_key[key]) for key in sorted(by_key)])
    of_uid = progress or {}
    initializing = frozenset(
        pod.pod.key
        for pod in pods
        if is_initializing(pod.pod, of_uid.get(pod.pod.uid, NO_PROGRESS), config.rules)
    )
    # the sums of the tiers and the root are those of the properties that are in force
    in_phase = tuple(_in_phase(pod, initializing) for pod in pods) if initializing else pods
    units = [*assigned.limit(_node_units(in_phase, allocation, node, config, used_bytes or {}))]
    units += (
        unit for pod in in_phase for unit in pod.units if mounts or unit.kind is not UnitKind.MOUNT
    )
    return Desired(
        root=tree.root,
        units=tuple(units),
        unwanted=dict(_unwanted(tree, pods, in_force, leaving)),
        pods=pods,
        refused=(*refused, *assigned.refused),
        own_cpus=assigned.own,
        lacking_cpus=assigned.lacking,
        available_cpus=assigned.available,
        allocation=allocation,
        requested=total(pod.requests for pod in pods),
        initializing=initializing,
    )


def _known(pod: Pod, before: Mapping[str, PodDecision]) -> PodDecision | None:
    decision = before.get(pod.uid)
    is_same = decision is not None and (decision.pod is pod or decision.pod == pod)
    return decision if is_same else None


def _admitting(
    wanted: list[PodDecision],
    in_force: list[PodDecision],
    allocation: Allocation,
    config: Config,
) -> tuple[list[PodDecision], tuple[Refusal, ...]]:
    """Return the candidates that are admitted, and the refusals; the same requests fit already."""
    if not config.admission:
        return wanted, ()
    before = {pod.pod.key: pod.requests for pod in in_force}
    unchanged = [pod for pod in wanted if before.get(pod.pod.key) == pod.requests]
    changed = [pod for pod in wanted if before.get(pod.pod.key) != pod.requests]
    accepted, refused = admit(changed, in_force, allocation.allocatable)
    return [*unchanged, *accepted], refused


def _unwanted(
    tree: Tree, pods: tuple[PodDecision, ...], before: list[PodDecision], leaving: tuple[Pod, ...]
) -> Iterator[tuple[UnitName, str]]:
    """Yield slices of pods that are removed or of another class; without pods the whole tree.

    And mounts of volumes that a pod has had before and has no longer; removed pods are stopped as a
    whole.
    """
    present = {pod.slice for pod in pods}
    for pod in pods:
        why = f"pod {pod.pod.key} is now {pod.qos}"
        for name in pod.elsewhere:
            yield name, why
    for removed in leaving:
        for name in {tree.pod(removed.uid, qos) for qos in Qos} - present:
            yield name, f"pod {removed.key} is removed"
    if not pods:
        for qos in Qos:
            yield tree.tier(qos), "no pods remain"
    staying = {pod.pod.key for pod in pods}
    mounted = {volume.unit for pod in pods for volume in pod.volumes}
    had = [(pod.pod.key, volume) for pod in before for volume in pod.volumes]
    for key, volume in had:
        if key in staying and volume.unit not in mounted:
            yield volume.unit, f"pod {key} no longer has volume {volume.name}"


def _node_units(
    pods: tuple[PodDecision, ...],
    allocation: Allocation,
    node: Node,
    config: Config,
    used_bytes: Mapping[UnitName, int],
) -> Iterator[DesiredUnit]:
    """Yield the units outside of pods, parents before children."""
    tree, page_size = Tree(cgroup_root=config.cgroup_root), node.page_size_bytes
    yield from _reserved_units(allocation, config)
    root = _root_properties(allocation, pods, config, page_size=page_size)
    yield slice_unit(tree.root, "Pods on this node", root, owned=True)
    available_bytes = memory_bytes(allocation.enforced) or 0
    for qos in TIERS:
        name = tree.tier(qos)
        used = used_bytes.get(name)
        properties = tier_properties(
            qos, pods, available_bytes, config, page_size=page_size, used_bytes=used
        )
        yield slice_unit(name, f"{qos} pods", properties, owned=True, is_tier=True)


def _in_phase(pod: PodDecision, initializing: frozenset[str]) -> PodDecision:
    """Return the pod with the properties that are in force."""
    if pod.pod.key not in initializing or pod.init_properties is None:
        return pod
    # `units_of` yields the slice first.
    slice_ = replace(pod.units[0], properties=pod.init_properties)
    return replace(pod, properties=pod.init_properties, units=(slice_, *pod.units[1:]))


def _root_properties(
    allocation: Allocation, pods: tuple[PodDecision, ...], config: Config, *, page_size: int
) -> tuple[PropertyValue, ...]:
    """Return node allocatable, if it is enforced on pods, and the sum of the protections.

    If everything is reserved, pods get the minimum that systemd accepts.

    Source: Node Allocatable Resources, "Kubelet Evictions Thresholds"; Kubernetes,
    pkg/kubelet/cm/node_container_manager_linux.go, getCgroupConfig and, where nothing is enforced,
    createNodeAllocatableCgroups. There is no CPU quota.
    """
    enforced = Enforce.PODS in config.enforce_node_allocatable
    # Without the reservations the kubelet still limits its root, to the capacity.
    limits = allocation.enforced if enforced else allocation.capacity
    what = "capacity - kube-reserved - system-reserved" if enforced else "capacity"
    # Both protections: with MemoryMin alone, which is what the kubelet sets here, the kernel would
    # not apply the MemoryLow of Burstable pods below.
    properties = list(protection(pods, "the sum over all pods' slices"))
    if CPU in limits:
        properties.append(cpu_weight(limits, f"{what}, cpu", config))
    if enforced or config.rules is Rules.KUBERNETES:
        why = f"{what}, memory"
        if allocation.counts_hugepages and (milli := allocation.hugepages.get(MEMORY)):
            (part,) = human_amounts(MEMORY, milli)
            why += f", with {part} of huge pages, which count as memory here"
        properties += _at_least(page_size, MEMORY_MAX, limits, MEMORY, why)
    reserved = {*allocation.kube_reserved, *allocation.system_reserved}
    if config.rules is Rules.KUBERNETES or (enforced and PIDS in reserved):
        properties += _at_least(1, TASKS_MAX, limits, PIDS, f"{what}, pid")
    return settle(properties)


def _at_least(
    least: int, name: str, limits: Amounts, resource: str, why: str
) -> Iterator[PropertyValue]:
    """Return a limit, if the amount of the resource is known."""
    value = whole(limits, resource)
    if value is not None:
        if value < least:
            why += f" = {value}, raised to {least}, the minimum"
        yield PropertyValue(name=name, value=max(value, least), why=why)


def without_reserved(config: Config) -> Config:
    """Return the configuration with values on units of pods alone."""
    enforced = config.enforce_node_allocatable & {Enforce.PODS}
    return replace(config, enforce_node_allocatable=enforced, exclusive_for=ExclusiveFor.PODS)


def _reserved_units(allocation: Allocation, config: Config) -> Iterator[DesiredUnit]:
    """Yield the slices of system daemons whose reservations are enforced.

    Source: Node Allocatable Resources, "Phase 2"; Kubernetes, node_container_manager_linux.go, the
    `-compressible` kinds enforce CPU only.
    """
    enforce = config.enforce_node_allocatable
    for cgroup, reserved, full in (
        (config.kube_reserved_cgroup, allocation.kube_reserved, Enforce.KUBE_RESERVED),
        (config.system_reserved_cgroup, allocation.system_reserved, Enforce.SYSTEM_RESERVED),
    ):
        if not cgroup or not enforce & {full, Enforce(f"{full}-compressible")}:
            continue
        properties = [cpu_weight(reserved, f"{full} cpu", config)] if CPU in reserved else []
        if full in enforce:
            # a limit of 0 would stop the daemons: inputs.options.rules refuses one
            stated = {name: milli for name, milli in reserved.items() if milli}
            properties += memory_limit(stated, f"{full} memory")
            if config.memory_protection is MemoryProtection.TIERED:
                properties += memory_request(stated, f"{full} memory", Qos.GUARANTEED, config)
            properties += _at_least(1, TASKS_MAX, stated, PIDS, f"{full} pid")
        # A kubelet also limits huge pages to 0 here. Daemons of the host, such as databases, may
        # use huge pages that nothing has reserved: podslice leaves these limits as they are.
        yield slice_unit(slice_of_cgroup(cgroup), f"{full.value} daemons", settle(properties))


def is_initializing(pod: Pod, progress: InitProgress, rules: Rules) -> bool:
    """Return whether the pod is in its init phase, in which its own limits do not apply.

    The phase ends when all init containers have succeeded; Kubernetes' rules do not have one.

    Source: Pod-Level Resource Limits, "Init Containers".
    """
    return rules is Rules.PROPOSAL and not progress.over and bool(pending(pod, progress))


def pending(pod: Pod, progress: InitProgress) -> tuple[str, ...]:
    """Return the init containers that have not exited with 0, in the order in which they run."""
    inits = pod.of_kind(ContainerKind.INIT)
    return tuple([each.name for each in inits if each.name not in progress.done])


def finish(pod: Pod, progress: InitProgress, container: str) -> InitProgress:
    """Return the progress after an init container exits with 0; the last one ends the phase.

    The phase does not begin again if a later manifest adds init containers.
    """
    further = progress._replace(done=progress.done | {container})
    return further._replace(over=further.over or not pending(pod, further))


_CAP_STEP_BYTES = 2**20
"""A limit at the current usage is rounded up to this, so that it does not change with a page."""


def requested_bytes(pods: Iterable[PodDecision], qos: Qos) -> int:
    """Return the sum of the memory requests of a class, each pod's rounded up to whole bytes.

    Source: Kubernetes, pkg/kubelet/cm/qos_container_manager_linux.go, getQoSMemoryRequests.
    """
    return sum(memory_bytes(pod.requests) or 0 for pod in pods if pod.qos is qos)


def tier_properties(
    qos: Qos,
    pods: tuple[PodDecision, ...],
    available_bytes: int,
    config: Config,
    *,
    page_size: int,
    used_bytes: int | None = None,
) -> tuple[PropertyValue, ...]:
    """Return the properties of the slice of the Burstable or BestEffort tier.

    Args:
        qos: the class.
        pods: all of them, with the properties that are in force.
        available_bytes: the capacity without the reservations.
        config: the node's configuration.
        page_size: of the node's memory, in bytes; no limit is less.
        used_bytes: the tier's unreclaimable memory, where it is known.

    Source: Kubelet pod level resource management, "QoS level CPU allocation" and "QoS level memory
    allocation".
    """
    properties = [_tier_weight(qos, pods, config)]
    properties += protection(
        (pod for pod in pods if pod.qos is qos), f"the sum over {qos} pods' slices"
    )
    if config.qos_reserved.get(MEMORY) is not None:
        target, why = _tier_memory(qos, pods, available_bytes, config.qos_reserved[MEMORY])
        # The requests above may exceed what is available, and systemd refuses a limit of 0.
        target = max(target, page_size)
        if used_bytes is not None and used_bytes > target:
            # Below what cannot be reclaimed, the limit would invoke the OOM killer at once.
            why += f" = {human_bytes(target)}, kept at the current usage until usage falls"
            target = -(-used_bytes // _CAP_STEP_BYTES) * _CAP_STEP_BYTES
        limit = PropertyValue(name=MEMORY_MAX, value=target, why=why)
        properties += [limit, *_throttle(qos, pods, int(limit.value), config, page_size)]
    if qos in config.oomd_tiers:
        properties += _oomd(config)
    return settle(properties)


def _oomd(config: Config) -> Iterator[PropertyValue]:
    """Return the properties that let systemd-oomd kill control groups in a tier, one at a time.

    Source: systemd.resource-control(5), ManagedOOMSwap=, ManagedOOMMemoryPressureLimit=.
    """
    why = "oomd-tiers"
    yield PropertyValue(name=OOMD_SWAP, value="kill", why=why)
    yield PropertyValue(name=OOMD_PRESSURE, value="kill", why=why)
    percent = config.oomd_memory_pressure_limit_percent
    if percent is not None:
        yield PropertyValue(
            name=OOMD_PRESSURE_LIMIT,
            value=share_of_percent(percent),
            why=f"oomd-memory-pressure-limit {percent}%",
        )


def _tier_weight(qos: Qos, pods: tuple[PodDecision, ...], config: Config) -> PropertyValue:
    """Return the weight of a tier: the weight of its pods' requests, and the weights that pods state.

    With less than their sum a stated weight would have no effect outside of the tier.
    """
    stated = {
        pod.pod.key: int(pod.pod.properties[CPU_WEIGHT])
        for pod in pods
        if pod.qos is qos and CPU_WEIGHT in pod.pod.properties
    }
    if qos is Qos.BESTEFFORT:
        found = weight(MIN_SHARES, f"the BestEffort tier → {MIN_SHARES} shares", config)
    else:
        others = (pod for pod in pods if pod.qos is qos and pod.pod.key not in stated)
        # One conversion of the sum: shares of single pods are rounded, and at least 2 each.
        cpu_milli = sum(pod.requests.get(CPU, 0) for pod in others)
        shares = shares_from_milli(cpu_milli)
        shown = format_amount(CPU, cpu_milli)
        why = f"requests.cpu of Burstable pods {shown} → {shares} shares"
        found = weight(shares, why, config)
    if not stated:
        return found
    of_pods = sum(stated.values())
    why = f"{found.why} + podslice.io/cpu-weight of {len(stated)} pods {of_pods}"
    return replace(found, value=min(int(found.value) + of_pods, MAX_WEIGHT), why=why)


def protection(pods: Iterable[PodDecision], why: str) -> Iterator[PropertyValue]:
    """Yield the memory protection of an inner slice: for each property the sum of its pods' slices.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, memory.low: "up to the amount of its
    ancestors' effective protection".
    """
    sums = dict.fromkeys(PROTECTIONS, 0)
    for pod in pods:
        for each in pod.properties:
            if each.name in sums:
                sums[each.name] += int(each.value)
    for name, value in sums.items():
        if value:
            yield PropertyValue(name=name, value=value, why=why)


def _tier_memory(
    qos: Qos, pods: tuple[PodDecision, ...], available_bytes: int, percent: int
) -> tuple[int, str]:
    """Return MemoryMax of a tier: the pods' memory, less the requests of higher classes.

    The eviction thresholds are included, so that eviction begins before the kernel's OOM killer acts
    in a tier. Huge pages of higher classes are subtracted in full where they count as memory, since
    they are reserved.

    Source: Kubelet pod level resource management, "QoS level memory allocation", both formulas,
    with Node Allocatable Resources, "Kubelet Evictions Thresholds"; Kubernetes,
    pkg/kubelet/cm/qos_container_manager_linux.go, setMemoryReserve, and container_manager_linux.go,
    which passes GetNodeAllocatableAbsolute.
    """
    above = (Qos.GUARANTEED,) if qos is Qos.BURSTABLE else (Qos.GUARANTEED, Qos.BURSTABLE)
    asked = [requested_bytes(pods, each) for each in above]
    reserved = sum(each * percent // 100 for each in asked)
    why = (
        f"capacity - kube-reserved - system-reserved {human_bytes(available_bytes)} - {percent}%"
        f" of the requests of {' and '.join(above)} pods {human_bytes(sum(asked))}"
    )
    hugepages = sum(pod.hugepages_in_memory_bytes for pod in pods if pod.qos in above)
    if hugepages:
        why += f" - their huge pages {human_bytes(hugepages)}, which count as memory here"
    return available_bytes - reserved - hugepages, why


def _throttle(
    qos: Qos, pods: tuple[PodDecision, ...], limit_bytes: int, config: Config, page_size: int
) -> Iterator[PropertyValue]:
    """Yield MemoryHigh of a tier with an eviction threshold and a pod that may be evicted.

    Above it the kernel slows processes down the more, the closer the tier is to its limit, so that
    the agent has time to evict a pod before the OOM killer acts. It is above the usage at which
    eviction begins: at that usage the kernel would hold the tier just above its threshold, by
    reclaiming file pages that are in use, and no pod would be evicted. Critical pods alone are not
    throttled, since no eviction would end it.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, memory.high: "should be used in scenarios
    where an external process monitors the limited cgroup to alleviate heavy reclaim pressure";
    mm/memcontrol.c, mem_cgroup_handle_over_high.
    """
    threshold = config.eviction_tier.get(qos)
    if threshold is None or all(is_critical(pod.pod) for pod in pods if pod.qos is qos):
        return
    threshold_bytes = threshold_amount(threshold, limit_bytes * 1000) // 1000
    # The kernel slows processes down from 1.25 % above MemoryHigh: a threshold of less than 3 % of
    # the limit has no such effect.
    high = limit_bytes - min(threshold_bytes, limit_bytes) // 2
    yield PropertyValue(
        name=MEMORY_HIGH,
        value=max(high // page_size * page_size, page_size),
        why=f"MemoryMax - half of the eviction-tier threshold {human_bytes(threshold_bytes)}",
    )
