"""The recommended amounts of a pod as a whole, and of each of its containers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from podslice.model.desired import PodDecision
from podslice.model.pod import ContainerKind
from podslice.model.properties import MEMORY_MAX
from podslice.model.resources import CPU, MEMORY, Amounts
from podslice.model.unit import limit_of
from podslice.model.usage_history import PodHistory, UsageHistory
from podslice.policy.defaulting import default_pod
from podslice.policy.recommendation import Advice, Recommendation, recommend


class ContainerRecommendation(NamedTuple):
    """The recommended amounts of a container."""

    name: str
    amounts: Recommendation


class PodRecommendation(NamedTuple):
    """The recommended amounts of a pod; its containers need less together than in sum."""

    key: str
    """`namespace/name`."""
    amounts: Recommendation
    containers: tuple[ContainerRecommendation, ...] = ()
    """Those that have been observed; init containers are not among them."""
    decision: PodDecision | None = None
    """None of a pod that is not applied."""

    @property
    def sum_of_requests(self) -> Amounts:
        """Return what its containers' recommended requests add up to, of known resources."""
        each = [container.amounts for container in self.containers]
        found = {
            CPU: _total(amounts.cpu_request for amounts in each),
            MEMORY: _total(amounts.memory_request for amounts in each),
        }
        return {name: total for name, total in found.items() if total is not None}

    @property
    def saving(self) -> Amounts:
        """Return how much less the pod's requests are than that sum, where they are less."""
        own = {CPU: self.amounts.cpu_request, MEMORY: self.amounts.memory_request}
        less = {
            name: total - advice.computed
            for name, total in self.sum_of_requests.items()
            if (advice := own[name]) is not None
        }
        return {name: milli for name, milli in less.items() if milli > 0}


def recommend_pod(
    key: str, history: PodHistory, now_sec: int, *, decision: PodDecision | None = None
) -> PodRecommendation:
    """Return the recommended amounts; of a pod that is not applied, without the present ones."""
    stated = default_pod(decision.pod).of_kind(*_LASTING) if decision else ()
    resources = {each.name: each.resources for each in stated}
    names = resources or history.containers
    return PodRecommendation(
        key=key,
        amounts=recommend_whole(history.pod, now_sec, decision),
        containers=tuple(
            ContainerRecommendation(
                name=name,
                amounts=recommend(
                    history.containers[name],
                    now_sec,
                    requests=resources[name].requests if name in resources else {},
                    limits=resources[name].limits if name in resources else {},
                ),
            )
            for name in names
            if name in history.containers
        ),
        decision=decision,
    )


def recommend_whole(
    history: UsageHistory, now_sec: int, decision: PodDecision | None
) -> Recommendation:
    """Return the recommended amounts of a pod without its containers."""
    if decision is None:
        return recommend(history, now_sec, requests={}, limits={})
    limits = _memory_limit(decision)
    return recommend(history, now_sec, requests=decision.requests, limits=limits)


def _memory_limit(decision: PodDecision) -> Amounts:
    """Return the memory limit of the pod's slice, which has none if one of its containers has none."""
    limit = limit_of(decision.properties, MEMORY_MAX)
    return {} if limit is None else {MEMORY: 1000 * limit}


_LASTING = (ContainerKind.APP, ContainerKind.SIDECAR)


def _total(advice: Iterable[Advice | None]) -> int | None:
    """Return the sum of what histories result in; None if one is not known, or without any."""
    found = list(advice)
    known = [each.computed for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None
