"""Eviction: thresholds, the pressure on the node, and the order in which pods are evicted.

Pure: the caller passes the observations and the time of a monotonic clock, and stops the pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.model.config import TIER_SIGNALS, Config, Enforce, Threshold
from podslice.model.desired import PodDecision
from podslice.model.node_state import Condition
from podslice.model.pod import Pod, Qos
from podslice.model.quantity import format_milli
from podslice.model.resources import EPHEMERAL_STORAGE, MEMORY, PIDS, human_amounts
from podslice.policy.allocatable import threshold_amount

CRITICAL_PRIORITY = 2_000_000_000
"""Pods from `system-cluster-critical` on are never evicted.

Source: Kubernetes, pkg/kubelet/types/pod_update.go, IsCriticalPod.
"""


class Signal(NamedTuple):
    """What a signal is about."""

    resource: str
    condition: Condition
    """The condition of the node while it is below a threshold."""
    tier: Qos | None = None
    """The only tier whose pods have an effect on it; None if all pods have."""


SIGNALS: Mapping[str, Signal] = {
    "memory.available": Signal(MEMORY, Condition.MEMORY),
    "allocatableMemory.available": Signal(MEMORY, Condition.MEMORY),
    "nodefs.available": Signal(EPHEMERAL_STORAGE, Condition.DISK),
    "nodefs.inodesFree": Signal("inodes", Condition.DISK),
    "imagefs.available": Signal(EPHEMERAL_STORAGE, Condition.DISK),
    "imagefs.inodesFree": Signal("inodes", Condition.DISK),
    "containerfs.available": Signal(EPHEMERAL_STORAGE, Condition.DISK),
    "containerfs.inodesFree": Signal("inodes", Condition.DISK),
    "pid.available": Signal(PIDS, Condition.PID),
    # a tier that is short of memory does not set the condition of the node
    TIER_SIGNALS[Qos.BURSTABLE]: Signal(MEMORY, Condition.BURSTABLE_MEMORY, Qos.BURSTABLE),
    TIER_SIGNALS[Qos.BESTEFFORT]: Signal(MEMORY, Condition.BESTEFFORT_MEMORY, Qos.BESTEFFORT),
}
"""Source: Kubernetes, pkg/kubelet/eviction/helpers.go, signalToResource, signalToNodeCondition."""


class EvictionThreshold(NamedTuple):
    """One threshold with all options of its signal."""

    signal: str
    value: Threshold
    minimum_reclaim: Threshold | None = None
    grace_usec: int = 0
    """How long it must be met; 0 for a hard threshold."""
    is_hard: bool = True


class SignalObservation(NamedTuple):
    """The available amount of a signal's resource and its capacity, in thousandths."""

    available: int
    capacity: int


class PodUsage(NamedTuple):
    """The usage of a pod, in thousandths of the unit."""

    memory: int = 0
    """The working set: usage without inactive file pages."""
    storage: int = 0
    inodes: int = 0
    pids: int = 0


class EvictionCandidate(NamedTuple):
    """A pod that may be evicted, with the reason for its rank."""

    decision: PodDecision
    reason: str


def eviction_thresholds(config: Config) -> tuple[EvictionThreshold, ...]:
    """Return the configured thresholds, hard ones first.

    The one for memory also applies to the pods' sum, if Allocatable is enforced on pods. Those of
    tiers are hard.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, ParseThresholdConfig and
    addAllocatableThresholds; Kubelet pod level resource management, "Evaluate supporting evictions
    local to QoS cgroup sandboxes".
    """
    reclaim, grace_usec = config.eviction_minimum_reclaim, config.eviction_soft_grace_period_usec
    hard = [
        EvictionThreshold(signal, value, reclaim.get(signal))
        for signal, value in sorted(config.eviction_hard.items())
    ]
    soft = [
        EvictionThreshold(
            signal, value, reclaim.get(signal), grace_usec.get(signal, 0), is_hard=False
        )
        for signal, value in sorted(config.eviction_soft.items())
    ]
    # The pods together may reach the limit of their slice while the node has memory left: the same
    # threshold applies to what is left below that limit.
    of_pods = [
        each._replace(signal="allocatableMemory.available")
        for each in hard
        if each.signal == "memory.available" and Enforce.PODS in config.enforce_node_allocatable
    ]
    of_tiers = [
        EvictionThreshold(TIER_SIGNALS[qos], value, reclaim.get(TIER_SIGNALS[qos]))
        for qos, value in sorted(config.eviction_tier.items())
    ]
    return (*hard, *of_pods, *of_tiers, *soft)


def thresholds_met(
    thresholds: Iterable[EvictionThreshold],
    observations: Mapping[str, SignalObservation],
    *,
    before: Iterable[EvictionThreshold] = (),
) -> tuple[EvictionThreshold, ...]:
    """Return the thresholds that are met now, or were met `before` and have not recovered enough.

    A threshold remains met until its minimum reclaim is free as well. A signal without an
    observation meets no threshold.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, thresholdsMet, and eviction_manager.go,
    synchronize.
    """
    met_before, found = set(before), []
    for each in thresholds:
        if (observation := observations.get(each.signal)) is None:
            continue
        wanted = threshold_amount(each.value, observation.capacity)
        if each in met_before and each.minimum_reclaim is not None:
            wanted += threshold_amount(each.minimum_reclaim, observation.capacity)
        if observation.available < wanted:
            found.append(each)
    return tuple(found)


def past_grace(
    met: Iterable[EvictionThreshold],
    first_met_usec: Mapping[EvictionThreshold, int],
    now_usec: int,
) -> tuple[EvictionThreshold, ...]:
    """Return the met thresholds whose grace period is over.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, thresholdsMetGracePeriod.
    """
    return tuple(
        each for each in met if now_usec - first_met_usec.get(each, now_usec) >= each.grace_usec
    )


def by_urgency(met: Iterable[EvictionThreshold]) -> tuple[EvictionThreshold, ...]:
    """Sort thresholds in the order in which they are acted on.

    Memory before all others, hard before soft, the node before its tiers, then by name.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, byEvictionPriority.
    """

    def urgency(each: EvictionThreshold) -> tuple[bool, bool, bool, str]:
        is_other = SIGNALS[each.signal].resource != MEMORY
        # False precedes True.
        return is_other, not each.is_hard, SIGNALS[each.signal].tier is not None, each.signal

    return tuple(sorted(met, key=urgency))


def is_critical(pod: Pod) -> bool:
    """Return whether the pod is critical: never evicted, and admitted under every pressure."""
    return pod.priority >= CRITICAL_PRIORITY


def concerns(signal: str, pod: PodDecision) -> bool:
    """Return whether the eviction of a pod may have an effect on a signal: all, or those of its tier."""
    return SIGNALS[signal].tier in (None, pod.qos)


def rank(
    signal: str, pods: Iterable[PodDecision], usage: Mapping[str, PodUsage]
) -> tuple[EvictionCandidate, ...]:
    """Return the pods in the order in which they are evicted for a signal, without critical ones.

    Memory, storage and inodes: pods above their request first, then the lower priority, then the
    larger excess over the request; inodes have no requests. Processes: the lower priority, then the
    larger use.

    `usage` is by the pods' keys; a pod without usage counts as using nothing.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, rankMemoryPressure,
    rankDiskPressureFunc, rankPIDPressure.
    """
    resource = SIGNALS[signal].resource
    has_request = resource in (MEMORY, EPHEMERAL_STORAGE)
    ranked = []
    for pod in pods:
        if is_critical(pod.pod):
            continue
        used = used_of(signal, usage.get(pod.pod.key, PodUsage()))
        request = _request(resource, pod) if has_request else 0
        above = resource != PIDS and used > request
        # In ascending order; the key makes the order of equal pods the same each time.
        place = (not above, pod.pod.priority, request - used, pod.pod.key)
        ranked.append((place, EvictionCandidate(decision=pod, reason=_reason(resource, pod, used))))
    return tuple(candidate for _, candidate in sorted(ranked, key=lambda each: each[0]))


def _request(resource: str, pod: PodDecision) -> int:
    """Return a request in thousandths, with the huge pages that its use includes."""
    hugepages = pod.hugepages_in_memory_bytes * 1000 if resource == MEMORY else 0
    return pod.requests.get(resource, 0) + hugepages


def used_of(signal: str, usage: PodUsage) -> int:
    """Return a pod's usage of a signal's resource, in thousandths."""
    return _USED[SIGNALS[signal].resource](usage)


_USED: Mapping[str, Callable[[PodUsage], int]] = {
    MEMORY: lambda usage: usage.memory,
    EPHEMERAL_STORAGE: lambda usage: usage.storage,
    "inodes": lambda usage: usage.inodes,
    PIDS: lambda usage: usage.pids,
}


def _reason(resource: str, pod: PodDecision, used: int) -> str:
    """Describe the numbers behind a rank."""
    text = f"priority {pod.pod.priority}, uses"
    if resource not in (MEMORY, EPHEMERAL_STORAGE):
        return f"{text} {format_milli(used)} {resource}"
    uses, requests = human_amounts(resource, used, _request(resource, pod))
    return f"{text} {uses} of {resource}, requests {requests}"


def format_signal(signal: str, *milli: int) -> list[str]:
    """Return values of a signal for people: `92.9 MiB` of memory, 2000 inodes."""
    if SIGNALS[signal].resource not in (MEMORY, EPHEMERAL_STORAGE):
        return [str(each // 1000) for each in milli]
    return human_amounts(MEMORY, *(each // 1000 * 1000 for each in milli))


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
    # A threshold that is not met for one observation restarts its grace period.
    since_usec = {each: before.met_since_usec.get(each, now_usec) for each in met}
    over = past_grace(met, since_usec, now_usec)
    seen_now = {SIGNALS[each.signal].condition: now_usec for each in met}
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
    is_memory = SIGNALS[signal].resource == MEMORY
    for candidate in rank(signal, (pod for pod in pods if concerns(signal, pod)), usage):
        pod = candidate.decision
        is_requested = is_memory and pod.qos is Qos.GUARANTEED
        used = used_of(signal, usage.get(pod.pod.key, PodUsage()))
        if used > (_request(MEMORY, pod) if is_requested else 0):
            yield candidate


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
    if SIGNALS[threshold.signal].resource != MEMORY:
        is_near = above * 100 < observation.capacity * _NEAR_PERCENT
        return _POLL_SOON_USEC if is_near else _POLL_MAX_USEC
    least_usec = _POLL_MIN_USEC if threshold.is_hard else _POLL_SOON_USEC
    # Thousandths of a byte above the threshold → bytes → microseconds until they may be in use.
    wait_usec = above // 1000 * 1_000_000 // _FASTEST_BYTES_PER_SEC
    return min(max(wait_usec, least_usec), _POLL_MAX_USEC)


def pod_grace_sec(pod: Pod, threshold: EvictionThreshold, config: Config) -> int:
    """Return the grace period of a pod that is evicted for a threshold."""
    if threshold.is_hard:
        return HARD_GRACE_SEC
    longest_sec = config.eviction_max_pod_grace_period_sec
    return max(min(pod.grace_period_sec, longest_sec), HARD_GRACE_SEC)
