"""Defaults of requests that a manifest does not state."""

from __future__ import annotations

from dataclasses import replace

from podslice.model.pod import Container, Pod
from podslice.model.resources import Amounts, Resources, is_hugepages, is_pod_level_resource
from podslice.policy.aggregate import aggregate


def default_pod(pod: Pod) -> Pod:
    """Return the pod with the requests that its limits imply, of containers and the pod level.

    Source: seed 002, "Proposal" ("setting a limit without a request causes Kubernetes to use the
    limit as a request"); Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Pod.
    """
    pod = replace(pod, containers=tuple(map(_default_container, pod.containers)))
    if not _supported(pod.resources.limits):
        return pod
    return replace(pod, resources=_default_pod_level(pod))


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
