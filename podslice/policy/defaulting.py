"""Defaults of requests that a manifest does not state."""

from __future__ import annotations

from dataclasses import replace

from podslice.model.config import VERSION_RULES, Config, Rules
from podslice.model.pod import Container, Pod
from podslice.model.resources import Amounts, Resources, is_hugepages, is_pod_level_resource
from podslice.policy.aggregate import aggregate


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
    if not _supported(pod.resources.limits):
        return pod
    return replace(pod, resources=_default_pod_level(pod))


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
    if not _supported({**stated.requests, **stated.limits}):
        return stated
    sums = {
        name: milli
        for name, milli in _supported(aggregate(pod).limits).items()
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
        for name, milli in _supported(aggregate(pod).requests).items()
        if not is_hugepages(name)
    }
    requests: Amounts = {**_supported(stated.limits), **sums, **stated.requests}
    return Resources(requests=requests, limits=stated.limits)


def _supported(amounts: Amounts) -> dict[str, int]:
    return {name: milli for name, milli in amounts.items() if is_pod_level_resource(name)}
