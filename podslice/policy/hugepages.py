"""Huge pages per size: their limits, and their part of memory limits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from podslice.model.config import Config, Rules
from podslice.model.node import Node
from podslice.model.pod import Container, Pod
from podslice.model.properties import MEMORY_MAX, PROTECTIONS
from podslice.model.quantity import format_bytes, parse_quantity
from podslice.model.resources import (
    HUGEPAGES_PREFIX,
    Amounts,
    Resources,
    is_hugepages,
    whole,
)
from podslice.model.unit import PropertyValue

HugePages = dict[int, int]
"""Size of a page in bytes → limit in bytes."""

_COUNTED = (MEMORY_MAX, *PROTECTIONS)


def pod_hugepages(counted: Resources, known: Iterable[int] = ()) -> HugePages:
    """Return the limits of a pod: its effective requests, and 0 for other known sizes.

    Source: Kubernetes, pkg/kubelet/cm/helpers_linux.go, HugePageLimits, and
    cgroup_manager_linux.go, maybeSetHugetlb ("for each page size omitted, limit to 0").
    """
    limits = {**dict.fromkeys(known, 0), **_by_size(counted.requests)}
    return _shared(tuple(limits.items()))


def container_hugepages(
    pod: Pod, container: Container, rules: Rules, known: Iterable[int] = ()
) -> HugePages:
    """Return the limits of a container, for every size that is known or that its pod states.

    One that states none has no limit of its own where the pod level states one (the proposal), or
    the pod's (Kubernetes), and 0 where there is no pod level.

    Source: Pod-Level Resource Limits, "HugeTLB cgroup"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetHugepageLimitsFromResources, which
    begins with 0 for each of the kernel's sizes.
    """
    own, at_pod = _by_size(container.resources.limits), _by_size(pod.resources.limits)
    named = set(at_pod).union(*(_by_size(each.resources.limits) for each in pod.containers))
    limits: HugePages = {}
    for size in sorted(named.union(known)):
        if size in own:
            limits[size] = own[size]
        elif size not in at_pod:
            limits[size] = 0
        elif rules is Rules.KUBERNETES:
            limits[size] = at_pod[size]
    return _shared(tuple(limits.items()))


@lru_cache(maxsize=64)
def _shared(limits: tuple[tuple[int, int], ...]) -> HugePages:
    """Return one object for equal limits, which most pods and containers have."""
    return dict(limits)


def counts_as_memory(node: Node, config: Config) -> bool:
    """Return whether the memory limits of the node's control groups include huge pages."""
    stated = config.memory_hugetlb_accounting
    return node.counts_hugepages if stated is None else stated


def most_bytes(pod: Pod, limits: HugePages) -> int:
    """Return the maximum of a container with these limits; the pod level's applies without one."""
    return sum({**_by_size(pod.resources.limits), **limits}.values())


def with_hugepages(
    properties: tuple[PropertyValue, ...], hugepages_bytes: int
) -> tuple[PropertyValue, ...]:
    """Return the properties, with huge pages added to those of memory.

    Where the kernel counts huge pages as memory, a process whose huge pages do not fit its limit
    is not killed: it repeats the page fault for ever. The protection includes them as well, since they
    are part of the usage that it is compared with.

    Source: Linux, mm/hugetlb.c, alloc_hugetlb_folio (mem_cgroup_charge_hugetlb), which fails with
    ENOSPC; mm/memcontrol.c, mem_cgroup_calculate_protection.
    """
    if not hugepages_bytes:
        return properties
    found = []
    plus = f"{format_bytes(hugepages_bytes)} of huge pages, which count as memory here"
    for each in properties:
        if each.name not in _COUNTED:
            found.append(each)
            continue
        value = int(each.value) + hugepages_bytes
        why = f"{each.why} + {plus} = {format_bytes(value)}"
        found.append(replace(each, value=value, why=why))
    return tuple(found)


def page_size_bytes(resource: str) -> int | None:
    """Return the page size of `hugepages-2Mi`; None if it is not a page size."""
    try:
        milli = parse_quantity(resource.removeprefix(HUGEPAGES_PREFIX)).milli
    except ValueError:
        return None
    return milli // 1000 if milli > 0 and milli % 1000 == 0 else None


def _by_size(amounts: Amounts) -> HugePages:
    return {
        size: whole(amounts, name) or 0
        for name in sorted(filter(is_hugepages, amounts))
        if (size := page_size_bytes(name))
    }
