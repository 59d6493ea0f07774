"""The effective resources of a pod: defaults, the sum over its containers, the pod level, the overhead."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from podslice.model.config import VERSION_RULES, Config, Rules
from podslice.model.pod import Container, ContainerKind, Pod
from podslice.model.resources import Amounts, Resources, is_hugepages, is_pod_level_resource, total


class Term(NamedTuple):
    """The amount that one container states."""

    position: int
    """The container's index in the pod."""
    amount: int


class ContainerSum(NamedTuple):
    """The sum that a pod's containers count as for one resource."""

    terms: tuple[Term, ...]
    init: Container | None = None
    """The init container whose turn needs the most; None if the containers together do."""

    @property
    def amount(self) -> int:
        """Return the sum of the terms."""
        return sum(term.amount for term in self.terms)


def aggregate(pod: Pod) -> Resources:
    """Return the containers' sums, including the needs of init containers and sidecars.

    Per resource the greater of: all containers and sidecars together; each init container together
    with the sidecars listed before it.

    Source: KEP-753, "Resources calculation for scheduling and pod admission"; Kubernetes,
    component-helpers/resource/helpers.go, aggregateContainerResourcesByFn.
    """
    if len(pod.containers) == 1:
        return pod.containers[0].resources
    return Resources(requests=_aggregate(pod, "requests"), limits=_aggregate(pod, "limits"))


def sum_of(pod: Pod, part: str, resource: str) -> ContainerSum:
    """Return the aggregate of one resource with its terms.

    Args:
        pod: the pod.
        part: `requests` or `limits`.
        resource: its name.
    """
    together: list[Term] = []
    sidecars: list[Term] = []
    turns: list[ContainerSum] = []
    for position, container in enumerate(pod.containers):
        amount = amounts_of(container.resources, part).get(resource)
        if amount is None:
            continue
        term = Term(position=position, amount=amount)
        if container.kind is ContainerKind.INIT:
            turns.append(ContainerSum(terms=(term, *sidecars), init=container))
            continue
        together.append(term)
        if container.kind is ContainerKind.SIDECAR:
            sidecars.append(term)
    lasting = ContainerSum(terms=tuple(together))
    return max((lasting, *turns), key=lambda each: each.amount) if turns else lasting


def amounts_of(stated: Resources, part: str) -> Amounts:
    """Return the requests or the limits."""
    return stated.requests if part == "requests" else stated.limits


def running(pod: Pod) -> Resources:
    """Return the sums over the containers that run once the init containers have finished.

    Source: Pod-Level Resource Limits, "Proposal", the sums over `pod.containers`; KEP-753: a
    sidecar runs as long as the pod's containers.
    """
    together = [c.resources for c in pod.containers if c.kind is not ContainerKind.INIT]
    return Resources(
        requests=total(each.requests for each in together),
        limits=total(each.limits for each in together),
    )


def effective(pod: Pod) -> Resources:
    """Return the effective requests and limits; `pod` has its defaults already.

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
    """Return the amounts that the pod level may state."""
    return {name: milli for name, milli in amounts.items() if is_pod_level_resource(name)}


def _aggregate(pod: Pod, part: str) -> dict[str, int]:
    resources = [each.resources for each in pod.containers]
    names = dict.fromkeys(name for each in resources for name in amounts_of(each, part))
    return {name: sum_of(pod, part, name).amount for name in names}


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


def default_pod(pod: Pod, *, with_limits: bool = False) -> Pod:
    """Return the pod with the requests that its limits imply, of containers and the pod level.

    Args:
        pod: the pod.
        with_limits: whether the pod level has limits by default; see `defaults_limits`.

    Source: Pod-Level Resource Limits, "Proposal" ("setting a limit without a request causes
    Kubernetes to use the limit as a request"); Kubernetes, pkg/apis/core/v1/defaults.go,
    SetDefaults_Pod.
    """
    pod = replace(pod, containers=tuple(map(_default_container, pod.containers)))
    if with_limits:
        pod = replace(pod, resources=_default_limits(pod))
    has_limits = bool(_pod_level(pod.resources.limits))
    return replace(pod, resources=_default_pod_level(pod)) if has_limits else pod


def defaults_limits(config: Config) -> bool:
    """Return whether the configured rules have default limits of the pod level."""
    is_kubernetes = config.rules is Rules.KUBERNETES
    return is_kubernetes and VERSION_RULES[config.kubernetes_version].defaults_level_limits


def _default_limits(pod: Pod) -> Resources:
    """Return the pod level with the sums of the containers' limits, of resources that all limit.

    A pod without a pod level gets none; a sum below the pod level's own request is left out.

    Source: Kubernetes 1.37, pull request 140514; KEP-2837 (the pod level is set, and "all containers
    have limits set").
    """
    stated = pod.resources
    if not _pod_level({**stated.requests, **stated.limits}):
        return stated
    sums = {
        name: milli
        for name, milli in _pod_level(aggregate(pod).limits).items()
        if all(name in each.resources.limits for each in pod.containers)
        and milli >= stated.requests.get(name, 0)
    }
    return Resources(requests=stated.requests, limits={**sums, **stated.limits})


def _default_container(container: Container) -> Container:
    stated = container.resources
    missing = {name: limit for name, limit in stated.limits.items() if name not in stated.requests}
    if not missing:
        return container
    resources = Resources(requests={**missing, **stated.requests}, limits=stated.limits)
    return replace(container, resources=resources)


def _default_pod_level(pod: Pod) -> Resources:
    """Return the pod level with requests from the containers' sum, else from its limits.

    Huge pages are never overcommitted: their request is the pod level's own limit.

    Source: Kubernetes, pkg/apis/core/v1/defaults.go, defaultPodRequests (KEP-2837).
    """
    stated = pod.resources
    sums = {
        name: milli
        for name, milli in _pod_level(aggregate(pod).requests).items()
        if not is_hugepages(name)
    }
    requests: Amounts = {**_pod_level(stated.limits), **sums, **stated.requests}
    return Resources(requests=requests, limits=stated.limits)
