"""Huge pages per size. Systemd has no property for them, so they are planned and shown."""

from __future__ import annotations

from podslice.model.config import Rules
from podslice.model.pod import Container, Pod
from podslice.model.quantity import parse_quantity
from podslice.model.resources import (
    HUGEPAGES_PREFIX,
    Amounts,
    Resources,
    is_hugepages,
    whole,
)

HugePages = dict[int, int]
"""Size of a page in bytes → limit in bytes."""


def pod_hugepages(counted: Resources) -> HugePages:
    """The limits of a pod, from its effective requests, which are the limits.

    Source: Kubernetes, pkg/kubelet/cm/helpers_linux.go, HugePageLimits.
    """
    return _by_size(counted.requests)


def container_hugepages(pod: Pod, container: Container, rules: Rules) -> HugePages:
    """The limits of a container, for every size that its pod names.

    One that states none has no limit of its own where the pod level states one (the proposal), or
    the pod's (Kubernetes), and nothing where there is no pod level.

    Source: seed 002, "HugeTLB cgroup"; Kubernetes,
    pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, GetHugepageLimitsFromResources.
    """
    own, at_pod = _by_size(container.resources.limits), _by_size(pod.resources.limits)
    sizes = set(at_pod).union(*(_by_size(each.resources.limits) for each in pod.containers))
    limits: HugePages = {}
    for size in sorted(sizes):
        if size in own:
            limits[size] = own[size]
        elif size not in at_pod:
            limits[size] = 0
        elif rules is Rules.KUBERNETES:
            limits[size] = at_pod[size]
    return limits


def page_size_bytes(resource: str) -> int | None:
    """The size of the pages that `hugepages-2Mi` is about; None where it is none."""
    try:
        milli = parse_quantity(resource.removeprefix(HUGEPAGES_PREFIX)).milli
    except ValueError:
        return None
    return milli // 1000 if milli > 0 and milli % 1000 == 0 else None


def _by_size(amounts: Amounts) -> HugePages:
    sizes = {name: page_size_bytes(name) for name in sorted(filter(is_hugepages, amounts))}
    return {size: whole(amounts, name) or 0 for name, size in sizes.items() if size}
