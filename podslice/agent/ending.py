"""Ends a pod at once, and tells where that has failed."""

from __future__ import annotations

from podslice.agent.board import Board
from podslice.events import Kind
from podslice.model.desired import PodDecision
from podslice.reconcile import State, stop_pod
from podslice.report import Outcome
from podslice.systemd.client import Client


async def end_pod(
    board: Board, client: Client, pod: PodDecision, state: State, *, why: str, grace_sec: int
) -> bool:
    """Stop a pod's slice; whether it is gone."""
    result = await stop_pod(board.world, client, pod, state.observed, why=why, grace_sec=grace_sec)
    if result.outcome is Outcome.DONE:
        return True
    board.tell(
        Kind.STEP_FAILED,
        f"{why}, but it could not be stopped: {result.error}",
        pod=pod.pod.key,
        unit=pod.slice,
    )
    return False
