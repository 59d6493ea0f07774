"""Quality of service classes of pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podslice.model.config import VERSION_RULES, KubernetesVersion, Rules
from podslice.model.pod import Pod, Qos
from podslice.model.resources import CPU, MEMORY, Resources, is_pod_level_resource

_COUNTED = (CPU, MEMORY)


def classify(
    pod: Pod,
    rules: Rules = Rules.PROPOSAL,
    version: KubernetesVersion = KubernetesVersion.V1_36,
) -> Qos:
    """Return the class of a pod with its defaults; only cpu and memory above zero count.

    Args:
        pod: the pod.
        rules: the rules that decide.
        version: the version of Kubernetes whose rules they are.

    Source: `proposal`: Pod-Level Resource Limits, "Proposal" (Guaranteed if all containers are, or
    the pod level is). `kubernetes`: Kubernetes, pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS
    (a stated pod level decides alone) and IsPodLevelResourcesSet (of these resources).
    """
    is_kubernetes = rules is Rules.KUBERNETES
    if is_kubernetes and pod.has_empty_level and VERSION_RULES[version].counts_empty_level:
        return Qos.BESTEFFORT  # an empty pod level decides alone
    containers = [container.resources for container in pod.containers]
    if is_kubernetes and _has_level(pod):
        is_guaranteed = _is_guaranteed(pod.resources)
        return Qos.GUARANTEED if is_guaranteed else _not_guaranteed([pod.resources])
    if rules is Rules.PROPOSAL and _is_guaranteed(pod.resources):
        return Qos.GUARANTEED
    if containers and all(map(_is_guaranteed, containers)):
        return Qos.GUARANTEED
    return _not_guaranteed([*containers, pod.resources])


def _has_level(pod: Pod) -> bool:
    """Return whether the pod level states a resource that decides; process ids do not."""
    return any(map(is_pod_level_resource, (*pod.resources.requests, *pod.resources.limits)))


def _not_guaranteed(levels: Iterable[Resources]) -> Qos:
    return Qos.BURSTABLE if any(map(_asks, levels)) else Qos.BESTEFFORT


def _asks(stated: Resources) -> bool:
    return any(stated.requests.get(name) or stated.limits.get(name) for name in _COUNTED)


def _is_guaranteed(stated: Resources) -> bool:
    return not any(_shortfalls(stated))


def why_qos(pod: Pod, qos: Qos, rules: Rules) -> str:
    """Describe why the pod has its class, in one sentence."""
    if qos is Qos.BESTEFFORT:
        if pod.has_empty_level and any(_asks(each.resources) for each in pod.containers):
            return "the pod level alone decides, and is empty"
        return "neither a container nor the pod level requests cpu or memory"
    has_level = _has_level(pod)
    decides = "the pod level alone decides" if rules is Rules.KUBERNETES and has_level else ""
    if qos is Qos.GUARANTEED:
        if decides or _is_guaranteed(pod.resources):
            return "at the pod level cpu and memory have request = limit"
        return "in every container cpu and memory have request = limit"
    if decides:
        return f"{decides}: {_shortfall(pod.resources)}"
    reasons = [f"at the pod level {_shortfall(pod.resources)}"] if has_level else []
    for container in pod.containers:
        if not _is_guaranteed(container.resources):
            reasons.append(f"in container {container.name} {_shortfall(container.resources)}")
            break
    return ", and ".join(reasons)


def _shortfall(stated: Resources) -> str:
    """Return the first reason why a level is not Guaranteed."""
    return next(_shortfalls(stated))


def _shortfalls(stated: Resources) -> Iterator[str]:
    for name in _COUNTED:
        if not stated.limits.get(name):
            yield f"{name} has no limit"
        elif stated.requests.get(name) != stated.limits[name]:
            yield f"the {name} request is not the limit"
