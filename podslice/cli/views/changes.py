"""Plans and reports, of units and of the services of quadlets, as lines and JSON. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from podslice.cli.views.documents import Document, listed, number
from podslice.cli.views.layout import fold, fold_with_head
from podslice.cli.views.style import Display, Role
from podslice.features.quadlet.services import QuadletResult
from podslice.features.quadlet.transition import QuadletAction, QuadletStep
from podslice.model.desired import Refusal
from podslice.plan import Action, Plan, SetProperties, Skipped, Step, StopUnit
from podslice.reconcile.report import (
    Outcome,
    Report,
    count_steps,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_step,
    describe_stuck,
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


def plan_document(made: Plan) -> Document:
    """Return a plan: its steps in order, skipped properties and refused pods."""
    return {
        "changed": bool(made),
        "steps": [step_document(taken) for taken in made.steps],
        "skipped": _skipped(made.skipped),
        "refused": [_refusal_document(refused) for refused in made.refused],
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
    }


_ACTION_ROLES = {Action.START: Role.GOOD, Action.SET: Role.WARNING, Action.STOP: Role.ERROR}


def plan_lines(made: Plan, display: Display, further: Iterable[str] = ()) -> Iterator[str]:
    """Yield what apply would do, one line for each step, and the number of steps.

    `further` lines are those of services, which are not counted.
    """
    for step in made.steps:
        text, head = f"would {describe_step(step)}", f"would {step.action}"
        yield from fold_with_head(text, head, _ACTION_ROLES[step.action], display)
    further = tuple(further)
    yield from further
    for text in map(describe_skipped, made.skipped):
        yield from _painted(text, Role.WARNING, display)
    for text in map(describe_refusal, made.refused):
        yield from _painted(text, Role.ERROR, display)
    if made or not further:
        yield count_steps(made.steps)


_OUTCOME_ROLES = {Outcome.FAILED: Role.ERROR, Outcome.NOT_TRIED: Role.WARNING}


def step_lines(report: Report, display: Display) -> Iterator[str]:
    """Yield what was done, one line for each step, and what was not."""
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


def _painted(text: str, role: Role | None, display: Display) -> Iterator[str]:
    return fold(text, display, hanging="    ", role=role)


_VERBS = {
    QuadletAction.STOP: ("stop", "stopped"),
    QuadletAction.WRITE: ("write", "wrote"),
    QuadletAction.REMOVE: ("remove", "removed"),
    QuadletAction.REMOVE_VOLUME: ("remove volume", "removed volume"),
    QuadletAction.START: ("start", "started"),
}
"""The infinitive, and the past tense."""
_ROLES = {QuadletAction.START: Role.GOOD, QuadletAction.STOP: Role.ERROR}


def quadlet_plan_lines(steps: Sequence[tuple[QuadletStep, str]], display: Display) -> Iterator[str]:
    """Yield what `apply` would do; each step is followed by the path of its file."""
    for step, path in steps:
        verb, _ = _VERBS[step.action]
        role = _ROLES.get(step.action, Role.WARNING)
        head = f"would {verb}"
        yield from fold_with_head(f"{head} {_subject(step, path)}", head, role, display)


def quadlet_result_lines(results: Sequence[QuadletResult], display: Display) -> Iterator[str]:
    """Yield what was done, one line for each step."""
    for each in results:
        verb, past = _VERBS[each.step.action]
        subject = _subject(each.step, each.path)
        is_done = each.outcome is Outcome.DONE
        text = f"{past} {subject}" if is_done else f"failed to {verb} {subject}: {each.error}"
        yield from _painted(text, None if is_done else Role.ERROR, display)


def quadlet_step_document(step: QuadletStep, path: str) -> Document:
    """Return a step: a unit or a volume by its name, a file by its path."""
    return {
        "action": step.action.value,
        "pod": step.pod,
        "name": path or step.name,
        "why": step.why,
    }


def quadlets_document(results: Sequence[QuadletResult]) -> Document:
    """Return the part of a report on quadlets, where there are some."""
    if not results:
        return {}

    is_change = any(each.outcome is Outcome.DONE for each in results)
    changed = {"changed": True} if is_change else {}
    return {**changed, "quadlets": listed(results, quadlet_result_document)}


def quadlet_result_document(result: QuadletResult) -> Document:
    """Return a step with its outcome."""
    return {
        **quadlet_step_document(result.step, result.path),
        "outcome": result.outcome.value,
        "error": result.error,
    }


def _subject(step: QuadletStep, path: str) -> str:
    why = f": {step.why}" if step.why else ""
    return f"{path or step.name} ({step.pod}){why}"
