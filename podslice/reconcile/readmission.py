"""Pods that are not admitted: evicted ones, and new ones under pressure; pods that do not run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from podslice.kernel.proc import read_process
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import AgentState, Eviction, PendingPod
from podslice.model.pod import Pod
from podslice.policy.admit import EVICTED, WantedState, hold_back, pending_pods
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.world import World
from podslice.store.store import Records, Store


def living_agent(store: Store) -> AgentState | None:
    """Return the state that the agent published; None where that agent no longer runs."""
    state = store.agent.read()
    process = None if state is None else read_process(state.pid)
    if state is None or process is None or process.started_ticks != state.started_ticks:
        return None
    return state


def readmit(store: Store, keys: Collection[str] | None) -> tuple[Eviction, ...]:
    """Remove the marks of evicted pods, of all with None; return the removed marks.

    Raises:
        HostError: the marks can't be read or removed.
    """
    evicted = store.load().evicted
    dropped = tuple(mark for mark in evicted if keys is None or mark.pod in keys)
    for mark in dropped:
        store.unmark(mark.uid)
    return dropped


def is_evicted(pod: Pod, records: Records) -> bool:
    """Return whether an applied pod is to be removed because its present manifest was evicted."""
    return bool(records.evicted) and any(
        mark.uid == pod.uid and mark.digest == records.digests.get(pod.uid, mark.digest)
        for mark in records.evicted
    )


def split_admissible(
    world: World, candidates: Iterable[PodDecision], records: Records, agent: AgentState | None
) -> tuple[tuple[PodDecision, ...], tuple[Refusal, ...]]:
    """Return the candidates that may be admitted, and the refusals of the others."""
    marks = {mark.uid: mark for mark in records.evicted}
    free, refused = [], []
    for candidate in candidates:
        pod = candidate.pod
        mark = marks.get(pod.uid)
        if mark is None or mark.digest != world.store.digest(pod):
            free.append(candidate)
            continue
        message = (
            f"{mark.message}; it is not admitted until its manifest changes; to readmit it:"
            f" podslice readmit {pod.key}"
        )
        refused.append(Refusal(pod=pod.key, reason=EVICTED, message=message))
    if agent is None or not world.config.admission:
        return tuple(free), tuple(refused)
    there = {pod.key for pod in records.pods}
    allowed, waiting = hold_back(free, there, agent.conditions)
    return allowed, (*refused, *waiting)


def find_pending(  # noqa: PLR0913 - each is another part of what is wanted
    assessment: Assessment,
    candidates: Iterable[PodDecision],
    *,
    digests: Mapping[str, str],
    sources: Mapping[str, str],
    waiting: Iterable[Refusal] = (),
    evicted: Iterable[Eviction] = (),
    started: Collection[str] = (),
) -> tuple[PendingPod, ...]:
    """Return the pods that do not run as wanted.

    Args:
        assessment: one of a request with these candidates, or made after that.
        candidates: the new and changed pods of manifests.
        digests: the digests of their manifests, by uid.
        sources: their files, by uid.
        waiting: pods that have to wait for others, and are not candidates.
        evicted: marks that are not recorded.
        started: the pods whose containers `apply --start` runs, by key.
    """
    refused = (*assessment.plan.refused, *waiting)
    keys = {each.pod for each in refused}
    return pending_pods(
        WantedState(
            candidates=tuple(
                each
                for each in candidates
                if each.pod.key in keys
                or assessment.digests.get(each.pod.uid) != digests[each.pod.uid]
            ),
            applied=assessment.current,
            refused=refused,
            evicted=(*assessment.evicted, *evicted),
            sources=sources,
            started=started,
            flag=assessment.observed.caps.manager.flag,
        )
    )
