"""Pressure on the node: its conditions, their duration, and the evictions that follow.

Pure: the caller passes the observations and the time of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.model.config import TIER_SIGNALS, Config
from podslice.model.desired import PodDecision
from podslice.model.node_state import Condition
from podslice.model.pod import Pod, Qos
from podslice.model.resources import MEMORY
from podslice.policy.allocatable import threshold_amount
from podslice.policy.eviction.thresholds import (
    RESOURCE_OF_SIGNAL,
    EvictionCandidate,
    EvictionThreshold,
    PodUsage,
    SignalObservation,
    by_urgency,
    concerns,
    past_grace,
    rank,
    thresholds_met,
    used_of,
)

CONDITION_OF_SIGNAL = {
    "memory.available": Condition.MEMORY,
    "allocatableMemory.available": Condition.MEMORY,
    "nodefs.available": Condition.DISK,
    "nodefs.inodesFree": Condition.DISK,
    "imagefs.available": Condition.DISK,
    "imagefs.inodesFree": Condition.DISK,
    "containerfs.available": Condition.DISK,
    "containerfs.inodesFree": Condition.DISK,
    "pid.available": Condition.PID,
    TIER_SIGNALS[Qos.BURSTABLE]: Condition.BURSTABLE_MEMORY,
    TIER_SIGNALS[Qos.BESTEFFORT]: Condition.BESTEFFORT_MEMORY,
}
"""A tier that is short of memory has a condition of its own, and does not set that of the node.

Source: Kubernetes, pkg/kubelet/eviction/helpers.go, signalToNodeCondition.
"""

HARD_GRACE_SEC = 1
"""What a pod gets at a hard threshold, and the least that it gets at all.

Source: Kubernetes, pkg/kubelet/eviction/eviction_manager.go, immediateEvictionGracePeriodSeconds;
pkg/kubelet/pod_workers.go, calculateEffectiveGracePeriod.
"""

_FASTEST_BYTES_PER_SEC = 4 * 2**30
"""What one process can take per second, and more than several do together: zeroing memory."""
_POLL_MIN_USEC, _POLL_SOON_USEC, _POLL_MAX_USEC = 25_000, 1_000_000, 10_000_000
_NEAR_PERCENT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressures:
    """What is remembered from one judgement to the next; times are of a monotonic clock."""

    met_since_usec: Mapping[EvictionThreshold, int] = field(default_factory=dict)
    """The time since when each threshold is met."""
    last_observed_usec: Mapping[Condition, int] = field(default_factory=dict)
    """When each condition was last observed."""
    met: tuple[EvictionThreshold, ...] = ()
    """Those past their grace period: they are met until their minimum reclaim is free as well."""


class Verdict(NamedTuple):
    """The judgement on one observation of the node."""

    pressures: Pressures
    """The input of the next judgement."""
    conditions: frozenset[Condition] = frozenset()
    """The conditions that hold, or did within the transition period."""
    due: tuple[EvictionThreshold, ...] = ()
    """The thresholds to evict pods for, the most urgent first."""


def judge(
    thresholds: Iterable[EvictionThreshold],
    observations: Mapping[str, SignalObservation],
    before: Pressures,
    now_usec: int,
    transition_usec: int,
) -> Verdict:
    """Judge the observations, given the pressures `before`.

    A condition begins with the first threshold that is met, whatever its grace period, and ends
    when none has been for the transition period. Eviction waits for the grace period, and goes on
    until the minimum reclaim is free beyond the threshold.

    Source: Kubernetes, pkg/kubelet/eviction/eviction_manager.go, synchronize.
    """
    met = thresholds_met(thresholds, observations, before=before.met)
    since_usec = {each: before.met_since_usec.get(each, now_usec) for each in met}
    over = past_grace(met, since_usec, now_usec)
    seen_now = {CONDITION_OF_SIGNAL[each.signal]: now_usec for each in met}
    seen_usec = {
        condition: at_usec
        for condition, at_usec in {**before.last_observed_usec, **seen_now}.items()
        if condition in seen_now or now_usec - at_usec < transition_usec
    }
    return Verdict(
        pressures=Pressures(met_since_usec=since_usec, last_observed_usec=seen_usec, met=over),
        conditions=frozenset(seen_usec),
        due=by_urgency(over),
    )


def choose(
    signal: str, pods: Iterable[PodDecision], usage: Mapping[str, PodUsage]
) -> EvictionCandidate | None:
    """Return the pod to evict for a signal: the first one that can be evicted; None if there is none."""
    return next(candidates(signal, pods, usage), None)


def candidates(
    signal: str, pods: Iterable[PodDecision], usage: Mapping[str, PodUsage]
) -> Iterator[EvictionCandidate]:
    """Yield the pods that can be evicted for a signal, by rank.

    Never a critical pod, nor a Guaranteed one for memory that it requested, nor a pod that uses
    nothing of the resource, nor for a tier a pod of another one.
    """
    for candidate in rank(signal, (pod for pod in pods if concerns(signal, pod)), usage):
        if _is_eligible(signal, candidate.decision, usage):
            yield candidate


def _is_eligible(signal: str, pod: PodDecision, usage: Mapping[str, PodUsage]) -> bool:
    used = used_of(signal, usage.get(pod.pod.key, PodUsage()))
    if RESOURCE_OF_SIGNAL[signal] == MEMORY and pod.qos is Qos.GUARANTEED:
        return used > pod.requests[MEMORY]
    return used > 0


def next_poll_usec(
    thresholds: Iterable[EvictionThreshold], observations: Mapping[str, SignalObservation]
) -> int:
    """Return the time until a threshold may be crossed, as an upper bound for polling.

    Memory may be allocated at 4 GiB per second; a soft threshold is less urgent. Other resources
    change more slowly, and are polled more often within 5 % of a threshold.
    """
    seen = (each for each in thresholds if each.signal in observations)
    waits = (_wait_usec(each, observations[each.signal]) for each in seen)
    return min(waits, default=_POLL_MAX_USEC)


def _wait_usec(threshold: EvictionThreshold, observation: SignalObservation) -> int:
    above = observation.available - threshold_amount(threshold.value, observation.capacity)
    if RESOURCE_OF_SIGNAL[threshold.signal] != MEMORY:
        is_near = above * 100 < observation.capacity * _NEAR_PERCENT
        return _POLL_SOON_USEC if is_near else _POLL_MAX_USEC
    least_usec = _POLL_MIN_USEC if threshold.is_hard else _POLL_SOON_USEC
    wait_usec = above // 1000 * 1_000_000 // _FASTEST_BYTES_PER_SEC
    return min(max(wait_usec, least_usec), _POLL_MAX_USEC)


def pod_grace_sec(pod: Pod, threshold: EvictionThreshold, config: Config) -> int:
    """Return the grace period of a pod that is evicted for a threshold."""
    if threshold.is_hard:
        return HARD_GRACE_SEC
    longest_sec = config.eviction_max_pod_grace_period_sec
    return max(min(pod.grace_period_sec, longest_sec), HARD_GRACE_SEC)
