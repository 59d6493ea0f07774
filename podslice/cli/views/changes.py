"""Plans and reports as lines and JSON. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from podslice.cli.views.documents import Document, number
from podslice.cli.views.layout import fold, fold_with_head
from podslice.cli.views.style import Display, Role
from podslice.errors import Severity
from podslice.model.desired import Refusal
from podslice.plan import Action, Plan, PodStep, SetProperties, Skipped, Step, StopUnit
from podslice.reconcile.report import (
    Outcome,
    PodResult,
    Report,
    count_steps,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_step,
    describe_stuck,
    infinitive,
    summarize,
)


def _refusal_document(refused: Refusal) -> Document:
    """Return a pod that was not admitted."""
    return {"pod": refused.pod, "reason": refused.reason, "message": refused.message}


def step_document(taken: Step) -> Document:
    """Return a step of a plan."""
    result: Document = {"action": taken.action.value, "unit": taken.name, "properties": []}
    if isinstance(taken, StopUnit):
        return {
            **result,
            "why": taken.why,
            "tasks": taken.tasks,
            "grace_period_sec": taken.grace_sec,
            "occupants": list(taken.occupants.descriptions),
        }
    result["properties"] = [
        {
            "name": change.name,
            "old": number(change.old),
            "new": number(change.new),
            "why": change.why,
            **({"is_return": True} if change.is_return else {}),
        }
        for change in taken.changes
    ]
    if isinstance(taken, SetProperties) and taken.reclaim_bytes is not None:
        result |= {"used_bytes": taken.used_bytes, "reclaim_to_bytes": taken.reclaim_bytes}
    return result


def _skipped(left_out: Iterable[Skipped]) -> list[Document]:
    return [{"unit": each.unit, "name": each.name, "why": each.why} for each in left_out]


def plan_document(made: Plan, around: Sequence[PodStep] = ()) -> Document:
    """Return a plan: its steps in order, skipped properties, refused pods, and files and services."""
    return {
        "changed": bool(made or around),
        "steps": [step_document(taken) for taken in made.steps],
        "skipped": _skipped(made.skipped),
        "refused": [_refusal_document(refused) for refused in made.refused],
        **_sections((step.section, step.document()) for step in around),
    }


def report_document(done: Report) -> Document:
    """Return the report of an apply or a delete."""
    return {
        "changed": done.is_change,
        "steps": [
            {**step_document(result.step), "outcome": result.outcome.value, "error": result.error}
            for result in done.results
        ],
        "skipped": _skipped(done.skipped),
        "refused": [_refusal_document(refused) for refused in done.refused],
        "remaining": [step_document(taken) for taken in done.remaining.steps],
        "stuck": [asdict(each) for each in done.stuck],
        **_sections(
            (each.step.section, each.step.result_document(each.outcome, each.error))
            for each in (*done.before, *done.after)
        ),
    }


def _sections(found: Iterable[tuple[str, Document]]) -> Document:
    """Return lists of documents by their keys."""
    sections: dict[str, list[Document]] = {}
    for key, document in found:
        sections.setdefault(key, []).append(document)
    return dict(sorted(sections.items()))


_ACTION_ROLES = {Action.START: Role.GOOD, Action.STOP: Role.ERROR}


def plan_lines(made: Plan, display: Display, around: Sequence[PodStep] = ()) -> Iterator[str]:
    """Yield what apply would do, one line for each step, and the number of steps on units."""
    for step in (*made.steps, *around):
        is_end = isinstance(step, PodStep) and step.is_end
        role = Role.ERROR if is_end else _ACTION_ROLES.get(step.action, Role.WARNING)
        text, head = f"would {describe_step(step)}", f"would {infinitive(step.action)}"
        yield from fold_with_head(text, head, role, display)
    for text in map(describe_skipped, made.skipped):
        yield from _painted(text, Role.WARNING, display)
    for text in map(describe_refusal, made.refused):
        yield from _painted(text, Role.ERROR, display)
    if made or not around:
        yield count_steps(made.steps)


def report_lines(report: Report, display: Display) -> Iterator[str]:
    """Yield what was done, one line for each step, what was not, and a summary."""
    yield from pod_lines(services_first(report.before), display)
    for result in report.results:
        role = _OUTCOME_ROLES.get(result.outcome)
        yield from _painted(describe_result(result), role, display)
    for text in map(describe_skipped, report.skipped):
        yield from _painted(text, Role.WARNING, display)
    for text in (*map(describe_refusal, report.refused), *map(describe_stuck, report.stuck)):
        yield from _painted(text, Role.ERROR, display)
    for step in report.remaining.steps:
        text = f"did not converge, still pending: {describe_step(step)}"
        yield from _painted(text, Role.WARNING, display)
    yield from pod_lines(report.after, display)
    yield summarize(report)


_OUTCOME_ROLES = {Outcome.FAILED: Role.ERROR, Outcome.NOT_TRIED: Role.WARNING}
_SEVERITY_ROLES = {Severity.ERROR: Role.ERROR, Severity.WARNING: Role.WARNING}


def pod_lines(results: Iterable[PodResult], display: Display) -> Iterator[str]:
    """Yield what was done to files and services, and what is left to do."""
    for each in results:
        yield from _painted(describe_result(each), _OUTCOME_ROLES.get(each.outcome), display)
        yield from rest_lines(*each.step.describe_rest(each.error), display)


def rest_lines(text: str, severity: Severity | None, display: Display) -> Iterator[str]:
    """Yield what is left to do after a step; nothing if the text is empty."""
    role = None if severity is None else _SEVERITY_ROLES[severity]
    return _painted(text, role, display) if text else iter(())


def _painted(text: str, role: Role | None, display: Display) -> Iterator[str]:
    return fold(text, display, hanging="    ", role=role)


def services_first(results: Iterable[PodResult]) -> list[PodResult]:
    """Return the results of steps before those on units, as they are shown."""
    return sorted(results, key=lambda each: each.step.is_counted)
