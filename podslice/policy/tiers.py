"""What the tiers get: CPU by their pods' requests, memory reserved for the tiers above."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from podslice.model.codec import share_of_percent
from podslice.model.config import Config
from podslice.model.desired import PodDecision
from podslice.model.pod import Qos
from podslice.model.properties import CPU_WEIGHT, MEMORY_HIGH, MEMORY_MAX, PROTECTIONS
from podslice.model.quantity import format_bytes
from podslice.model.resources import CPU, MEMORY, format_amount, memory_bytes
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import threshold_amount
from podslice.policy.convert import MAX_WEIGHT, MIN_SHARES, shares_from_milli
from podslice.policy.eviction import is_critical
from podslice.policy.unit_properties import settle, weight

_CAP_STEP_BYTES = 2**20
"""A limit at the current usage is rounded up to this, so that it does not change with a page."""


def requested(pods: Iterable[PodDecision], resource: str, *classes: Qos) -> int:
    """Return the sum of the effective requests of the pods of some classes, in thousandths."""
    return sum(pod.requests.get(resource, 0) for pod in pods if pod.qos in classes)


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
        target = max(target, page_size)
        if used_bytes is not None and used_bytes > target:
            why += f" = {format_bytes(target)}, kept at the current usage until usage falls"
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
    yield PropertyValue(name="ManagedOOMSwap", value="kill", why=why)
    yield PropertyValue(name="ManagedOOMMemoryPressure", value="kill", why=why)
    percent = config.oomd_memory_pressure_limit_percent
    if percent is not None:
        yield PropertyValue(
            name="ManagedOOMMemoryPressureLimit",
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
        others = (pod for pod in pods if pod.pod.key not in stated)
        cpu_milli = requested(others, CPU, qos)
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
        f"capacity - kube-reserved - system-reserved {format_bytes(available_bytes)} - {percent}%"
        f" of the requests of {' and '.join(above)} pods {format_bytes(sum(asked))}"
    )
    hugepages = sum(pod.hugepages_in_memory_bytes for pod in pods if pod.qos in above)
    if hugepages:
        why += f" - their huge pages {format_bytes(hugepages)}, which count as memory here"
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
    high = limit_bytes - min(threshold_bytes, limit_bytes) // 2
    yield PropertyValue(
        name=MEMORY_HIGH,
        value=max(high // page_size * page_size, page_size),
        why=f"MemoryMax - half of the eviction-tier threshold {format_bytes(threshold_bytes)}",
    )
