"""The properties of slices and scopes, each with the field, the formula or the annotation that gave it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from podslice.errors import Problem, warning
from podslice.model.config import (
    Config,
    CpuManagerPolicy,
    MemoryProtection,
    OomPolicy,
    Rules,
    SwapBehavior,
)
from podslice.model.node import Node, format_cpus, parse_cpus
from podslice.model.pod import Container, ContainerKind, Pod, Qos
from podslice.model.properties import (
    ALLOWED_CPUS,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MAX,
    MEMORY_MIN,
    MEMORY_SWAP_MAX,
    OOM_SCORE_ADJ,
    PROPERTIES,
    PROTECTIONS,
    QUOTA_PERIOD_USEC,
    TASKS_MAX,
    StatedProperties,
    annotation_key,
    describe_annotation,
)
from podslice.model.quantity import format_bytes, human_bytes
from podslice.model.resources import (
    CPU,
    MEMORY,
    PIDS,
    Amounts,
    Resources,
    format_amount,
    memory_bytes,
    whole,
)
from podslice.model.unit import PropertyValue, limit_of
from podslice.policy.aggregate import (
    ContainerSum,
    aggregate,
    amounts_of,
    effective,
    lacking_limit,
    sum_of,
)
from podslice.policy.allocatable import allocate, check_controller
from podslice.policy.convert import (
    MAX_WEIGHT,
    MIN_SHARES,
    MIN_WEIGHT,
    curve_of,
    quota_from_milli,
    shares_from_milli,
    unbounded_weight,
)
from podslice.policy.eviction import is_critical


def tasks_limit(pod: Pod, config: Config) -> Iterator[PropertyValue]:
    """Yield TasksMax of a pod's slice: the smaller one of its own limit and the node's.

    Source: KEP-6063, "Kubelet Implementation": min(podPidsLimit, spec.resources.limits.pid);
    Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go, EnsureExists.
    """
    own, most = whole(pod.resources.limits, PIDS), config.pod_max_pids
    why = f"spec.resources.limits.{PIDS} {own}"
    if own is not None and (most is None or own <= most):
        yield PropertyValue(name=TASKS_MAX, value=own, why=why)
    elif most is not None:
        why = "pod-max-pids" if own is None else f"{why}, limited to pod-max-pids"
        yield PropertyValue(name=TASKS_MAX, value=most, why=why)


@lru_cache(maxsize=256)
def _property_value(*, name: str, value: int, why: str) -> PropertyValue:
    """Return a value that all pods with it share, since replicas are alike."""
    return PropertyValue(name=name, value=value, why=why)


def pod_properties(
    pod: Pod, stated: Pod, qos: Qos, counted: Resources, config: Config
) -> tuple[PropertyValue, ...]:
    """Return the properties of a pod's slice; `stated` is the pod before defaults, for the reasons.

    Guaranteed and Burstable: weight; quota and memory each only if the pod level or every container
    has that limit, as in a Guaranteed pod. BestEffort: shares 2. A request above the limit is
    protected up to the limit. Each class may have a limit of process ids.

    Source: Kubelet pod level resource management, "Pod level cgroups"; Pod-Level Resource Limits,
    "Proposal" and "Design Details"; Kubernetes, pkg/kubelet/cm/helpers_linux.go,
    ResourceConfigForPod.
    """
    tasks = tasks_limit(pod, config)
    if qos is Qos.BESTEFFORT:
        return settle((_weight_of_none(config), *tasks))
    properties = [cpu_weight(counted.requests, explain_sum(pod, stated, "requests", CPU), config)]
    properties += memory_request(
        counted.requests, explain_sum(pod, stated, "requests", MEMORY), qos, config
    )
    if not why_no_limit(pod, CPU, config.rules):
        properties += cpu_limit(counted.limits, explain_sum(pod, stated, "limits", CPU), config)
    if not why_no_limit(pod, MEMORY, config.rules):
        properties += memory_limit(counted.limits, explain_sum(pod, stated, "limits", MEMORY))
    return settle((*properties, *tasks))


def settle(properties: Iterable[PropertyValue]) -> tuple[PropertyValue, ...]:
    """Return the properties of a unit by name, with the protection capped at the memory limit."""
    by_name = {property_.name: property_ for property_ in properties}
    limit = by_name.get(MEMORY_MAX)
    for name in PROTECTIONS:
        asked = by_name.get(name)
        # The requests of init containers may exceed the pod's limit, which applies after them.
        if limit is not None and asked is not None and int(asked.value) > int(limit.value):
            why = f"{asked.why} = {human_bytes(int(asked.value))}, limited to MemoryMax"
            by_name[name] = _property_value(name=name, value=int(limit.value), why=why)
    return tuple(by_name[name] for name in sorted(by_name))


def init_properties(
    pod: Pod, stated: Pod, qos: Qos, config: Config
) -> tuple[PropertyValue, ...] | None:
    """Return the properties of a pod's slice in its init phase; None if they do not differ.

    Under the proposal the pod level's limits of cpu and memory apply only after it; until then the
    slice has the limits that it would have without them.

    Source: Pod-Level Resource Limits, "Init Containers" and "Design Details", steps 3 to 5.
    """
    if config.rules is Rules.KUBERNETES or qos is Qos.BESTEFFORT:
        return None
    lasting = {name: milli for name, milli in pod.resources.limits.items() if name == PIDS}
    if len(lasting) == len(pod.resources.limits) or not pod.of_kind(ContainerKind.INIT):
        return None
    unbound = replace(pod, resources=replace(pod.resources, limits=lasting))
    return pod_properties(unbound, stated, qos, effective(unbound), config)


def container_properties(
    pod: Pod, container: Container, qos: Qos, config: Config
) -> tuple[PropertyValue, ...]:
    """Return the properties of a container's scope: its own request and limit.

    Under the rules of Kubernetes a container without a limit gets the pod's, and one without a CPU
    request the weight of the pod's CPU limit; under the proposal it is unlimited below the pod.

    Source: Pod-Level Resource Limits, "Proposal" (the example's hierarchy); Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources,
    getCPULimit and calculateLinuxResources.
    """
    if qos is Qos.BESTEFFORT:
        return (_weight_of_none(config, container=True),)
    requests, limits = container.resources.requests, container.resources.limits
    at_pod, is_kubernetes = pod.resources.limits, config.rules is Rules.KUBERNETES
    weighs, why = requests, _own("requests", CPU, requests)
    if is_kubernetes and CPU not in requests and at_pod.get(CPU):
        weighs, why = at_pod, f"the pod's {_own('limits', CPU, at_pod)}"
    properties = [cpu_weight(weighs, why, config, container=True)]
    properties += memory_request(requests, _own("requests", MEMORY, requests), qos, config)
    for resource in (CPU, MEMORY):
        applies, whose = limits, ""
        if is_kubernetes and not limits.get(resource):
            applies, whose = at_pod, "the pod's "
        why = f"{whose}{_own('limits', resource, applies)}"
        is_cpu = resource == CPU
        properties += cpu_limit(applies, why, config) if is_cpu else memory_limit(applies, why)
    return settle(properties)


def overhead_properties(pod: Pod, qos: Qos, config: Config) -> tuple[PropertyValue, ...]:
    """Return the properties of the scope of a pod's helpers: the overhead as requests, no limits.

    Source: KEP-688, "Pod Overhead": the pod's own limits are raised by the overhead.
    """
    if qos is Qos.BESTEFFORT:
        return (_weight_of_none(config, container=True),)
    overhead = pod.overhead
    return (
        cpu_weight(overhead, _own("overhead", CPU, overhead), config, container=True),
        *memory_request(overhead, _own("overhead", MEMORY, overhead), qos, config),
    )


def _own(part: str, resource: str, amounts: Amounts) -> str:
    stated = amounts.get(resource)
    return f"{part}.{resource} " + ("none" if stated is None else format_amount(resource, stated))


def why_no_limit(pod: Pod, resource: str, rules: Rules) -> str:
    """Return why a pod's slice has no limit for a resource; empty when it has one."""
    if pod.resources.limits.get(resource):
        return ""
    names = [container.name for container in lacking_limit(pod, resource, rules)]
    if not names:
        return ""
    who = f"container {names[0]} has" if len(names) == 1 else f"containers {', '.join(names)} have"
    return f"{who} no {resource} limit"


def _weight_of_none(config: Config, *, container: bool = False) -> PropertyValue:
    return weight(MIN_SHARES, f"BestEffort → {MIN_SHARES} shares", config, container=container)


def weight(shares: int, why: str, config: Config, *, container: bool = False) -> PropertyValue:
    """Return CPUWeight for CPU shares, of a slice or of a container's scope."""
    curve = curve_of(config.cpu_weight_mapping, container=container)
    before = unbounded_weight(shares, curve)
    value = min(max(before, MIN_WEIGHT), MAX_WEIGHT)
    text = f"{why} → {curve}"
    if value != before:
        text += f" = {before}, clamped to {value}: systemd accepts {MIN_WEIGHT} to {MAX_WEIGHT}"
    return _property_value(name=CPU_WEIGHT, value=value, why=text)


def cpu_weight(
    requests: Amounts, why: str, config: Config, *, container: bool = False
) -> PropertyValue:
    """Return CPUWeight for a CPU request; none counts as the minimum."""
    shares = shares_from_milli(requests.get(CPU, 0))
    return weight(shares, f"{why} → {shares} shares", config, container=container)


def protection_property(qos: Qos, config: Config) -> str | None:
    """Return the property that protects the memory requests of a class; None for no protection.

    Source: KEP-2570, memoryReservationPolicy: with TieredReservation memory.min for Guaranteed pods
    and memory.low for Burstable pods.
    """
    if config.memory_protection is MemoryProtection.TIERED:
        return MEMORY_MIN if qos is Qos.GUARANTEED else MEMORY_LOW
    kinds = {MemoryProtection.LOW: MEMORY_LOW, MemoryProtection.MIN: MEMORY_MIN}
    return kinds.get(config.memory_protection)


def memory_request(
    requests: Amounts, why: str, qos: Qos, config: Config
) -> Iterator[PropertyValue]:
    """Yield the memory request as the kernel's protection: the proposal's soft limit.

    Source: Pod-Level Resource Limits, "Design Details", step 6.
    """
    name = protection_property(qos, config)
    milli = requests.get(MEMORY)
    if name and milli:
        # Rounded up to whole bytes, as Kubernetes' Quantity.Value().
        yield _property_value(name=name, value=-(-milli // 1000), why=why)


def memory_limit(limits: Amounts, why: str) -> Iterator[PropertyValue]:
    """Yield MemoryMax for a memory limit."""
    milli = limits.get(MEMORY)
    if milli:
        # Rounded up to whole bytes; the kernel rounds this down to whole pages.
        yield _property_value(name=MEMORY_MAX, value=-(-milli // 1000), why=why)


def cpu_limit(limits: Amounts, why: str, config: Config) -> Iterator[PropertyValue]:
    """Yield the CPU quota for a CPU limit, and its period if it is not the default 100 ms."""
    milli = limits.get(CPU)
    if not milli or not config.cpu_cfs_quota:
        return
    period_usec = config.cpu_cfs_quota_period_usec
    quota = quota_from_milli(milli, period_usec=period_usec)
    text = f"{why} → {quota.asked_usec} µs per second"
    if quota.per_sec_usec != quota.asked_usec:
        text += f", rounded up to {quota.per_sec_usec}: systemd stores whole percents"
    yield _property_value(name=CPU_QUOTA, value=quota.per_sec_usec, why=text)
    if period_usec != QUOTA_PERIOD_USEC:
        yield _property_value(name=CPU_QUOTA_PERIOD, value=period_usec, why="cpu-cfs-quota-period")


def explain_sum(pod: Pod, stated: Pod, part: str, resource: str) -> str:
    """Describe where a pod's amount comes from: `requests.cpu 250m + 250m = 500m`.

    Args:
        pod: with its defaults.
        stated: as its manifest has it, to mark what was defaulted.
        part: `requests` or `limits`.
        resource: its name.
    """
    level = amounts_of(pod.resources, part).get(resource)
    if level is None:
        of_containers = sum_of(pod, part, resource)
        amount = of_containers.amount
        text = _describe_sum(of_containers, pod, stated, part, resource)
    else:
        text, amount = f"spec.resources.{part}.{resource} {format_amount(resource, level)}", level
        if resource not in amounts_of(stated.resources, part):
            has_sum = resource in amounts_of(aggregate(pod), part)
            text += " (the containers' sum)" if has_sum else " (its limit)"
    overhead = pod.overhead.get(resource)
    if overhead and (amount or part == "requests"):
        plus = f"overhead {format_amount(resource, overhead)}"
        text += f" + {plus} = {format_amount(resource, amount + overhead)}"
    return text


def _describe_sum(
    of_containers: ContainerSum, pod: Pod, stated: Pod, part: str, resource: str
) -> str:
    """Describe a sum with its terms, each marked where it is a limit that counts as the request."""
    terms = []
    for index, term in of_containers.terms:
        is_stated = resource in amounts_of(stated.containers[index].resources, part)
        text = format_amount(resource, term)
        terms.append(text if is_stated else f"{text} (limit)")
    text = " + ".join(terms) or "none"
    if len(terms) > 1:
        text += f" = {format_amount(resource, of_containers.amount)}"
    if of_containers.init is not None:
        text += f" (init container {of_containers.init.name})"
    return f"{part}.{resource} {text}"


def memory_high(
    pod: Pod, container: Container, node: Node, config: Config
) -> Iterator[PropertyValue]:
    """Yield MemoryHigh of a container of a pod with its defaults; nothing without a factor.

    It is request + factor × (limit - request), in whole pages. A container without a limit has that
    of the pod level, or else the capacity of the node less the reservations. A container whose
    request is its limit is not throttled, and neither is one without both. The class of the pod has
    no effect.

    Source: KEP-2570, "Alpha v1.27"; Kubernetes 1.36.2,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, generateLinuxContainerResources, with
    pkg/kubelet/cm/node_container_manager_linux.go, getNodeAllocatableAbsolute. That kubelet does not
    use the limit of the pod level.
    """
    factor_milli = config.memory_throttling_factor_milli
    # In place of the pod's limit the kubelet takes the memory of the node, which a container below
    # that limit can never reach.
    own, at_pod = (memory_bytes(each.resources.limits) for each in (container, pod))
    request, limit = memory_bytes(container.resources.requests) or 0, own or at_pod or 0
    if factor_milli is None or request == limit:
        return
    what = "limits.memory" if own else "the pod's limits.memory"
    what += f" {format_bytes(limit)}"
    if not limit:
        limit = memory_bytes(allocate(node, config).enforced) or 0
        what = f"the node's memory less the reservations {human_bytes(limit)}"
    page = node.page_size_bytes
    # The division by the 1000 of the factor and the rounding down to pages are one.
    value = (request * 1000 + (limit - request) * factor_milli) // (1000 * page) * page
    if value > request:
        why = f"requests.memory {format_bytes(request)}, and {factor_milli / 1000:g} of the rest of"
        why += f" {what}"
        yield PropertyValue(name=MEMORY_HIGH, value=value, why=why)


def swap_behavior(config: Config) -> SwapBehavior:
    """Return the behavior that applies: the stated one, else the default of the rules.

    Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_container_linux.go,
    configureContainerSwapResources: without memorySwap.swapBehavior a container has no swap.
    """
    if config.memory_swap_behavior is not None:
        return config.memory_swap_behavior
    is_kubernetes = config.rules is Rules.KUBERNETES
    return SwapBehavior.NO_SWAP if is_kubernetes else SwapBehavior.UNLIMITED


def node_memory(node: Node, config: Config) -> int:
    """Return the memory of the node in bytes; 0 if it is not known."""
    capacity = config.capacity if MEMORY in config.capacity else node.capacity
    return memory_bytes(capacity) or 0


def swap_limit(
    pod: Pod, container: Container, qos: Qos, node: Node, config: Config
) -> Iterator[PropertyValue]:
    """Yield MemorySwapMax of a container of a pod with its defaults; nothing if it is unlimited.

    With LimitedSwap it is the container's share of the node's swap, rounded down: memory request /
    memory of the node × swap of the node. The kubelet computes with floating point numbers, whose
    result is a byte less at times.

    Source: KEP-2400, "Steps to Calculate Swap Limit"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, calcSwapForBurstablePods.
    """
    behavior = swap_behavior(config)
    if behavior is SwapBehavior.UNLIMITED:
        return
    why = f"memory-swap-behavior {behavior}"
    if behavior is SwapBehavior.NO_SWAP:
        if config.memory_swap_behavior is None:
            why += ", the default of these rules"
        yield PropertyValue(name=MEMORY_SWAP_MAX, value=0, why=why)
        return
    of_node = node_memory(node, config)
    reason = why_no_swap(pod, container, qos, of_node)
    if reason:
        yield PropertyValue(name=MEMORY_SWAP_MAX, value=0, why=f"{why}: {reason}")
        return
    request = memory_bytes(container.resources.requests) or 0
    share = f"requests.memory {format_bytes(request)} of {human_bytes(of_node)}"
    why += f": {share}, × {human_bytes(node.swap_bytes)} of swap"
    # The swap is always that of this host, also where `capacity` states another memory.
    value = request * node.swap_bytes // of_node
    yield PropertyValue(name=MEMORY_SWAP_MAX, value=value, why=why)


def why_no_swap(pod: Pod, container: Container, qos: Qos, node_memory_bytes: int) -> str:
    """Return why a container gets no part of the node's swap; empty when it gets one.

    Source: KEP-2400, "Steps to Calculate Swap Limit"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetContainerSwapBehavior, and
    calcSwapForBurstablePods, which fails for a request above the memory of the node.
    """
    if qos is not Qos.BURSTABLE:
        return f"{qos} pods get none"
    if is_critical(pod) or container.kind is ContainerKind.OVERHEAD:
        return "critical pods and the helpers of pods get none"
    request = memory_bytes(container.resources.requests)
    if not request:
        return "no memory request"
    if request == memory_bytes(container.resources.limits):
        return "the memory request is the limit"
    if request > node_memory_bytes:
        return "the memory request is more than the node's memory"
    return ""


GUARANTEED_ADJ = -997
BESTEFFORT_ADJ = 1000
NODE_CRITICAL_PRIORITY = 2_000_001_000
"""Pods from `system-node-critical` on are protected like Guaranteed ones."""


def oom_score_adj(pod: Pod, container: Container, qos: Qos, node_memory_bytes: int) -> int:
    """Return the adjustment for the processes of one container.

    What an annotation of the container or the pod states, from -1000. Otherwise, for a Burstable pod
    1000 less its share of the node's memory in thousandths, 3 to 999; a surplus of the pod level over
    the containers' sum is divided evenly among them.

    Source: Kubernetes, pkg/kubelet/qos/policy.go, GetContainerOOMScoreAdjust.
    """
    for stated in (container.properties, pod.properties):
        if OOM_SCORE_ADJ in stated:
            return int(stated[OOM_SCORE_ADJ])
    if pod.priority >= NODE_CRITICAL_PRIORITY or qos is Qos.GUARANTEED:
        return GUARANTEED_ADJ
    if qos is Qos.BESTEFFORT:
        return BESTEFFORT_ADJ
    request = memory_bytes(container.resources.requests) or 0
    if container.kind is ContainerKind.SIDECAR:
        # A sidecar must not be killed before the containers that depend on it.
        apps = (each.resources.requests for each in pod.of_kind(ContainerKind.APP))
        request = max(request, min((memory_bytes(each) or 0 for each in apps), default=0))
    if at_pod_level := memory_bytes(pod.resources.requests):
        surplus = at_pod_level - (memory_bytes(aggregate(pod).requests) or 0)
        request += max(surplus, 0) // max(len(pod.containers), 1)
    adjustment = 1000 - 1000 * request // max(node_memory_bytes, 1)
    # Between the adjustments of the other classes: BestEffort is killed first, Guaranteed last.
    return min(max(adjustment, 1000 + GUARANTEED_ADJ), BESTEFFORT_ADJ - 1)


def kills_whole_container(config: Config) -> bool:
    """Return whether the kernel kills all processes of a container together.

    Source: Kubernetes v1.36, pkg/kubelet/kubelet.go, NewMainKubelet (singleProcessOOMKill is false
    with cgroup v2 unless it is stated), and pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
    (memory.oom.group=1 then).
    """
    return config.oom_policy is not OomPolicy.PROCESS


Properties = tuple[PropertyValue, ...]


def with_period(config: Config, *stated: StatedProperties) -> Config:
    """Return the configuration with the period of CPU quotas that the first of them states."""
    for each in stated:
        if CPU_QUOTA_PERIOD in each:
            return replace(config, cpu_cfs_quota_period_usec=int(each[CPU_QUOTA_PERIOD]))
    return config


def with_stated(properties: Properties, stated: StatedProperties) -> Properties:
    """Return the properties of a unit with those that are stated.

    A stated value replaces another one, except that of TasksMax the smaller applies, and that a
    period, with which a quota was computed before, needs one.
    """
    if not stated:
        return properties
    by_name = {each.name: each for each in properties}
    for name, value in stated.items():
        if name == OOM_SCORE_ADJ:  # of processes
            continue
        before = by_name.get(name)
        is_more = name == TASKS_MAX and before is not None and int(before.value) < int(value)
        if not (is_more or (name == CPU_QUOTA_PERIOD and before is None)):
            why = describe_annotation(name, value)
            by_name[name] = PropertyValue(name=name, value=value, why=why)
    return tuple(by_name[name] for name in sorted(by_name))


def describe_stall(properties: Properties, stated: StatedProperties, capacity: Amounts) -> str:
    """Describe how long a pod may wait for its next quota; empty without a stated period.

    The quota of a period is used up soonest by as many threads as the pod has CPUs; until the next
    period none of the pod's processes runs: period - quota / CPUs.

    Source: Linux, Documentation/scheduler/sched-bwc.rst: a group that has used its quota is
    throttled until the next period.
    """
    quota = limit_of(properties, CPU_QUOTA)
    period_usec = stated.get(CPU_QUOTA_PERIOD)
    if period_usec is None or quota is None:
        return ""
    milli = capacity.get(CPU) or 1000
    if ALLOWED_CPUS in stated:
        milli = min(milli, len(_cpus(stated)) * 1000)
    # quota: µs per second, so period × quota / 1,000,000 is the CPU time of a period; it is divided
    # by milli / 1000 CPUs.
    used_usec = int(period_usec) * quota // 1000 // milli
    stall = max(int(period_usec) - used_usec, 0) / 1000
    return (
        f"{describe_annotation(CPU_QUOTA_PERIOD, period_usec)}: a container that uses up the quota"
        f" stalls the pod for up to {stall:g} ms"
    )


def check_annotations(  # noqa: PLR0913
    stated: StatedProperties,
    properties: Properties,
    *,
    of_pod: StatedProperties,
    node: Node,
    cpus: frozenset[int] | None,
    config: Config,
    where: str,
    container: str = "",
) -> Iterator[Problem]:
    """Yield the problems of the annotations of a pod, or of one of its containers.

    Errors: the node cannot apply a property, or the CPU manager assigns it. Warnings: a property has
    no effect, or a container has CPUs that its pod does not have.

    Args:
        stated: the properties that they state.
        properties: of the unit, with the stated ones.
        of_pod: the properties that the annotations of the pod state.
        node: its controllers.
        cpus: of the node; None if they are not known.
        config: the node's configuration.
        where: the address of the annotations.
        container: the name of the container; empty for the pod.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus: it is limited by that of
    the parent, whose CPUs apply if none is left.
    """

    def at(name: str) -> str:
        return f"{where}[{annotation_key(name, container)}]"

    for name in stated:
        lacking = [*check_controller(PROPERTIES[name].controller, node, at(name))]
        yield from lacking
        # Further problems of its value have no effect without the controller.
        if lacking:
            continue
        if name == ALLOWED_CPUS and cpus is not None and (missing := _cpus(stated) - cpus):
            text = f"the node does not have {_describe_cpus(missing)}"
            yield Problem(where=at(name), message=text, hint=f"it has {_describe_cpus(cpus)}")
    if ALLOWED_CPUS in stated and config.cpu_manager_policy is not CpuManagerPolicy.NONE:
        yield Problem(
            where=at(ALLOWED_CPUS),
            message=f"cpu-manager-policy {config.cpu_manager_policy} assigns the CPUs of pods",
            hint="leave it out, or set cpu-manager-policy to none",
        )
    if CPU_QUOTA_PERIOD in stated and limit_of(properties, CPU_QUOTA) is None:
        hint = "it has no effect without a CPU limit"
        yield warning(at(CPU_QUOTA_PERIOD), "there is no CPU quota", hint)
    limit, high = limit_of(properties, MEMORY_MAX), stated.get(MEMORY_HIGH)
    if high is not None and limit is not None and int(high) >= limit:
        text = f"{format_bytes(int(high))} is not less than the memory limit"
        yield warning(at(MEMORY_HIGH), text, "it has no effect")
    if ALLOWED_CPUS in stated and ALLOWED_CPUS in of_pod:
        of_both = _cpus(stated) & _cpus(of_pod)
        if missing := _cpus(stated) - of_both:
            text = f"the pod is not allowed {_describe_cpus(missing)}"
            hint = f"the container runs on {_describe_cpus(of_both or _cpus(of_pod))}"
            yield warning(at(ALLOWED_CPUS), text, hint)


def _cpus(stated: StatedProperties) -> frozenset[int]:
    return frozenset(parse_cpus(str(stated[ALLOWED_CPUS])))


def _describe_cpus(cpus: frozenset[int]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
