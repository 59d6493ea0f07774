"""Pods that are not admitted: evicted ones, and new ones while the node is under pressure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from podslice.kernel.proc import read_process
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import AgentState, Eviction
from podslice.model.pod import Pod
from podslice.policy.admit import hold_back
from podslice.policy.pending_pods import EVICTED
from podslice.reconcile.world import World
from podslice.store import Records, Store


def living_agent(store: Store) -> AgentState | None:
    """Return the state that the agent published; None where that agent no longer runs."""
    state = store.agent()
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
