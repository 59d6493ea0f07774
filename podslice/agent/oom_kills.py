"""What the kernel has killed for want of memory, and the rest of the pod where it is to go along."""

from __future__ import annotations

from collections.abc import Collection

from podslice.agent.board import Board
from podslice.agent.terminations import Endings
from podslice.model.config import OomPolicy
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.unit import UnitName
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.observe import control_group


class OomWatch:
    """Counts the kernel's kills per pod."""

    def __init__(self, board: Board, endings: Endings) -> None:
        """Nothing is counted yet."""
        self._board = board
        self._endings = endings
        self._kills: dict[UnitName, int] = {}

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
        if state is None:
            return
        for pod in state.desired.pods:
            if pod.slice in names and pod.slice in self._kills:
                self._check(pod, state)

    def forget(self, name: UnitName) -> None:
        """A slice was stopped: the kernel counts anew in the next one of its name."""
        self._kills.pop(name, None)

    def _check(self, pod: PodDecision, state: Assessment) -> None:
        before, now = self._kills[pod.slice], self._count(pod)
        self._kills[pod.slice] = now
        if now < before:
            before = 0  # its control group is another one now
        if now == before:
            return
        count = "a process" if now - before == 1 else f"{now - before} processes"
        self._board.counters.oom_killed(now - before)
        is_whole = self._board.world.config.oom_policy is OomPolicy.POD and not state.foreign
        self._board.tell(
            Kind.POD_OOM,
            f"pod {pod.pod.key}: the kernel has killed {count} for want of memory"
            + ("; the rest of the pod is stopped with it" if is_whole else ""),
            pod=pod.pod.key,
            unit=pod.slice,
            fields={"OOM_KILLS": str(now)},
        )
        if is_whole and pod.pod.uid not in self._board.terminating.in_progress:
            self._endings.begin(
                pod,
                state,
                why=f"the kernel has killed in pod {pod.pod.key}, and the rest is to go with it",
                grace_sec=pod.pod.grace_period_sec,
                for_good=False,
            )

    def _count(self, pod: PodDecision) -> int:
        state = self._board.state
        group = control_group(pod.slice, state.observed) if state else pod.control_group
        return self._board.world.cgroups.events(group).get("oom_kill", 0)
