"""One round of the agent: what is wished for, what is, and the way from one to the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from podslice.agent.board import Board
from podslice.agent.manifests import Manifests, Wishes
from podslice.agent.remember import Remembering
from podslice.errors import Problem, Severity
from podslice.events import Kind
from podslice.model.desired import PodDecision
from podslice.model.pod import Pod
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import UnitName, Value
from podslice.plan import SetProperties, StartUnit, Step, StopUnit
from podslice.policy.allocatable import validate_node
from podslice.policy.decide import decide
from podslice.reconcile import State, apply, look
from podslice.report import (
    Outcome,
    Report,
    StepResult,
    action_of,
    told,
    told_lingering,
    told_refusal,
    told_skipped,
)
from podslice.store import Records

CONTESTED_TIMES = 5
"""So often within `CONTESTED_SEC` a unit is repaired before somebody else is suspected."""
CONTESTED_SEC = 60.0
CONTESTED_PAUSE_SEC = 10.0
"""How long the agent then lets the unit be between two repairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What became of one round."""

    is_settled: bool
    """Whether everything is as it should be."""
    acted: bool


class Rounds:
    """Takes rounds, and remembers from one to the next what was told already."""

    def __init__(self, board: Board, manifests: Manifests, client: Remembering) -> None:
        self._board = board
        self._manifests = manifests
        self._client = client
        self._decided: dict[str, tuple[Pod, PodDecision]] = {}
        self._settled: Mapping[UnitName, Mapping[str, Value]] = {}
        self._told: dict[str, frozenset[str]] = {}
        self._repairs: dict[UnitName, deque[float]] = {}

    async def take(self) -> Round:
        """Look, and where anything is not as it should be, make it so.

        Raises:
            SystemdError, HostError: it can't be told, or not be done, at all.
        """
        board = self._board
        for mark in list(board.unwritten.values()):
            board.mark(mark)
        wishes = self._manifests.read()
        self._tell_manifests(wishes)
        records = board.world.store.load()
        candidates = self._candidates(wishes, records)
        gone = self._who_goes(wishes, records)
        state = await look(board.world, candidates, gone=gone)
        await self._write_again(state)
        if not self._is_due(state, records, candidates, wishes, gone):
            self._settle(state)
            return Round(is_settled=not state.plan, acted=False)
        if self._is_contested(state):
            return Round(is_settled=False, acted=False)
        report = await self._act(state, candidates, gone, wishes)
        board.state = await look(board.world, candidates, gone=gone)
        self._settle(board.state)
        return Round(is_settled=not board.state.plan and _is_done(report), acted=True)

    def forget(self, name: UnitName) -> None:
        """A unit that the agent itself has stopped: that it is missing is nobody's doing."""
        self._settled = {each: values for each, values in self._settled.items() if each != name}

    def reload(self, manifests: Manifests) -> None:
        """The configuration is another one."""
        self._manifests = manifests
        self._decided, self._settled = {}, {}

    # What is asked for.

    def _candidates(self, wishes: Wishes, records: Records) -> tuple[PodDecision, ...]:
        """What the manifests ask for, as far as it is right and nobody is in its place."""
        world = self._board.world
        problems = list(validate_node(world.node, world.config))
        decided = {wish.pod.uid: (wish.pod, self._decide(wish.pod)) for wish in wishes.pods}
        self._decided = decided
        candidates = []
        for pod, decision in decided.values():
            found = [*decision.problems, *_in_the_way(pod, records)]
            problems += found
            waits = self._is_kept_away(pod) or any(
                other.key == pod.key and other.uid != pod.uid for other in records.pods
            )
            if not waits and all(each.severity is not Severity.ERROR for each in found):
                candidates.append(decision)
        self._board.set_problems("pods", problems)
        return tuple(candidates)

    def _decide(self, pod: Pod) -> PodDecision:
        before = self._decided.get(pod.uid)
        if before is not None and before[0] is pod:
            return before[1]
        return decide(pod, self._board.world.node, self._board.world.config)

    def _who_goes(self, wishes: Wishes, records: Records) -> Callable[[Pod], bool]:
        """Tells of an applied pod whether it has to go."""
        wanted = {wish.pod.key: wish.pod.uid for wish in wishes.pods}

        def goes(pod: Pod) -> bool:
            if self._is_kept_away(pod):
                return True
            source = records.sources.get(pod.uid)
            if source is None:
                return False
            return wishes.has_lost(pod, source) or wanted.get(pod.key, pod.uid) != pod.uid

        return goes

    def _is_kept_away(self, pod: Pod) -> bool:
        """Whether it was evicted as it is, and that could not be written."""
        mark = self._board.unwritten.get(pod.uid)
        return mark is not None and mark.digest == self._board.world.store.digest(pod)

    # What is done.

    def _is_due(
        self,
        state: State,
        records: Records,
        candidates: Iterable[PodDecision],
        wishes: Wishes,
        goes: Callable[[Pod], bool],
    ) -> bool:
        """Whether a unit or a record is not as it should be."""
        if state.plan or state.broken_records or any(map(goes, state.current)):
            return True
        refused = {refusal.pod for refusal in (*state.plan.refused, *state.desired.refused)}
        sources = wishes.sources
        store = self._board.world.store
        return any(
            records.digests.get(pod.pod.uid) != store.digest(pod.pod)
            or records.sources.get(pod.pod.uid) != sources.get(pod.pod.uid)
            for pod in candidates
            if pod.pod.key not in refused
        )

    async def _act(
        self,
        state: State,
        candidates: Iterable[PodDecision],
        goes: Callable[[Pod], bool],
        wishes: Wishes,
    ) -> Report:
        board = self._board
        repairs = {step.name for step in state.plan.steps if self._is_repair(step)}
        for step in state.plan.steps:
            # what is stopped shall be seen as it is now
            self._client.forget(step.name)
        async with board.locked():
            report = await apply(board.world, candidates, gone=goes, sources=wishes.sources)
        self._tell_report(report, repairs)
        return report

    async def _write_again(self, state: State) -> None:
        """Have systemd write again what somebody has overwritten in the kernel's files."""
        edited = self._client.take_edited()
        for unit in state.desired.lasting if edited else ():
            if unit.name not in edited or unit.name not in self._settled:
                continue
            has = state.observed.units[unit.name].properties
            names = MANAGED[unit.kind] if unit.owned else unit.values
            async with self._board.locked():
                await self._client.set_properties(
                    unit.name, {name: has[name] for name in names if name in has}
                )
            self._board.counters.drift()
            self._board.tell(
                Kind.DRIFT_REPAIRED,
                f"the control group of {unit.name} was written to by hand; systemd has written its"
                " own values again",
                pod=unit.pod,
                unit=unit.name,
            )

    def _is_repair(self, step: Step) -> bool:
        """Whether a step undoes what somebody else has done since all was as it should be."""
        before = self._settled.get(step.name)
        if before is None or isinstance(step, StopUnit):
            return False
        if isinstance(step, StartUnit):
            return True
        return isinstance(step, SetProperties) and any(
            change.old != before.get(change.name, PROPERTIES[change.name].unset)
            for change in step.changes
        )

    def _is_contested(self, state: State) -> bool:
        """Whether somebody undoes every repair, and all that is due is to repair once more."""
        now = time.monotonic()
        if any(not self._is_repair(step) for step in state.plan.steps):
            return False
        names = {step.name for step in state.plan.steps}
        return bool(names) and all(self._is_worn_out(name, now) for name in names)

    def _is_worn_out(self, name: UnitName, now: float) -> bool:
        times = self._repairs.get(name, deque())
        recent = [each for each in times if now - each < CONTESTED_SEC]
        return len(recent) >= CONTESTED_TIMES and now - recent[-1] < CONTESTED_PAUSE_SEC

    def _note_repair(self, name: UnitName) -> None:
        times = self._repairs.setdefault(name, deque(maxlen=CONTESTED_TIMES))
        times.append(time.monotonic())
        if len(times) == CONTESTED_TIMES and times[-1] - times[0] < CONTESTED_SEC:
            self._board.tell(
                Kind.DRIFT_CONTESTED,
                f"{name} was repaired {CONTESTED_TIMES} times in {times[-1] - times[0]:.0f} s:"
                f" somebody else sets it, too; it is left for {CONTESTED_PAUSE_SEC:.0f} s at a time",
                unit=name,
            )

    # What is told.

    def _settle(self, state: State) -> None:
        """Remember how it is once all is as it should be."""
        self._board.state = state
        refused = (*state.plan.refused, *state.desired.refused)
        by_pod = {refusal.pod: told_refusal(refusal) for refusal in refused}
        self._tell_new("refused", Kind.POD_REFUSED, by_pod, key_is_pod=True)
        skipped = {
            f"{each.unit} {each.name}": told_skipped(each)
            for each in state.plan.skipped
            if each.blocks
        }
        self._tell_new("skipped", Kind.STEP_FAILED, skipped)
        self._board.counters.refused = len(by_pod)
        marked = frozenset(mark.pod for mark in state.evicted)
        for pod in sorted(self._told.get("evicted", frozenset()) - marked):
            self._board.tell(Kind.POD_UNCORDONED, f"pod {pod} may come back", pod=pod)
        self._told["evicted"] = marked
        if not state.plan:
            self._settled = {unit.name: unit.values for unit in state.desired.lasting}

    def _tell_report(self, report: Report, repairs: set[UnitName]) -> None:
        failed = {}
        for result in report.results:
            if result.outcome is Outcome.FAILED:
                failed[f"{result.step.name} {result.error}"] = told(result)
            elif result.outcome is Outcome.DONE:
                self._tell_done(result, is_repair=result.step.name in repairs)
        self._tell_new("failed", Kind.STEP_FAILED, failed)
        lingering = {each.pod: told_lingering(each) for each in report.lingering}
        self._tell_new("lingering", Kind.POD_LINGERS, lingering, key_is_pod=True)

    def _tell_done(self, result: StepResult, *, is_repair: bool) -> None:
        board, step = self._board, result.step
        pod = step.pod if isinstance(step, StopUnit) else step.unit.pod
        if is_repair and not isinstance(step, StopUnit):
            board.counters.drift()
            board.tell(Kind.DRIFT_REPAIRED, told(result), pod=pod, unit=step.name)
            self._note_repair(step.name)
        elif pod is not None and step.name.endswith(".slice"):
            board.tell(_DEEDS[action_of(step)], told(result), pod=pod, unit=step.name)

    def _tell_manifests(self, wishes: Wishes) -> None:
        """What is wrong with manifests, once; and once that it is mended."""
        errors = [each for each in wishes.problems if each.severity is Severity.ERROR]
        broken = {str(each): str(each) for each in errors}
        before = self._told.get("manifests", frozenset())
        self._tell_new("manifests", Kind.MANIFEST_BROKEN, broken)
        for text in sorted(before - broken.keys()) if not errors else ():
            self._board.tell(Kind.MANIFEST_MENDED, f"mended: {text}")
        self._board.set_problems("manifests", wishes.problems)
        self._board.counters.broken_manifests = len(wishes.broken)

    def _tell_new(
        self, topic: str, kind: Kind, found: Mapping[str, str], *, key_is_pod: bool = False
    ) -> None:
        """Tell of what was not so the last time."""
        before = self._told.get(topic, frozenset())
        self._told[topic] = frozenset(found)
        for key in sorted(found.keys() - before):
            self._board.tell(kind, found[key], pod=key if key_is_pod else None)


_DEEDS = {"start": Kind.POD_APPLIED, "set": Kind.POD_CHANGED, "stop": Kind.POD_REMOVED}


def _is_done(report: Report) -> bool:
    """Whether everything was done that could be; what is refused needs no other try."""
    return not report.lingering and all(result.outcome is Outcome.DONE for result in report.results)


def _in_the_way(pod: Pod, records: Records) -> list[Problem]:
    """Pods that somebody has applied by hand, and that have this one's name or uid."""
    return [
        Problem(
            where=pod.where,
            message=f"pod {other.key} is there with uid {other.uid}, applied by hand",
            hint=f"delete it first: podslice delete -n {other.namespace} {other.name}",
        )
        for other in records.pods
        if (other.key == pod.key) != (other.uid == pod.uid)
        and records.sources.get(other.uid) is None
    ]
