"""Terminates pods in the background, so that rounds need not wait for grace periods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from podslice.agent.context import AgentContext
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.pod import Pod
from podslice.model.unit import UnitName
from podslice.plan import StopUnit
from podslice.reconcile.act import act_alone
from podslice.reconcile.assess import Assessment, OngoingTerminations
from podslice.reconcile.observe import read_occupants
from podslice.reconcile.report import Outcome, describe_result, describe_wait
from podslice.systemd.client import Client


class Terminations:
    """The terminating pods.

    As with a kubelet, a terminating pod counts until it is removed, and only then is another one
    of its name or uid created. It has one grace period: a round kills what is left after it.
    """

    def __init__(
        self, context: AgentContext, client: Client, on_terminated: Callable[[str, UnitName], None]
    ) -> None:
        """`client` has no cache.

        `on_terminated` is called with a pod and its slice when it is stopped, or could not be.
        """
        self._context = context
        self._client = client
        self._on_terminated = on_terminated
        self._tasks: dict[str, set[asyncio.Task[bool]]] = {}
        self._expired: set[str] = set()
        context.terminating = OngoingTerminations(
            in_progress=self._tasks.keys(), expired=self._expired
        )

    def start_planned(self, assessment: Assessment) -> bool:
        """Start the stops of a plan that may take time; return whether there were any."""
        uids = {pod.key: pod.uid for pod in assessment.current}
        is_started = False
        for step in assessment.plan.steps:
            if not isinstance(step, StopUnit) or step.pod is None or not step.takes_time:
                continue
            uid = uids[step.pod]
            # A pod has one grace period: what has survived it gets no second one.
            if uid in self._expired:
                continue  # the round itself kills what is left
            is_started = True
            if step.grace_sec:
                # without a count of processes where the kernel provides none
                text = describe_wait(step) or f"stopping pod {step.pod}, up to {step.grace_sec} s"
                self._context.events.report(
                    Kind.POD_TERMINATING, text, pod=step.pod, unit=step.name
                )
            self._start(uid, step, is_removal=True)
        return is_started

    def start(
        self, pod: PodDecision, *, why: str, grace_sec: int, is_removal: bool
    ) -> asyncio.Task[bool]:
        """Stop a pod's slice at once; the task ends with the pod and returns whether it is stopped.

        It needs no lock, since eviction can't wait for one: an apply in progress finds that a slice
        is missing, and the next one creates it again, or removes the pod's record.

        Args:
            pod: the pod.
            why: the reason of the step.
            grace_sec: the grace period, in which its processes may exit.
            is_removal: whether the pod is removed, and not started again.
        """
        group = self._context.group(pod.slice)
        occupants = read_occupants(self._context.world.cgroups, group, pod.pod.uid)
        step = StopUnit(
            name=pod.slice,
            why=why,
            # at least 1, where the kernel does not count: a grace period does no harm
            tasks=max(occupants.processes, 1),
            pod=pod.pod.key,
            grace_sec=grace_sec,
            occupants=occupants,
            signals=(pod.slice,) if occupants.is_mixed else (),
        )
        return self._start(pod.pod.uid, step, is_removal=is_removal)

    def retain_expired(self, unwanted: Iterable[Pod]) -> None:
        """Forget expired grace periods, except those of unwanted pods."""
        self._expired &= {pod.uid for pod in unwanted}

    async def close(self) -> None:
        """Stop waiting for terminating pods."""
        tasks = [task for each in self._tasks.values() for task in each]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, uid: str, step: StopUnit, *, is_removal: bool) -> asyncio.Task[bool]:
        # asyncio itself keeps no reference to a task
        tasks = self._tasks.setdefault(uid, set())
        task = asyncio.create_task(self._stop(step, is_removal=is_removal))
        tasks.add(task)

        def on_done(task: asyncio.Task[bool]) -> None:
            tasks.discard(task)
            # an eviction may stop a pod that terminates already: its last stop counts
            if not tasks and self._tasks.get(uid) is tasks:
                del self._tasks[uid]
                self._expired.add(uid)
            if not task.cancelled():
                self._on_terminated(step.pod or "", step.name)

        task.add_done_callback(on_done)
        return task

    async def _stop(self, step: StopUnit, *, is_removal: bool) -> bool:
        """Stop a pod and report the result; return whether it is stopped."""
        result = await act_alone(step, self._client)
        is_done = result.outcome is Outcome.DONE
        if is_removal or not is_done:
            kind = Kind.POD_REMOVED if is_done else Kind.STEP_FAILED
            text = describe_result(result)
            self._context.events.report(kind, text, pod=step.pod, unit=step.name)
        return is_done
