"""Which pods run: those that fit and may start now, and why the others do not run as their manifests state."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import Condition, Eviction, PendingPod
from podslice.model.pod import Pod, Qos
from podslice.model.resources import Amounts, human_amounts, total
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
    # An accepted candidate that replaces a pod may release requests: those refused are tried again.
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
        # More than allocatable may be requested already, for example after a new reservation; a
        # request of 0 fits nevertheless.
        if requests[name] > max(free, 0):
            return name
    return None


def _refuse(candidate: PodDecision, name: str, used: Amounts, allocatable: Amounts) -> Refusal:
    taken, there = used.get(name, 0), allocatable[name]
    free = max(there - taken, 0)
    shown = human_amounts(name, candidate.requests[name], free, taken, there)
    return Refusal(
        pod=candidate.pod.key,
        reason=f"OutOf{name}",
        message="requests {} of {name}, {} is free ({} of {} is requested)".format(
            *shown, name=name
        ),
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


EVICTED = "Evicted"
"""The reason of an evicted pod. Source: Kubernetes, pkg/kubelet/eviction, Reason."""
NOT_APPLIED = "NotApplied"
"""The reason of a pod that nothing prevents from being applied."""
NAME_IN_USE = "NameInUse"
"""The reason of a pod that waits for the end of another pod with its name or uid."""


def pending_pods(  # noqa: PLR0913
    *,
    candidates: Sequence[PodDecision] = (),
    applied: Iterable[Pod] = (),
    refused: Sequence[Refusal] = (),
    evicted: Iterable[Eviction] = (),
    sources: Mapping[str, str],
    started: Collection[str] = (),
    flag: str = "",
) -> tuple[PendingPod, ...]:
    """Return the pods that do not run as wanted, by key; a pod that was evicted has that reason.

    Args:
        candidates: the pods of manifests that are not applied, or from another manifest.
        applied: the pods that are.
        refused: the candidates that are not admitted, and other pods that have to wait.
        evicted: the marks of evicted pods.
        sources: the files of the pods of manifests, by uid.
        started: the pods whose containers `apply --start` runs, by key.
        flag: the option that selects the service manager, after a space; empty for the system's.
    """
    by_key, applied_keys = {each.pod.key: each for each in candidates}, {pod.key for pod in applied}
    refused_keys = {each.pod for each in refused}
    # a changed manifest ends an eviction, if it may be applied
    changed = {each.pod.uid for each in candidates if each.pod.key not in refused_keys}
    readmit = "it is not admitted until its manifest changes; to readmit it: podslice readmit"
    reasons = [
        *(
            (each.pod, EVICTED, each.message, f"{readmit}{flag} {each.pod}")
            for each in evicted
            if each.uid not in changed
        ),
        *((each.pod, each.reason, each.message, _hint(each.reason, flag)) for each in refused),
    ]
    for key, decision in by_key.items():
        is_changed, hint = key in applied_keys, ""
        message = "its changed manifest is not applied" if is_changed else "it is not applied yet"
        if (file := sources.get(decision.pod.uid)) is not None:
            start = " --start" if key in started else ""
            hint = f"to apply it: podslice apply{flag}{start} -f {shlex.quote(file)}"
        reasons.append((key, NOT_APPLIED, message, hint))
    found: dict[str, PendingPod] = {}
    for key, reason, message, hint in reasons:
        wanted = by_key.get(key)
        pending = PendingPod(
            pod=key,
            reason=reason,
            message=message,
            hint=hint,
            qos=wanted.qos.value if wanted else "",
            source=sources.get(wanted.pod.uid) if wanted else None,
            is_applied=key in applied_keys,
        )
        # Of several reasons the first one counts: an eviction, then a refusal.
        found.setdefault(key, pending)
    return tuple(found[key] for key in sorted(found))


def _hint(reason: str, flag: str) -> str:
    """Return the remedy for a reason; the messages of other reasons contain their own."""
    if reason in list(Condition):
        return f"to see what uses it: podslice top{flag}"
    if reason.startswith("OutOf"):
        return f"lower its requests, or delete other pods; see: podslice node{flag}"
    return ""
