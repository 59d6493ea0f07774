"""Requests, limits and reservations that fit a history of usage.

There is no recommendation of a CPU limit: it throttles processes while CPUs are idle, and the weight
of the request already divides the CPUs when they are scarce.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from podslice.features.history.day import Day
from podslice.features.history.model import DecayingHistogram, PodHistory, UsageHistory, WaitTimes
from podslice.features.history.samples import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    BucketScheme,
    peaks_of,
    percentile_bucket,
    without_old,
)
from podslice.features.node.providers import MI, Reservation
from podslice.model.desired import PodDecision
from podslice.model.pod import ContainerKind
from podslice.model.properties import MEMORY_MAX
from podslice.model.resources import (
    CPU,
    MEMORY,
    Amounts,
    RecommendedAmounts,
    Resources,
    UsedAmounts,
)
from podslice.model.unit import UnitName, limit_of
from podslice.policy.aggregate import default_pod

MAXIMUM = 1.0
REQUEST_PERCENTILE = 0.9
_REQUEST = (REQUEST_PERCENTILE, 0.5, 0.95)
"""The percentiles of a request and of its bounds.

Source: VPA recommender, config/config.go, DefaultRecommenderConfig.
"""
_LIMIT = (MAXIMUM, MAXIMUM, MAXIMUM)
MARGIN = 1.15
"""Source: VPA recommender, config/config.go, SafetyMarginFraction."""
_DAY_SEC = 86_400
_DAY_SAMPLES = 1440
"""The samples of a day: one a minute."""
_UPPER_CONFIDENCE = (1.0, 1)
_LOWER_CONFIDENCE = (0.001, -2)
"""Multiplier and exponent of `confidence_factor`.

Source: VPA recommender, logic/recommender.go, CreatePodResourceRecommender.
"""
_STEP = {CPU: 1, MEMORY: 2**20 * 1000}
"""Recommended amounts are multiples of 1m and of 1Mi, in thousandths."""
_CPU_WAIT_SHARE = 0.1
"""Above this share of the time in which a task waited for a CPU, less CPU is not recommended."""
_MEMORY_WAIT_SHARE = 0.001
"""The same for memory.

Source: Weiner et al., "TMO: Transparent Memory Offloading in Datacenters" (ASPLOS 2022), 3.3: the
pressure that its controller keeps containers below.
"""


class Veto(StrEnum):
    """Why an amount is not decreased."""

    OOM_KILLS = "oom-kills"
    PRESSURE = "pressure"


class Advice(NamedTuple):
    """One recommended amount, in thousandths of the unit, as in `Amounts`."""

    current: int | None
    """The present amount; None where it is not stated."""
    recommended: int
    computed: int
    """What the history alone results in: less than `recommended` after a veto."""
    lower: int
    """Less is likely to be too little."""
    upper: int | None
    """More is likely to be wasted; None before a history is long enough to know."""
    veto: Veto | None = None


class Recommendation(NamedTuple):
    """The recommended amounts of a pod or a container; None where the history has no samples."""

    age_sec: int
    """The time between the first and the last sample."""
    samples: int
    confidence_days: float
    """How many days of one sample a minute the history is worth."""
    oom_kills: int
    cpu_wait_share: float
    """The share of the time in which a task waited for a CPU, recent times counting more."""
    memory_wait_share: float
    cpu_request: Advice | None = None
    memory_request: Advice | None = None
    memory_limit: Advice | None = None


def recommend(
    history: UsageHistory, now_sec: int, *, requests: Amounts, limits: Amounts
) -> Recommendation:
    """Return the amounts for a history; `requests` and `limits` are the present ones.

    Request = 90th percentile × 1.15; memory limit = maximum × 1.15, at least the request.

    Source: VPA recommender, logic/recommender.go, CreatePodResourceRecommender; the limit is of
    podslice.
    """
    history = without_old(history, now_sec)
    cpu, memory = history.cpu, peaks_of(history.memory)
    cpu_share, memory_share = _wait_shares(history.waits)
    for_memory = Veto.PRESSURE if memory_share >= _MEMORY_WAIT_SHARE else None
    for_memory = Veto.OOM_KILLS if history.oom_kills else for_memory
    for_cpu = Veto.PRESSURE if cpu_share >= _CPU_WAIT_SHARE else None
    confidence = confidence_days(history)
    # waits and OOM kills show that less memory, or less CPU, would be too little
    request = _advise(MEMORY, memory, _REQUEST, confidence, requests.get(MEMORY), for_memory)
    limit = _advise(MEMORY, memory, _LIMIT, confidence, limits.get(MEMORY), for_memory)
    return Recommendation(
        age_sec=max(history.last_sec - history.first_sec, 0) if history.samples else 0,
        samples=history.samples,
        confidence_days=confidence,
        oom_kills=history.oom_kills,
        cpu_wait_share=cpu_share,
        memory_wait_share=memory_share,
        cpu_request=_advise(CPU, cpu, _REQUEST, confidence, requests.get(CPU), for_cpu),
        memory_request=request,
        memory_limit=_at_least(limit, request),
    )


def only_amounts(found: Recommendation) -> RecommendedAmounts:
    """Return the recommended amounts alone."""
    cpu, memory, limit = found.cpu_request, found.memory_request, found.memory_limit
    return RecommendedAmounts(
        cpu_request=None if cpu is None else cpu.recommended,
        memory_request=None if memory is None else memory.recommended,
        memory_limit=None if limit is None else limit.recommended,
    )


def confidence_days(history: UsageHistory) -> float:
    """Return how many days of one sample a minute a history is worth.

    Source: VPA recommender, logic/estimator.go, getConfidence.
    """
    age_days = (history.last_sec - history.first_sec) / _DAY_SEC
    return max(min(age_days, history.samples / _DAY_SAMPLES), 0.0)


def confidence_factor(confidence: float, multiplier: float, exponent: int) -> float:
    """Return the factor of a bound: (1 + multiplier / confidence) ^ exponent.

    It is infinite, or 0, without confidence.

    Source: VPA recommender, logic/estimator.go, WithCPUConfidenceMultiplier.
    """
    if confidence <= 0:
        return math.inf if exponent > 0 else 0.0
    return float((1 + multiplier / confidence) ** exponent)


def used_amounts(history: UsageHistory, now_sec: int, share: float) -> UsedAmounts:
    """Return what a slice has used: this percentile, and the maximum."""
    history = without_old(history, now_sec)
    peaks = peaks_of(history.memory)
    return UsedAmounts(
        cpu_milli=_rounded(_percentile(CPU, history.cpu, share)),
        cpu_peak_milli=_rounded(_percentile(CPU, history.cpu, MAXIMUM)),
        memory_bytes=_rounded(_percentile(MEMORY, peaks, share)),
        memory_peak_bytes=_rounded(_percentile(MEMORY, peaks, MAXIMUM)),
    )


def _advise(
    resource: str,
    histogram: DecayingHistogram,
    shares: tuple[float, float, float],
    confidence: float,
    current: int | None,
    veto: Veto | None,
) -> Advice | None:
    """Return the advice for the percentiles of an amount, and of its lower and upper bound."""
    found = [_percentile(resource, histogram, share) for share in shares]
    value, lower, upper = (each or 0.0 for each in found)
    if found[0] is None:
        return None
    computed = _with_margin(resource, value, 1.0)
    factor = confidence_factor(confidence, *_UPPER_CONFIDENCE)
    # a veto only prevents a decrease
    kept = current if veto and current is not None and current > computed else None
    return Advice(
        current=current,
        recommended=computed if kept is None else kept,
        computed=computed,
        lower=_with_margin(resource, lower, confidence_factor(confidence, *_LOWER_CONFIDENCE)),
        upper=None if math.isinf(factor) else _with_margin(resource, upper, factor),
        veto=None if kept is None else veto,
    )


def _at_least(limit: Advice | None, request: Advice | None) -> Advice | None:
    """Return the limit, raised to a request that a veto has kept."""
    if limit is None or request is None or limit.recommended >= request.recommended:
        return limit
    return limit._replace(recommended=request.recommended, veto=request.veto)


_SCHEMES: Mapping[str, BucketScheme] = {CPU: CPU_BUCKETS, MEMORY: MEMORY_BUCKETS}
_SCALE = {CPU: 1, MEMORY: 1000}
"""Thousandths of the unit in one unit of the values of a histogram."""


def _percentile(resource: str, histogram: DecayingHistogram, share: float) -> float | None:
    bucket = percentile_bucket(histogram, share)
    return None if bucket is None else _SCHEMES[resource].end(bucket)


def _with_margin(resource: str, value: float, factor: float) -> int:
    """Return an amount in thousandths with the margin and a factor, rounded up to whole steps."""
    step = _STEP[resource]
    # rounded first: 0.1 * 3 is a little more than 0.3, which would be a step more
    return math.ceil(round(value * _SCALE[resource] * MARGIN * factor, 3) / step) * step


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _wait_shares(waits: WaitTimes) -> tuple[float, float]:
    """Return the shares of the observed time in which a task waited for a CPU and for memory."""
    if waits.observed_sec <= 0:
        return 0.0, 0.0
    return waits.cpu_sec / waits.observed_sec, waits.memory_sec / waits.observed_sec


class PodRecommendation(NamedTuple):
    """The recommended amounts of a pod; its containers need less together than in sum."""

    key: str
    """`namespace/name`."""
    amounts: Recommendation
    containers: Mapping[str, Recommendation]
    """By name, of the containers that have been observed; init containers are not among them."""
    day: Day = Day()
    """The usage of the pod in the last day."""
    decision: PodDecision | None = None
    """None of a pod that is not applied."""

    @property
    def sum_of_requests(self) -> Amounts:
        """Return what its containers' recommended requests add up to, of known resources."""
        each = self.containers.values()
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
    lasting = (ContainerKind.APP, ContainerKind.SIDECAR)
    stated = default_pod(decision.pod).of_kind(*lasting) if decision else ()
    resources = {each.name: each.resources for each in stated}
    unknown = Resources()
    return PodRecommendation(
        key=key,
        amounts=recommend_whole(history.pod, now_sec, decision),
        containers={
            name: recommend(
                history.containers[name],
                now_sec,
                requests=resources.get(name, unknown).requests,
                limits=resources.get(name, unknown).limits,
            )
            for name in resources or history.containers
            if name in history.containers
        },
        decision=decision,
        day=history.day,
    )


def recommend_whole(
    history: UsageHistory, now_sec: int, decision: PodDecision | None
) -> Recommendation:
    """Return the recommended amounts of a pod without its containers."""
    if decision is None:
        return recommend(history, now_sec, requests={}, limits={})
    # the slice has no memory limit if one of its containers has none
    limit = limit_of(decision.properties, MEMORY_MAX)
    limits = {} if limit is None else {MEMORY: 1000 * limit}
    return recommend(history, now_sec, requests=decision.requests, limits=limits)


def _total(advice: Iterable[Advice | None]) -> int | None:
    """Return the sum of what histories result in; None if one is not known, or without any."""
    found = list(advice)
    known = [each.computed for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None


_PERCENTILE = 0.99
"""Daemons wait for a CPU in one minute of a hundred at most."""


class SliceUsage(NamedTuple):
    """What a slice has used; its amounts are None without samples."""

    unit: UnitName
    age_sec: int
    samples: int
    used: UsedAmounts


def slice_usage(unit: UnitName, history: UsageHistory, now_sec: int) -> SliceUsage:
    """Return the 99th percentile and the maximum of what a slice has used."""
    history = without_old(history, now_sec)
    return SliceUsage(
        unit=unit,
        age_sec=max(history.last_sec - history.first_sec, 0) if history.samples else 0,
        samples=history.samples,
        used=used_amounts(history, now_sec, _PERCENTILE),
    )


def recommend_reservation(slices: Iterable[SliceUsage]) -> Reservation | None:
    """Return the reservation for slices together; None if none of them has samples.

    CPU: the sum of the 99th percentiles × 1.15; memory: the sum of the highest peaks × 1.15. A CPU
    that is missing for a moment delays daemons, memory that is missing has the kernel kill them.

    Source: VPA recommender, config/config.go, SafetyMarginFraction; the percentiles are of podslice.
    """
    cpu = memory = 0
    known = False
    for each in slices:
        known = known or each.used.cpu_milli is not None
        cpu += each.used.cpu_milli or 0
        memory += each.used.memory_peak_bytes or 0
    if not known:
        return None
    return Reservation(
        cpu_milli=math.ceil(cpu * MARGIN), memory_bytes=math.ceil(memory * MARGIN / MI) * MI
    )
