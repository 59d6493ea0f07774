"""The JSON documents of plans and of their execution."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from podslice.cli.views.documents import Document, number
from podslice.model.desired import Refusal
from podslice.plan import Plan, SetProperties, Skipped, Step, StopUnit
from podslice.reconcile.report import Report


def refusal(refused: Refusal) -> Document:
    """Return a pod that was not admitted."""
    return {"pod": refused.pod, "reason": refused.reason, "message": refused.message}


def step(taken: Step) -> Document:
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


def plan(made: Plan) -> Document:
    """Return a plan: its steps in order, skipped properties and refused pods."""
    return {
        "changed": bool(made),
        "steps": [step(taken) for taken in made.steps],
        "skipped": _skipped(made.skipped),
        "refused": [refusal(refused) for refused in made.refused],
    }


def report(done: Report) -> Document:
    """Return the report of an apply or a delete."""
    return {
        "changed": done.is_change,
        "steps": [
            {**step(result.step), "outcome": result.outcome.value, "error": result.error}
            for result in done.results
        ],
        "skipped": _skipped(done.skipped),
        "refused": [refusal(refused) for refused in done.refused],
        "remaining": [step(taken) for taken in done.remaining.steps],
        "stuck": [asdict(each) for each in done.stuck],
    }
