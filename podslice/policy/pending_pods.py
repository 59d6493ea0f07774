"""The pods that are wanted and do not run as their manifests state, each with the reason."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import Condition, Eviction, PendingPod
from podslice.model.pod import Pod

EVICTED = "Evicted"
"""The reason of an evicted pod. Source: Kubernetes, pkg/kubelet/eviction, Reason."""
NOT_APPLIED = "NotApplied"
"""The reason of a pod that nothing prevents from being applied."""
NAME_IN_USE = "NameInUse"
"""The reason of a pod that waits for the end of another pod with its name or uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedState:
    """The pods of manifests, compared with those that are applied."""

    candidates: tuple[PodDecision, ...] = ()
    """The pods of manifests that are not applied, or from another manifest."""
    applied: tuple[Pod, ...] = ()
    refused: tuple[Refusal, ...] = ()
    """The candidates that are not admitted, and other pods that have to wait."""
    evicted: tuple[Eviction, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """The files of the pods of manifests, by uid."""
    started: Collection[str] = ()
    """The pods whose containers `apply --start` runs, by key."""
    flag: str = ""
    """The option that selects the service manager, after a space; empty for the system's."""


def pending_pods(state: WantedState) -> tuple[PendingPod, ...]:
    """Return the pods that do not run as wanted, by key."""
    candidates = {each.pod.key: each for each in state.candidates}
    applied = {pod.key for pod in state.applied}
    found: dict[str, PendingPod] = {}
    refused = (
        PendingPod(
            pod=each.pod,
            reason=each.reason,
            message=each.message,
            hint=_hint(each.reason, state.flag),
        )
        for each in state.refused
    )
    for each in (*_evicted(state), *refused, *_not_applied(state)):
        if each.pod not in found:
            decision = candidates.get(each.pod)
            found[each.pod] = replace(
                each,
                qos="" if decision is None else decision.qos.value,
                source=None if decision is None else state.sources.get(decision.pod.uid),
                is_applied=each.pod in applied,
            )
    return tuple(found[key] for key in sorted(found))


def _evicted(state: WantedState) -> Iterator[PendingPod]:
    """Yield the evicted pods, except those whose changed manifest may be applied."""
    refused = {each.pod for each in state.refused}
    changed = {each.pod.uid for each in state.candidates if each.pod.key not in refused}
    for mark in state.evicted:
        if mark.uid not in changed:
            hint = (
                "it is not admitted until its manifest changes; to readmit it:"
                f" podslice readmit{state.flag} {mark.pod}"
            )
            yield PendingPod(pod=mark.pod, reason=EVICTED, message=mark.message, hint=hint)


def _hint(reason: str, flag: str) -> str:
    """Return the remedy for a reason; the messages of other reasons contain their own."""
    if reason in list(Condition):
        return f"to see what uses it: podslice top{flag}"
    if reason.startswith("OutOf"):
        return f"lower its requests, or delete other pods; see: podslice node{flag}"
    return ""


def _not_applied(state: WantedState) -> Iterator[PendingPod]:
    """Yield the candidates that nothing prevents from being applied."""
    applied = {pod.key for pod in state.applied}
    for decision in state.candidates:
        pod = decision.pod
        is_changed = pod.key in applied
        message = "its changed manifest is not applied" if is_changed else "it is not applied yet"
        source = state.sources.get(pod.uid)
        hint = ""
        if source is not None:
            start = " --start" if pod.key in state.started else ""
            hint = f"to apply it: podslice apply{state.flag}{start} -f {shlex.quote(source)}"
        yield PendingPod(pod=pod.key, reason=NOT_APPLIED, message=message, hint=hint)
