"""What a pod counts as: the sum over its containers, the pod level, the overhead."""

from __future__ import annotations

from podslice.model.config import Rules
from podslice.model.pod import Container, ContainerKind, Pod
from podslice.model.resources import Amounts, Resources, is_pod_level_resource, maximum, total


def aggregate(pod: Pod) -> Resources:
    """The containers' sums, with what init containers and sidecars need on the way.

    Per resource the greater of: all containers and sidecars together; each init container together
    with the sidecars that stand before it.

    Source: KEP-753, "Resources calculation for scheduling and pod admission"; Kubernetes,
    component-helpers/resource/helpers.go, aggregateContainerResourcesByFn.
    """
    if len(pod.containers) == 1 and pod.containers[0].kind is ContainerKind.APP:
        return pod.containers[0].resources
    return Resources(
        requests=_aggregate(pod, [c.resources.requests for c in pod.containers]),
        limits=_aggregate(pod, [c.resources.limits for c in pod.containers]),
    )


def running(pod: Pod) -> Resources:
    """Return the sums of what runs once the init containers have finished.

    Source: seed 002, "Proposal", the sums over `pod.containers`; KEP-753: a sidecar runs as long as
    the pod's containers.
    """
    together = [c.resources for c in pod.containers if c.kind is not ContainerKind.INIT]
    return Resources(
        requests=total(each.requests for each in together),
        limits=total(each.limits for each in together),
    )


def effective(pod: Pod) -> Resources:
    """Requests and limits that the pod counts with; `pod` has its defaults already.

    Pod-level values replace the sums per resource; the overhead is added to the requests, and to
    the limits that are set.

    Source: Kubernetes, component-helpers/resource/helpers.go, PodRequests and PodLimits.
    """
    sums = aggregate(pod)
    requests = {**sums.requests, **_pod_level(pod.resources.requests)}
    limits = {**sums.limits, **_pod_level(pod.resources.limits)}
    if pod.overhead:
        requests = total((requests, pod.overhead))
        limits = {
            name: limit + pod.overhead.get(name, 0) if limit else 0
            for name, limit in limits.items()
        }
    return Resources(requests=requests, limits=limits)


def _pod_level(amounts: Amounts) -> dict[str, int]:
    return {name: milli for name, milli in amounts.items() if is_pod_level_resource(name)}


def _aggregate(pod: Pod, amounts: list[Amounts]) -> dict[str, int]:
    kinds = [container.kind for container in pod.containers]
    together = total(
        a for a, kind in zip(amounts, kinds, strict=True) if kind is not ContainerKind.INIT
    )
    if ContainerKind.INIT not in kinds:
        return together
    sidecars: dict[str, int] = {}
    for a, kind in zip(amounts, kinds, strict=True):
        if kind is ContainerKind.SIDECAR:
            sidecars = total((sidecars, a))
        elif kind is ContainerKind.INIT:
            together = maximum(together, total((sidecars, a)))
    return together


def lacking_limit(pod: Pod, resource: str, rules: Rules) -> tuple[Container, ...]:
    """Return the containers, of every kind, without a limit above zero for a resource.

    Under the rules of Kubernetes an init container or a sidecar counts together with the sidecars
    before it, so that it lacks none where one of those has one.

    Source: Kubernetes, pkg/kubelet/cm/helpers_linux.go, ResourceConfigForPod, with the sums of
    component-helpers/resource/helpers.go, PodLimits; kubelet 1.36.2 does so.
    """
    lacking, sidecars = [], 0
    for container in pod.containers:
        limit = container.resources.limits.get(resource, 0)
        if container.kind is ContainerKind.SIDECAR:
            sidecars += limit
        if rules is Rules.KUBERNETES and container.kind is not ContainerKind.APP:
            limit += sidecars
        if not limit:
            lacking.append(container)
    return tuple(lacking)
