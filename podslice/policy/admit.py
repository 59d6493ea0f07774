"""Admission: the pods that fit on the node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import Condition
from podslice.model.pod import Qos
from podslice.model.resources import Amounts, format_amount, total
from podslice.policy.eviction import is_critical


def admit(
    candidates: Iterable[PodDecision], admitted: Sequence[PodDecision], allocatable: Amounts
) -> tuple[tuple[PodDecision, ...], tuple[Refusal, ...]]:
    """Return the candidates that fit beside the admitted pods, and refusals for the others.

    By priority, then by name, each on its own: one that does not fit does not block the next. A
    candidate replaces an admitted pod of its name; what it releases is available to those before
    it as well. Resources that the node does not count are not checked.

    Source: Kubernetes, pkg/scheduler/framework/plugins/noderesources/fit.go, fitsRequest;
    pkg/kubelet/lifecycle/predicate.go, InsufficientResourceError ("OutOf" + resource).
    """
    waiting, has_more = sorted(candidates, key=_order), True
    if not waiting:
        return (), ()
    in_force = {decision.pod.key: decision for decision in admitted}
    used = total(decision.requests for decision in admitted)
    accepted: list[PodDecision] = []
    refused: list[Refusal] = []
    while has_more:
        tried, waiting, refused, has_more = waiting, [], [], False
        for candidate in tried:
            before = in_force.get(candidate.pod.key)
            less = before.requests if before else {}
            others = {name: milli - less.get(name, 0) for name, milli in used.items()}
            lacking = _lacking(candidate.requests, others, allocatable)
            if lacking is None:
                accepted.append(candidate)
                used = total((others, candidate.requests))
                has_more = has_more or before is not None
            else:
                waiting.append(candidate)
                refused.append(_refuse(candidate, lacking, others, allocatable))
    return tuple(accepted), tuple(sorted(refused, key=lambda refusal: refusal.pod))


def _order(candidate: PodDecision) -> tuple[int, str]:
    return -candidate.pod.priority, candidate.pod.key


def _lacking(requests: Amounts, used: Amounts, allocatable: Amounts) -> str | None:
    """Return the first resource, by name, that is insufficient."""
    for name in sorted(requests.keys() & allocatable.keys()):
        free = allocatable[name] - used.get(name, 0)
        if requests[name] > max(free, 0):
            return name
    return None


def _refuse(candidate: PodDecision, name: str, used: Amounts, allocatable: Amounts) -> Refusal:
    asked, taken, there = candidate.requests[name], used.get(name, 0), allocatable[name]
    return Refusal(
        pod=candidate.pod.key,
        reason=f"OutOf{name}",
        message=f"requests {format_amount(name, asked)} of {name},"
        f" {format_amount(name, max(there - taken, 0))} is free"
        f" ({format_amount(name, taken)} of {format_amount(name, there)} is requested)",
    )


def hold_back(
    candidates: Iterable[PodDecision],
    current_keys: Collection[str],
    conditions: Collection[Condition],
) -> tuple[tuple[PodDecision, ...], tuple[Refusal, ...]]:
    """Return the candidates that a node with these conditions admits, and refusals for the others.

    Current pods are not affected. Under memory pressure of the node or of their tier BestEffort pods
    are refused, under that of the Burstable tier none, under any other every pod; critical ones
    never are.

    Source: Kubernetes, pkg/kubelet/eviction/eviction_manager.go, Admit.
    """
    allowed, refused = [], []
    for candidate in candidates:
        waits = (
            () if candidate.pod.key in current_keys or is_critical(candidate.pod) else conditions
        )
        reasons = (each for each in sorted(waits) if candidate.qos in _WAITING.get(each, Qos))
        if (condition := next(reasons, None)) is None:
            allowed.append(candidate)
            continue
        waiting = "BestEffort pods wait" if condition in _WAITING else "new pods wait"
        message = f"{_SHORT[condition]}; {waiting} until that is over"
        refused.append(Refusal(candidate.pod.key, reason=condition.value, message=message))
    return tuple(allowed), tuple(sorted(refused, key=lambda refusal: refusal.pod))


_WAITING = {
    Condition.MEMORY: (Qos.BESTEFFORT,),
    Condition.BESTEFFORT_MEMORY: (Qos.BESTEFFORT,),
    Condition.BURSTABLE_MEMORY: (),
}
"""The classes whose new pods wait under a condition; all of them under any other."""

_SHORT = {
    Condition.MEMORY: "the node is short of memory",
    Condition.BESTEFFORT_MEMORY: "the BestEffort tier is short of memory",
    Condition.DISK: "the node is short of storage",
    Condition.PID: "the node is short of process ids",
}
