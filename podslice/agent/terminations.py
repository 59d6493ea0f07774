"""Pods that end beside the rounds: while one takes its time, nothing else has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from podslice.agent.board import Board
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.pod import Pod
from podslice.model.unit import UnitName
from podslice.plan import StopUnit
from podslice.reconcile.act import act_alone
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.evict import stop_pod
from podslice.reconcile.report import Outcome, StepResult, describe_result, describe_wait
from podslice.reconcile.request import TerminatingPods
from podslice.systemd.client import Client

OnEnd = Callable[[str, UnitName], None]
"""Called with a pod and its slice."""


class Endings:
    """Ends pods, and knows which are on their way.

    As with a kubelet, a pod that ends counts until it is gone; one of the same name or uid comes
    after it. It has its grace period once: what is left of it then is killed by a round.
    """

    def __init__(self, board: Board, client: Client, on_end: OnEnd) -> None:
        """Nobody ends yet.

        Args:
            board: what the parts of the agent share.
            client: one that asks systemd itself.
            on_end: called when a pod is gone, or could not be stopped.
        """
        self._board = board
        self._client = client
        self._on_end = on_end
        self._under_way: dict[str, set[asyncio.Task[bool]]] = {}
        self._over: set[str] = set()
        board.terminating = TerminatingPods(in_progress=self._under_way.keys(), expired=self._over)

    def take(self, state: Assessment) -> bool:
        """Take over the stops of a plan that may take their time; whether there were any."""
        uids = {pod.key: pod.uid for pod in state.current}
        taken = False
        for step in state.plan.steps:
            if not isinstance(step, StopUnit) or step.pod is None or not step.takes_time:
                continue
            uid = uids[step.pod]
            if uid in self._over:
                continue
            taken = True
            if step.grace_sec:
                # where the kernel does not count there is no number of processes
                text = describe_wait(step) or f"stopping pod {step.pod}, up to {step.grace_sec} s"
                self._board.tell(Kind.POD_TERMINATING, text, pod=step.pod, unit=step.name)
            stopping = act_alone(step, self._client)
            self._begin(uid, step.pod, step.name, stopping, for_good=True)
        return taken

    def begin(
        self, pod: PodDecision, state: Assessment, *, why: str, grace_sec: int, for_good: bool
    ) -> asyncio.Task[bool]:
        """Stop a pod's slice at once, and where it is not `for_good`, only to be made again.

        What is returned ends with the pod: whether it is gone.
        """
        stopping = stop_pod(
            self._board.world, self._client, pod, state.observed, why=why, grace_sec=grace_sec
        )
        return self._begin(pod.pod.uid, pod.pod.key, pod.slice, stopping, for_good=for_good)

    def forget(self, going: Iterable[Pod]) -> None:
        """Who comes back after its end has its time once more; the others still have to go."""
        self._over &= {pod.uid for pod in going}

    async def close(self) -> None:
        """Wait for no pod to end."""
        tasks = [task for each in self._under_way.values() for task in each]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(
        self,
        uid: str,
        pod: str,
        slice_: UnitName,
        stopping: Awaitable[StepResult],
        *,
        for_good: bool,
    ) -> asyncio.Task[bool]:
        # held here, for the loop does not
        tasks = self._under_way.setdefault(uid, set())
        task = asyncio.create_task(self._see(pod, stopping, for_good=for_good))
        tasks.add(task)

        def end(task: asyncio.Task[bool]) -> None:
            tasks.discard(task)
            if not tasks and self._under_way.get(uid) is tasks:
                del self._under_way[uid]
                self._over.add(uid)
            if not task.cancelled():
                self._on_end(pod, slice_)

        task.add_done_callback(end)
        return task

    async def _see(self, pod: str, stopping: Awaitable[StepResult], *, for_good: bool) -> bool:
        """Tell what comes of it; whether the pod is gone."""
        result = await stopping
        is_done = result.outcome is Outcome.DONE
        if for_good or not is_done:
            kind = Kind.POD_REMOVED if is_done else Kind.STEP_FAILED
            self._board.tell(kind, describe_result(result), pod=pod, unit=result.step.name)
        return is_done
