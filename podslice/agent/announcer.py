"""Reports what rounds find and do; each fact once, until it changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from podslice.agent.context import AgentContext
from podslice.agent.wanted_pods import WantedPods
from podslice.errors import Severity
from podslice.model.event import Kind
from podslice.model.unit import DesiredUnit, UnitName
from podslice.plan import SetProperties, StartUnit
from podslice.policy.admit import EVICTED
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.report import (
    Outcome,
    Report,
    StepResult,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_stuck,
    kind_of,
    pod_of,
)

_RELOADED: Mapping[str, str] = {"PODSLICE_REASON": "daemon-reload"}
_Found = Mapping[str, tuple[str, str | None, UnitName | None]]
"""Messages with their pods and units, by what makes each of them different from others."""


class Announcer:
    """Reports events of rounds, and remembers what it has reported."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._reported: dict[str, frozenset[str]] = {}
        self._invalid_files: frozenset[str] = frozenset()
        self._evicted: frozenset[str] = frozenset()
        self._is_foreign = False
        self._results: set[str] = set()
        self._previous_results: set[str] = set()

    def report_manifests(self, wanted: WantedPods) -> None:
        """Report problems of manifests, and files that are valid again or removed."""
        contents, status = wanted.contents, self._context.status
        errors = [each for each in contents.problems if each.severity is Severity.ERROR]
        errors += [each for found in wanted.errors.values() for each in found]
        found = {str(each): (str(each), None, None) for each in errors}
        self._report_new("manifests", Kind.MANIFEST_BROKEN, found)
        held = {str(each): (str(each), None, None) for each in wanted.held}
        self._report_new("services", Kind.AGENT_NOTED, held)
        invalid = contents.broken | contents.unread | wanted.errors.keys()
        for path in sorted(self._invalid_files - invalid):
            self._context.events.report(Kind.MANIFEST_VALID, f"{path} is valid again")
        self._invalid_files = invalid
        status.set_problems("manifests", contents.problems)
        self._context.counters.broken_manifests = len(contents.broken | wanted.errors.keys())

    def report_owner(self, assessment: Assessment) -> None:
        """Report when the root begins to belong to a kubelet, and when that ends."""
        was_foreign, self._is_foreign = self._is_foreign, assessment.foreign is not None
        if assessment.foreign is not None:
            self._context.status.fail("owner", str(assessment.foreign))
        elif was_foreign:
            self._context.status.set_problems("owner", ())
            root = self._context.world.tree.root
            message = f"{root} no longer belongs to a kubelet; podslice manages it again"
            self._context.events.report(Kind.AGENT_NOTED, message)

    def report_readmitted(self, assessment: Assessment, by_operator: Collection[str]) -> None:
        """Report evicted pods that may run again, unless a verb has reported that."""
        evicted = frozenset(mark.pod for mark in assessment.evicted)
        for pod in sorted(self._evicted - evicted - set(by_operator)):
            message = f"pod {pod} is readmitted"
            self._context.events.report(Kind.POD_READMITTED, message, pod=pod)
        self._evicted = evicted

    def report_omissions(self, assessment: Assessment) -> None:
        """Report refused pods and skipped steps; evictions are reported already."""
        plan = assessment.plan
        refused = {each.pod: each for each in plan.refused}
        self._context.counters.refused = len(refused)
        reasons: _Found = {
            f"{pod} {each.reason}": (describe_refusal(each), pod, None)
            for pod, each in refused.items()
            if each.reason != EVICTED
        }
        self._report_new("refused", Kind.POD_REFUSED, reasons)
        skipped: _Found = {
            f"{each.unit} {each.name}": (describe_skipped(each), None, each.unit)
            for each in plan.skipped
            if each.blocks
        }
        self._report_new("skipped", Kind.STEP_FAILED, skipped)

    def report_step(
        self, result: StepResult, *, is_repair: bool, was_reloaded: bool = False
    ) -> None:
        """Report a step, unless each round repeats it without effect.

        `was_reloaded` states that systemd has read its unit files again before a repair.
        """
        step, text, pod = result.step, describe_result(result), pod_of(result)
        events = self._context.events
        if is_repair:
            change = "stopped" if isinstance(step, StartUnit) else "changed"
            cause, fields = _cause_of_drift(was_reloaded=was_reloaded)
            message = f"{change} {cause}, restored: {text}"
            events.report(Kind.DRIFT_REPAIRED, message, pod=pod, unit=step.name, fields=fields)
        elif pod is None and isinstance(step, SetProperties) and not step.unit.owned:
            events.report(Kind.AGENT_NOTED, text, unit=step.name)
        elif kind := kind_of(result):
            self._results.add(text)
            if text not in self._previous_results:
                events.report(kind, text, pod=pod, unit=step.name)

    def report_rewritten(
        self, unit: DesiredUnit, limits: Mapping[str, tuple[str, str]], *, was_reloaded: bool
    ) -> None:
        """Report that systemd has written a control group again.

        `limits` are the kernel's, before and now, by property; `was_reloaded` as in `report_step`.
        """
        cause, fields = _cause_of_drift(was_reloaded=was_reloaded)
        changes = ", ".join(
            f"{name}={new or 'unset'} (was {old or 'unset'})" for name, (old, new) in limits.items()
        )
        message = (
            f"the control group of {unit.name} was changed {cause}; systemd has written again:"
            f" {changes}"
        )
        self._context.events.report(
            Kind.DRIFT_REPAIRED, message, pod=unit.pod, unit=unit.name, fields=fields
        )

    def report_failures(self, report: Report) -> None:
        """Report failed steps, and pods that could not be removed."""
        failed: _Found = {
            f"{each.step.name} {each.error}": (describe_result(each), pod_of(each), each.step.name)
            for each in report.results
            if each.outcome is Outcome.FAILED
        }
        self._report_new("failed", Kind.STEP_FAILED, failed)
        assessment = self._context.assessment
        outside = assessment.recorded_values.units if assessment else {}
        for skipped in report.skipped:
            if skipped.unit in outside and not skipped.blocks:
                self._context.events.note(describe_skipped(skipped))
        stuck: _Found = {each.pod: (describe_stuck(each), each.pod, None) for each in report.stuck}
        self._report_new("stuck", Kind.POD_STUCK, stuck)

    def finish_round(self, *, is_settled: bool) -> None:
        """Finish a round; after a settled one every step is reported again."""
        self._previous_results, self._results = set() if is_settled else self._results, set()

    def _report_new(self, topic: str, kind: Kind, found: _Found) -> None:
        """Report what was not found the last time."""
        before = self._reported.get(topic, frozenset())
        self._reported[topic] = frozenset(found)
        for key in sorted(found.keys() - before):
            message, pod, unit = found[key]
            self._context.events.report(kind, message, pod=pod, unit=unit)


def _cause_of_drift(*, was_reloaded: bool) -> tuple[str, Mapping[str, str]]:
    """Return the cause of an external change in words, and the fields of its event.

    A daemon-reload applies drop-ins and unit files that were written before, and has systemd write
    all control groups again.
    """
    return ("externally or by a daemon-reload", _RELOADED) if was_reloaded else ("externally", {})
