"""What rounds have to tell: each thing once, until it is another."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.agent.board import Board
from podslice.agent.wanted import Asked
from podslice.errors import Severity
from podslice.model.event import Kind
from podslice.model.unit import UnitName
from podslice.plan import Action, SetProperties, StartUnit, StopUnit
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.readmission import EVICTED
from podslice.reconcile.report import (
    Outcome,
    Report,
    StepResult,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_stuck,
)


class Telling:
    """Remembers from one round to the next what was told already."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._told: dict[str, frozenset[str]] = {}
        self._wrong: frozenset[str] = frozenset()
        self._marked: frozenset[str] = frozenset()
        self._is_foreign = False
        self._deeds: set[str] = set()
        self._deeds_before: set[str] = set()

    def asked(self, asked: Asked) -> None:
        """What is wrong with manifests, once; and once that a file is right again, or gone."""
        wishes = asked.wishes
        errors = [each for each in wishes.problems if each.severity is Severity.ERROR]
        errors += [each for found in asked.wrong.values() for each in found]
        self._tell_new("manifests", Kind.MANIFEST_BROKEN, {str(each): None for each in errors})
        wrong = wishes.broken | wishes.unread | asked.wrong.keys()
        for path in sorted(self._wrong - wrong):
            self._board.tell(Kind.MANIFEST_VALID, f"nothing is wrong with {path} any more")
        self._wrong = wrong
        self._board.set_problems("manifests", wishes.problems)
        self._board.counters.broken_manifests = len(wishes.broken | asked.wrong.keys())

    def owner(self, state: Assessment) -> None:
        """Tell that nothing is changed because the root belongs to a kubelet, and the end of it."""
        was_foreign, self._is_foreign = self._is_foreign, state.foreign is not None
        if state.foreign is not None:
            self._board.fail("owner", str(state.foreign))
        elif was_foreign:
            self._board.set_problems("owner", ())
            root = self._board.world.tree.root
            self._board.tell(Kind.AGENT_NOTED, f"{root} is podslice's own again")

    def marks(self, state: Assessment) -> None:
        """Which evicted pods may come back."""
        marked = frozenset(mark.pod for mark in state.evicted)
        for pod in sorted(self._marked - marked):
            self._board.tell(Kind.POD_READMITTED, f"pod {pod} may come back", pod=pod)
        self._marked = marked

    def left_out(self, state: Assessment) -> None:
        """What is not done, and why. Of evicted pods it was told that they are."""
        refused = {each.pod: each for each in (*state.desired.refused, *state.plan.refused)}
        self._board.counters.refused = len(refused)
        why = {
            f"{pod} {each.reason}": (describe_refusal(each), pod, None)
            for pod, each in refused.items()
            if each.reason != EVICTED
        }
        self._tell_keyed("refused", Kind.POD_REFUSED, why)
        skipped = {
            f"{each.unit} {each.name}": (describe_skipped(each), None, each.unit)
            for each in state.plan.skipped
            if each.blocks
        }
        self._tell_keyed("skipped", Kind.STEP_FAILED, skipped)

    def deed(self, result: StepResult, *, is_repair: bool) -> None:
        """What was done; not again what seems to come to nothing and is done in every round."""
        step, text = result.step, describe_result(result)
        pod = step.pod if isinstance(step, StopUnit) else step.unit.pod
        if is_repair:
            what = "stopped" if isinstance(step, StartUnit) else "changed"
            text = f"somebody had {what} it: {text}"
            self._board.tell(Kind.DRIFT_REPAIRED, text, pod=pod, unit=step.name)
        elif pod is None and isinstance(step, SetProperties) and not step.unit.owned:
            self._board.tell(Kind.AGENT_NOTED, text, unit=step.name)
        elif pod is not None and step.name.endswith(".slice"):
            self._deeds.add(text)
            if text not in self._deeds_before:
                self._board.tell(_DEEDS[step.action], text, pod=pod, unit=step.name)

    def report(self, report: Report) -> None:
        """What of an apply has failed."""
        failed = {
            f"{each.step.name} {each.error}": (describe_result(each), _pod_of(each), each.step.name)
            for each in report.results
            if each.outcome is Outcome.FAILED
        }
        self._tell_keyed("failed", Kind.STEP_FAILED, failed)
        state = self._board.state
        outside = state.recorded_values.units if state else {}
        for each in report.skipped:
            if each.unit in outside and not each.blocks:
                self._board.note(describe_skipped(each))
        stuck = {each.pod: (describe_stuck(each), each.pod, None) for each in report.stuck}
        self._tell_keyed("stuck", Kind.POD_STUCK, stuck)

    def rounded(self, *, is_settled: bool) -> None:
        """A round is over; once all is as it should be, what is done next is done anew."""
        self._deeds_before, self._deeds = set() if is_settled else self._deeds, set()

    def _tell_new(self, topic: str, kind: Kind, found: Mapping[str, None]) -> None:
        self._tell_keyed(topic, kind, {text: (text, None, None) for text in found})

    def _tell_keyed(
        self, topic: str, kind: Kind, found: Mapping[str, tuple[str, str | None, UnitName | None]]
    ) -> None:
        """Tell of what was not so the last time: a text, its pod and its unit, by what it is."""
        before = self._told.get(topic, frozenset())
        self._told[topic] = frozenset(found)
        for key in sorted(found.keys() - before):
            text, pod, unit = found[key]
            self._board.tell(kind, text, pod=pod, unit=unit)


_DEEDS = {
    Action.START: Kind.POD_APPLIED,
    Action.SET: Kind.POD_CHANGED,
    Action.STOP: Kind.POD_REMOVED,
}


def _pod_of(result: StepResult) -> str | None:
    step = result.step
    return step.pod if isinstance(step, StopUnit) else step.unit.pod
