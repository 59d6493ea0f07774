"""What the kernel has killed for want of memory, and the rest of the pod where it is to go along."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from podslice.agent.board import Board
from podslice.agent.ending import end_pod
from podslice.events import Kind
from podslice.model.config import OomPolicy
from podslice.model.desired import PodDecision
from podslice.model.unit import UnitName
from podslice.reconcile.observation import control_group
from podslice.systemd.client import Client


class OomWatch:
    """Counts the kernel's kills per pod."""

    def __init__(self, board: Board, client: Client, on_stop: Callable[[UnitName], None]) -> None:
        """`on_stop` is called once a pod's slice was stopped, so that it is made again, empty."""
        self._board = board
        self._client = client
        self._on_stop = on_stop
        self._kills: dict[UnitName, int] = {}
        self._stopping: dict[UnitName, asyncio.Task[None]] = {}

    def follow(self) -> None:
        """Take the present counts of pods that are new for a beginning; forget those that left."""
        state = self._board.state
        pods = state.desired.pods if state else ()
        before = self._kills
        self._kills = {
            pod.slice: before[pod.slice] if pod.slice in before else self._count(pod)
            for pod in pods
        }

    def check(self, names: Collection[UnitName]) -> None:
        """Look at pods of whose memory the kernel has told something."""
        state = self._board.state
        for pod in state.desired.pods if state else ():
            if pod.slice in names and pod.slice in self._kills:
                self._check(pod)

    def close(self) -> None:
        """Wait for no pod to end."""
        for task in self._stopping.values():
            task.cancel()

    def _check(self, pod: PodDecision) -> None:
        before, now = self._kills[pod.slice], self._count(pod)
        self._kills[pod.slice] = now
        if now < before:
            before = 0  # its control group is another one now
        if now == before:
            return
        count = "a process" if now - before == 1 else f"{now - before} processes"
        self._board.counters.oom_killed(now - before)
        is_whole = self._board.world.config.oom_policy is OomPolicy.POD
        self._board.tell(
            Kind.POD_OOM,
            f"pod {pod.pod.key}: the kernel has killed {count} for want of memory"
            + ("; the rest of the pod is stopped with it" if is_whole else ""),
            pod=pod.pod.key,
            unit=pod.slice,
            fields={"OOM_KILLS": str(now)},
        )
        if is_whole and pod.slice not in self._stopping:
            # held here, for the loop does not
            task = self._stopping[pod.slice] = asyncio.create_task(self._stop(pod))
            task.add_done_callback(lambda _: self._stopping.pop(pod.slice))

    async def _stop(self, pod: PodDecision) -> None:
        state = self._board.state
        if state is None:
            return
        await end_pod(
            self._board,
            self._client,
            pod,
            state,
            why=f"the kernel has killed in pod {pod.pod.key}, and the rest is to go with it",
            grace_sec=pod.pod.grace_period_sec,
        )
        self._kills.pop(pod.slice, None)
        self._on_stop(pod.slice)

    def _count(self, pod: PodDecision) -> int:
        state = self._board.state
        group = control_group(pod.slice, state.observed) if state else pod.control_group
        return self._board.world.cgroups.events(group).get("oom_kill", 0)
