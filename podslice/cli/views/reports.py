"""Plans and reports as lines. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.plan import Plan
from podslice.reconcile.report import (
    Report,
    describe,
    in_steps,
    summary,
    told,
    told_refusal,
    told_skipped,
    told_stuck,
)


def plan_lines(made: Plan) -> Iterator[str]:
    """Yield what apply would do, one line for each step, and the number of steps."""
    for step in made.steps:
        yield f"would {describe(step)}"
    yield from map(told_skipped, made.skipped)
    yield from map(told_refusal, made.refused)
    yield in_steps(made.steps)


def report_lines(report: Report) -> Iterator[str]:
    """Yield what was done, one line for each step, and a summary."""
    yield from map(told, report.results)
    yield from map(told_skipped, report.skipped)
    yield from map(told_refusal, report.refused)
    yield from map(told_stuck, report.stuck)
    for step in report.remaining.steps:
        yield f"still to do, though every step was taken: {describe(step)}"
    yield summary(report)
