"""Plans and reports as lines. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.plan import Plan
from podslice.reconcile.report import (
    Report,
    count_steps,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_step,
    describe_stuck,
    summarize,
)


def plan_lines(made: Plan) -> Iterator[str]:
    """Yield what apply would do, one line for each step, and the number of steps."""
    for step in made.steps:
        yield f"would {describe_step(step)}"
    yield from map(describe_skipped, made.skipped)
    yield from map(describe_refusal, made.refused)
    yield count_steps(made.steps)


def report_lines(report: Report) -> Iterator[str]:
    """Yield what was done, one line for each step, and a summary."""
    yield from map(describe_result, report.results)
    yield from map(describe_skipped, report.skipped)
    yield from map(describe_refusal, report.refused)
    yield from map(describe_stuck, report.stuck)
    for step in report.remaining.steps:
        yield f"did not converge, still pending: {describe_step(step)}"
    yield summarize(report)
