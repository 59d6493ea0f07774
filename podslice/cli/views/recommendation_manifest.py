"""A pod's manifest with the recommended amounts, each with its reason. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from podslice.cli.views.new_manifest import NewContainer, NewPod, format_lines
from podslice.cli.views.recommendation_lines import NO_CPU_LIMIT, reason_of
from podslice.model.pod import ContainerKind
from podslice.model.quantity import parse_quantity
from podslice.model.resources import CPU, MEMORY, Amounts, Resources, format_amount
from podslice.policy.aggregate import aggregate
from podslice.policy.defaulting import default_pod
from podslice.policy.proposal import StatedAmount

if TYPE_CHECKING:
    from podslice.model.desired import PodDecision
    from podslice.model.pod import Pod
    from podslice.policy.pod_recommendation import PodRecommendation
    from podslice.policy.recommendation import Advice, Recommendation

_Level = tuple[dict[str, StatedAmount], dict[str, StatedAmount]]
"""Requests and limits."""


def manifest_lines(found: PodRecommendation, decision: PodDecision) -> Iterator[str]:
    """Yield the manifest of an applied pod, with the fields that determine its resources only."""
    pod = decision.pod
    by_name = {each.name: each.amounts for each in found.containers}
    has_pod_level = bool(pod.resources) or not any(each.resources for each in pod.containers)
    containers = tuple(
        _container(each.name, each.resources, by_name.get(each.name))
        for each in pod.of_kind(ContainerKind.APP)
    )
    requests, limits = _pod_level(found, pod, containers) if has_pod_level else ({}, {})
    new = NewPod(
        name=pod.name,
        namespace=pod.namespace,
        containers=containers,
        requests=requests,
        limits=limits,
        remarks=tuple(_remarks(decision)),
    )
    origin = "Recommended from the history of usage; copy the resources into the pod's manifest."
    return format_lines(new, origin)


def _pod_level(found: PodRecommendation, pod: Pod, containers: Sequence[NewContainer]) -> _Level:
    """Return the pod level, raised to what the containers' requests and limits require."""
    requests, limits = _amounts(found.amounts, pod.resources, with_limit=True)
    patched = _with_amounts(pod, containers)
    sums, apps = aggregate(patched).requests, patched.of_kind(ContainerKind.APP)
    for name in (CPU, MEMORY):
        largest = max((each.resources.limits.get(name, 0) for each in apps), default=0)
        for part in (requests, limits):
            _raise(part, name, sums.get(name, 0), "the sum of the containers' requests")
        _raise(limits, name, largest, "the largest limit of a container")
    return requests, limits


def _with_amounts(pod: Pod, containers: Iterable[NewContainer]) -> Pod:
    """Return the pod with the new amounts of its containers, and their defaults."""
    new = {
        each.name: Resources(requests=_milli(each.requests), limits=_milli(each.limits))
        for each in containers
    }
    patched = (
        replace(each, resources=new.get(each.name, each.resources)) for each in pod.containers
    )
    return default_pod(replace(pod, containers=tuple(patched)))


def _raise(part: dict[str, StatedAmount], name: str, least: int, source: str) -> None:
    """Replace an amount that is stated and below the least possible one."""
    if name in part and _milli(part)[name] < least:
        part[name] = StatedAmount(text=format_amount(name, least), source=source)


def _container(name: str, stated: Resources, amounts: Recommendation | None) -> NewContainer:
    """Return a container: its own resources if it states any, otherwise it shares those of the pod."""
    if not stated:
        return NewContainer(name=name)
    if amounts is None:
        requests, limits = (_kept(each) for each in (stated.requests, stated.limits))
    else:
        requests, limits = _amounts(amounts, stated, with_limit=MEMORY in stated.limits)
    return NewContainer(name=name, requests=requests, limits=limits)


def _amounts(amounts: Recommendation, stated: Resources, *, with_limit: bool) -> _Level:
    """Return the recommended amounts, and those that are stated where none is recommended."""
    requests, limits = _kept(stated.requests), _kept(stated.limits)
    for name, what, advice in (
        (CPU, "CPU request", amounts.cpu_request),
        (MEMORY, "memory request", amounts.memory_request),
    ):
        if advice is not None:
            requests[name] = _recommended(name, what, advice, amounts)
    limit, request = amounts.memory_limit, amounts.cpu_request
    if limit is not None and with_limit:
        limits[MEMORY] = _recommended(MEMORY, "memory limit", limit, amounts)
    if request is not None and stated.limits.get(CPU, request.recommended) < request.recommended:
        limits[CPU] = StatedAmount(text=requests[CPU].text, source="the request")
    return requests, limits


def _recommended(resource: str, what: str, advice: Advice, amounts: Recommendation) -> StatedAmount:
    was = "" if advice.current is None else f", was {format_amount(resource, advice.current)}"
    text = format_amount(resource, advice.recommended)
    return StatedAmount(text=text, source=reason_of(what, advice, amounts) + was)


def _kept(stated: Amounts) -> dict[str, StatedAmount]:
    return {
        name: StatedAmount(text=format_amount(name, milli), source="as before")
        for name, milli in stated.items()
        if name in (CPU, MEMORY)
    }


def _remarks(decision: PodDecision) -> Iterator[str]:
    pod = decision.pod
    if CPU not in decision.limits:
        yield NO_CPU_LIMIT
    if len(pod.of_kind(ContainerKind.APP)) < len(pod.containers):
        yield "init containers and sidecars are not shown"
    if decision.pod.volumes or decision.pod.overhead:
        yield "volumes and the overhead are not shown"


def _milli(amounts: Mapping[str, StatedAmount]) -> dict[str, int]:
    return {name: parse_quantity(amount.text).milli for name, amount in amounts.items()}
