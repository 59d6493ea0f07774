"""Pods that stay away: those that were evicted, and new ones while the node is short of something."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from podslice.kernel.proc import read_process
from podslice.model.desired import PodDecision, Refusal
from podslice.model.node_state import AgentState, Eviction
from podslice.model.pod import Pod
from podslice.policy.admit import hold_back
from podslice.reconcile.world import World
from podslice.store import Records, Store

EVICTED = "Evicted"
"""Why a pod is refused that stays away. Source: Kubernetes, pkg/kubelet/eviction, Reason."""


def living_agent(store: Store) -> AgentState | None:
    """What the agent lets others know, where the one that has written it still runs."""
    state = store.agent()
    process = None if state is None else read_process(state.pid)
    if state is None or process is None or process.started_ticks != state.started_ticks:
        return None
    return state


def pod_of(mark: Eviction) -> Pod:
    """As much of an evicted pod as its mark tells."""
    namespace, _, name = mark.pod.partition("/")
    return Pod(namespace=namespace, name=name, uid=mark.uid)


def readmit(store: Store, names: Callable[[Eviction], bool]) -> tuple[Eviction, ...]:
    """Let evicted pods come back; returns their marks, which are gone now.

    Raises:
        HostError: the marks can't be read, or not be removed.
    """
    dropped = tuple(mark for mark in store.load().evicted if names(mark))
    for mark in dropped:
        store.unmark(mark.uid)
    return dropped


def is_evicted(pod: Pod, records: Records) -> bool:
    """Whether an applied pod has to go because it was evicted as it is."""
    return any(
        mark.uid == pod.uid and mark.digest == records.digests.get(pod.uid, mark.digest)
        for mark in records.evicted
    )


def keep_away(
    world: World, candidates: Iterable[PodDecision], records: Records, agent: AgentState | None
) -> tuple[tuple[PodDecision, ...], tuple[Refusal, ...]]:
    """The candidates that may come, and refusals for those that have to stay away for now."""
    marks = {mark.uid: mark for mark in records.evicted}
    free, refused = [], []
    for candidate in candidates:
        pod = candidate.pod
        mark = marks.get(pod.uid)
        if mark is None or mark.digest != world.store.digest(pod):
            free.append(candidate)
            continue
        message = (
            f"{mark.message}; it stays away until its manifest changes; to let it come back:"
            f" podslice readmit {pod.key}"
        )
        refused.append(Refusal(pod=pod.key, reason=EVICTED, message=message))
    if agent is None or not world.config.admission:
        return tuple(free), tuple(refused)
    there = {pod.key for pod in records.pods}
    allowed, waiting = hold_back(free, there, agent.conditions)
    return allowed, (*refused, *waiting)
