"""Consistency of the pod level and the containers: contradictions, and unreachable values."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.errors import Problem, warning
from podslice.model.config import Rules
from podslice.model.pod import Container, ContainerKind, Pod
from podslice.model.resources import (
    CPU,
    MEMORY,
    PIDS,
    Resources,
    format_amount,
    is_hugepages,
    is_pod_level_resource,
)
from podslice.policy.aggregate import aggregate, lacking_limit, running

_ONLY_KUBERNETES = "Kubernetes would refuse the pod"


def compare_levels(pod: Pod, stated: Pod, rules: Rules) -> Iterator[Problem]:
    """Return the contradictions between the pod level and the containers.

    Args:
        pod: with its defaults.
        stated: as its manifest has it; a defaulted request is not reported.
        rules: determine when the pod's limits begin to apply.

    Source: Pod-Level Resource Limits, "Proposal" and "Init Containers"; Kubernetes,
    pkg/apis/core/validation/validation.go, validatePodResourceConsistency.
    """
    for name in pod.resources.limits:
        if is_pod_level_resource(name):
            yield from _check_limit(pod, name, _bound(pod, name, rules))
    yield from _check_strictly(pod, stated, rules)
    yield from _check_effective(pod, stated, rules)


def _bound(pod: Pod, name: str, rules: Rules) -> Resources:
    """Return the containers' sums that the pod's limit must cover.

    Under the proposal the limit applies once the init containers have finished. Limits of huge
    pages apply from the start under both rule sets.
    """
    from_the_start = rules is Rules.KUBERNETES or is_hugepages(name)
    return aggregate(pod) if from_the_start else running(pod)


def _check_limit(pod: Pod, name: str, sums: Resources) -> Iterator[Problem]:
    limit = pod.resources.limits[name]
    where = f"{level(pod)}.limits[{name}]"
    less = f"{format_amount(name, limit)} is less than the containers'"
    if limit < sums.requests.get(name, 0):
        yield Problem(
            where=where,
            message=f"{less} requests of {format_amount(name, sums.requests[name])}",
            hint="raise the pod's limit or lower the containers' requests",
        )
    elif name == MEMORY and limit < sums.limits.get(name, 0):
        yield warning(
            where,
            f"{less} limits of {format_amount(name, sums.limits[name])}",
            "they can't all reach their limits",
        )


def _check_strictly(pod: Pod, stated: Pod, rules: Rules) -> Iterator[Problem]:
    """Return problems that only Kubernetes refuses: errors under its rules, else warnings."""
    for each, where in (
        *((each.resources, f"{each.where}.resources") for each in pod.containers),
        (pod.resources, level(pod)),
    ):
        names = {*each.requests, *each.limits}
        if any(map(is_hugepages, names)) and not names & {CPU, MEMORY}:
            yield _stricter(where, "huge pages require cpu or memory as well", rules)
    for name in sorted({*pod.resources.requests, *pod.resources.limits}):
        if is_pod_level_resource(name):
            yield from _check_request(pod, stated, name, rules)
            yield from _check_container_limits(pod, name, rules)
        elif name == PIDS and name in pod.resources.requests:
            message = "process ids have a limit and no request"
            yield _stricter(f"{level(pod)}.requests[{name}]", message, rules)
        elif name != PIDS:
            part = "limits" if name in pod.resources.limits else "requests"
            message = "the pod level supports cpu, memory, huge pages and limits.pid only"
            yield _stricter(f"{level(pod)}.{part}[{name}]", message, rules)


def _check_request(pod: Pod, stated: Pod, name: str, rules: Rules) -> Iterator[Problem]:
    request, asked = stated.resources.requests.get(name), aggregate(pod).requests.get(name, 0)
    if request is not None and request < asked:
        message = (
            f"{format_amount(name, request)} is less than the containers' requests of"
            f" {format_amount(name, asked)}"
        )
        yield _stricter(f"{level(pod)}.requests[{name}]", message, rules)


def _check_container_limits(pod: Pod, name: str, rules: Rules) -> Iterator[Problem]:
    """Compare limits as Kubernetes does: of `spec.containers` only, not init containers or sidecars."""
    if name not in pod.resources.limits:
        return
    pod_limit = pod.resources.limits[name]
    for container in pod.of_kind(ContainerKind.APP):
        limit = container.resources.limits.get(name, 0)
        if limit > pod_limit:
            message = (
                f"{format_amount(name, limit)} is more than the pod's limit of"
                f" {format_amount(name, pod_limit)}"
            )
            yield _stricter(f"{container.where}.resources.limits[{name}]", message, rules)


def _check_effective(pod: Pod, stated: Pod, rules: Rules) -> Iterator[Problem]:
    """Warn of a request of the pod above the sum of the containers' limits.

    By the containers alone this is possible under the rules of Kubernetes, where one without a limit
    counts together with the sidecars before it.
    """
    sums = aggregate(pod)
    for name in (CPU, MEMORY):
        # a pod without containers, which is an error of its own, has no limits
        if name not in sums.limits or pod.resources.limits.get(name):
            continue
        if lacking_limit(pod, name, rules):
            continue
        request, requests = stated.resources.requests.get(name, 0), sums.requests.get(name, 0)
        limits = f"limits of {format_amount(name, sums.limits[name])}"
        if request > sums.limits[name]:
            yield warning(
                f"{level(pod)}.requests[{name}]",
                f"{format_amount(name, request)} is more than the containers' {limits}",
                "the pod can't use more than those",
            )
        elif requests > sums.limits[name]:
            for container in _without_limit(pod, name):
                yield warning(
                    f"{container.where}.resources.limits[{name}]",
                    f"it is not set, and the containers' requests of"
                    f" {format_amount(name, requests)} are more than their {limits}",
                    "the pod can't use more than those limits",
                )


def _without_limit(pod: Pod, name: str) -> Iterator[Container]:
    """Yield the containers that request a resource and have no limit for it."""
    for container in pod.containers:
        stated = container.resources
        if stated.requests.get(name) and not stated.limits.get(name):
            yield container


def level(pod: Pod) -> str:
    """Return the address of the pod level."""
    return f"{pod.spec_where}.resources"


def _stricter(where: str, message: str, rules: Rules) -> Problem:
    if rules is Rules.KUBERNETES:
        return Problem(where=where, message=message)
    return warning(where, message, _ONLY_KUBERNETES)
