"""One round of the agent: what is wished for, what is, and the way from one to the other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from podslice.agent.announcer import Telling
from podslice.agent.board import Board
from podslice.agent.drift import Drift
from podslice.agent.manifest_files import Manifests
from podslice.agent.terminations import Endings
from podslice.agent.wanted import Asked, Asking
from podslice.errors import ForeignRoot, InputError
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.properties import MANAGED
from podslice.model.unit import UnitName
from podslice.plan import Plan, Step, StopUnit
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.converge import apply
from podslice.reconcile.pace import in_turns
from podslice.reconcile.report import Outcome, Report, StepResult
from podslice.reconcile.request import Request
from podslice.systemd.caching_client import CachingClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What became of one round."""

    is_settled: bool
    """Whether everything is as it should be."""
    acted: bool


class Rounds:
    """Takes rounds, and remembers from one to the next what was so already."""

    def __init__(
        self, board: Board, manifests: Manifests, client: CachingClient, endings: Endings
    ) -> None:
        self._board = board
        self._endings = endings
        self._client = client
        self._asking = Asking(board, manifests)
        self._telling = Telling(board)
        self._drift = Drift(board)
        self._known: tuple[PodDecision, ...] = ()
        self._was_settled = False
        self._stopped: set[UnitName] = set()
        """The units that the agent itself has stopped since the last look began."""
        self._edited: set[UnitName] = set()
        """The units whose files somebody has written to, until they are as they were."""

    async def take(self) -> Round:
        """Look, and where anything is not as it should be, make it so.

        Raises:
            SystemdError, HostError, InputError: it can't be told, or not be done, at all.
        """
        board = self._board
        for mark in list(board.unwritten.values()):
            board.mark(mark)
        was_settled, self._was_settled = self._was_settled, False
        taken = await self._take(was_settled=was_settled)
        self._was_settled = taken.is_settled
        self._telling.rounded(is_settled=taken.is_settled)
        return taken

    def forget(self, pod: str, slice_: UnitName) -> None:
        """The agent itself has stopped a pod: that its units are missing is nobody's doing."""
        state = self._board.state
        units = state.desired.units if state else ()
        for name in {slice_, *(unit.name for unit in units if unit.pod == pod)}:
            self._stopped.add(name)
            self._drift.forget(name)
            self._client.forget(name)

    def reload(self, manifests: Manifests) -> None:
        """The configuration is another one."""
        self._asking = Asking(self._board, manifests)
        self._known = ()
        self._drift.forget(None)

    async def _take(self, *, was_settled: bool) -> Round:
        asked = await in_turns(self._asking.read())
        self._telling.asked(asked)
        if was_settled and self._are_newcomers(asked):
            # apply looks itself, so that another look before it would only take time
            with suppress(InputError, ForeignRoot):
                return await self._act(asked)
        try:
            state = await self._look(asked)
        except InputError:
            asked = await self._make_way(asked)
            state = await self._look(asked)
        self._telling.owner(state)
        if state.foreign is not None:
            return Round(is_settled=False, acted=False)
        if any(_ends_pod(step) for step in state.plan.steps):
            asked, state = await self._let_end(asked, state)
        self._telling.marks(state)
        await self._write_again(state)
        if not self._is_due(state, asked):
            self._settle(state)
            return Round(is_settled=self._is_settled(state, asked), acted=False)
        if self._is_all_contested(state, asked):
            return Round(is_settled=False, acted=False)
        self._see_anew(state)
        return await self._act(asked)

    def _are_newcomers(self, asked: Asked) -> bool:
        """Whether nothing is asked for but that pods come that were not there."""
        state = self._board.state
        if state is None or asked.is_waiting:
            return False
        there = {name for pod in state.current for name in (pod.key, pod.uid)}
        refused = {refusal.pod for refusal in (*state.plan.refused, *state.desired.refused)}
        return (
            bool(asked.candidates)
            and not any(map(asked.goes, state.current))
            and not any(
                there & {each.pod.key, each.pod.uid} or each.pod.key in refused
                for each in asked.candidates
            )
        )

    def _is_settled(self, state: Assessment, asked: Asked) -> bool:
        return not state.plan and not self._edited and not asked.is_waiting

    async def _look(self, asked: Asked) -> Assessment:
        """One look, which at once is what the other parts of the agent go by."""
        world = self._board.world
        self._stopped.clear()
        state = await assess(world, self._request(asked))
        self._known = state.desired.pods
        self._board.state = state
        self._endings.forget(pod for pod in state.current if asked.goes(pod))
        return state

    def _request(self, asked: Asked) -> Request:
        return Request(
            candidates=asked.candidates,
            to_remove=asked.goes,
            known=self._known,
            terminating=self._board.terminating,
        )

    def _see_anew(self, state: Assessment) -> None:
        """What is stopped shall be seen as it is now."""
        for step in state.plan.steps:
            self._client.forget(step.name)

    async def _let_end(self, asked: Asked, state: Assessment) -> tuple[Asked, Assessment]:
        """A grace period is nothing to hold the lock for: who needs it ends beside the rounds."""
        self._see_anew(state)
        state = await self._look(asked)
        if self._endings.take(state):
            asked = await in_turns(self._asking.read(asked.unrecorded))
            state = await self._look(asked)
        return asked, state

    async def _make_way(self, asked: Asked) -> Asked:
        """What is asked for without pods in whose way there is one that has no record."""
        request = Request(to_remove=asked.goes, terminating=self._board.terminating)
        state = await assess(self._board.world, request)
        asked = await in_turns(self._asking.read(state.current))
        self._telling.asked(asked)
        return asked

    def _is_due(self, state: Assessment, asked: Asked) -> bool:
        """Whether a unit or a record is not as it should be."""
        return bool(state.plan) or self._are_records_due(state, asked)

    def _are_records_due(self, state: Assessment, asked: Asked) -> bool:
        if state.held != state.recorded_values and state.recorded_values.unconfirmed is None:
            return True
        if state.broken_records or any(map(asked.goes, state.current)):
            return True
        refused = {refusal.pod for refusal in (*state.plan.refused, *state.desired.refused)}
        return any(each.pod.key not in refused for each in asked.candidates)

    def _is_all_contested(self, state: Assessment, asked: Asked) -> bool:
        return self._drift.is_contested(state.plan.steps) and not self._are_records_due(
            state, asked
        )

    async def _act(self, asked: Asked) -> Round:
        """Do it, as far as it is asked for still, and see what has come of it."""
        board, repairs = self._board, set[UnitName]()

        def note_repairs(plan: Plan) -> None:
            repairs.update(step.name for step in plan.steps if self._drift.is_repair(step))

        async with board.locked():
            # whoever held it may have changed what is asked for
            asked = await in_turns(self._asking.read_again(asked))
            report = await apply(
                board.world,
                self._request(asked),
                sources=asked.wishes.sources,
                on_plan=note_repairs,
                on_result=partial(self._tell_deed, repairs),
            )
        self._telling.report(report)
        state = await self._look(asked)
        self._settle(state)
        return Round(is_settled=self._is_settled(state, asked) and _is_done(report), acted=True)

    def _tell_deed(self, repairs: set[UnitName], result: StepResult) -> None:
        """Tell of a step at once: what comes after it may fail."""
        if result.outcome is not Outcome.DONE:
            return
        is_repair = result.step.name in repairs and self._drift.is_repair(result.step)
        self._telling.deed(result, is_repair=is_repair)
        if is_repair:
            self._drift.note_repair(result.step.name)

    async def _write_again(self, state: Assessment) -> None:
        """Have systemd write again what somebody has overwritten in the kernel's files."""
        self._edited |= self._client.take_edited()
        if not self._edited:
            return
        units = {unit.name: unit for unit in state.desired.lasting}
        self._edited &= units.keys() & state.observed.units.keys()
        for name in sorted(self._edited):
            if not self._drift.is_settled(name) or self._drift.is_worn_out(name):
                continue
            unit, has = units[name], state.observed.units[name].properties
            names = MANAGED[unit.kind] if unit.owned else unit.values
            group = state.observed.units[name].control_group
            before = self._board.world.cgroups.limits(group)
            async with self._board.locked():
                await self._client.set_properties(
                    name, {each: has[each] for each in names if each in has}
                )
            self._edited.discard(name)
            if self._board.world.cgroups.limits(group) == before:
                continue  # it was systemd that wrote, some moments after it showed what it was told
            self._board.tell(
                Kind.DRIFT_REPAIRED,
                f"the control group of {name} was written to by hand; systemd has written its own"
                " values again",
                pod=unit.pod,
                unit=name,
            )
            self._drift.note_repair(name)

    def _settle(self, state: Assessment) -> None:
        """Remember how it is, and tell of what is left out."""
        self._telling.left_out(state)
        self._drift.settle(state)
        for name in self._stopped:
            self._drift.forget(name)


def _ends_pod(step: Step) -> bool:
    return isinstance(step, StopUnit) and step.pod is not None


def _is_done(report: Report) -> bool:
    """Whether everything was done that could be; what is refused needs no other try."""
    return not report.stuck and all(result.outcome is Outcome.DONE for result in report.results)
