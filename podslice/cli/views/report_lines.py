"""Plans and reports as lines. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from podslice.cli.views.layout import fold
from podslice.cli.views.style import Display, Role
from podslice.plan import Action, Plan
from podslice.reconcile.report import (
    Outcome,
    Report,
    count_steps,
    describe_refusal,
    describe_result,
    describe_skipped,
    describe_step,
    describe_stuck,
    summarize,
)

_ACTION_ROLES = {Action.START: Role.GOOD, Action.SET: Role.WARNING, Action.STOP: Role.ERROR}


def plan_lines(made: Plan, display: Display, further: Iterable[str] = ()) -> Iterator[str]:
    """Yield what apply would do, one line for each step, and the number of steps.

    `further` lines are those of services, which are not counted.
    """
    for step in made.steps:
        head = f"would {step.action}"
        first, *others = _folded(f"would {describe_step(step)}", display)
        yield display.paint(head, _ACTION_ROLES[step.action]) + first[len(head) :]
        yield from others
    further = tuple(further)
    yield from further
    for text in map(describe_skipped, made.skipped):
        yield from _painted(text, Role.WARNING, display)
    for text in map(describe_refusal, made.refused):
        yield from _painted(text, Role.ERROR, display)
    if made or not further:
        yield count_steps(made.steps)


_OUTCOME_ROLES = {Outcome.FAILED: Role.ERROR, Outcome.NOT_TRIED: Role.WARNING}


def report_lines(report: Report, display: Display) -> Iterator[str]:
    """Yield what was done, one line for each step, and a summary."""
    yield from step_lines(report, display)
    yield summarize(report)


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


def _folded(text: str, display: Display) -> Iterator[str]:
    return fold(text, display, hanging="    ")


def _painted(text: str, role: Role | None, display: Display) -> Iterator[str]:
    return (display.paint(line, role) for line in _folded(text, display))
