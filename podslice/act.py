"""Takes the steps of a plan, stage by stage, as many at once as their order allows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar, assert_never

from podslice.errors import SystemdError, UnitExists
from podslice.model.unit import TransientUnit, UnitName, parent_slice
from podslice.plan import (
    Change,
    Plan,
    SetProperties,
    StartUnit,
    Step,
    StopUnit,
    stage_of,
    transient_unit,
)
from podslice.report import Outcome, StepResult
from podslice.systemd.client import Client
from podslice.systemd.together import together

BATCH_MIN = 4
"""Below it one call for each unit is as quick as a batch."""
BATCH_MAX = 64
"""Units per batch. Source: measured, batches of 50 to 100 are best."""

OnResult = Callable[[StepResult], None]
StepT = TypeVar("StepT", StartUnit, StopUnit)


async def act(plan: Plan, client: Client, on_result: OnResult = lambda _: None) -> list[StepResult]:
    """Take every step that can be taken.

    A step that fails makes later steps on its unit, and on units below it, "not tried"; all others
    go on. Results come in the order of their ends.
    """
    results: list[StepResult] = []
    failed: set[UnitName] = set()

    def note(result: StepResult) -> None:
        if result.outcome is not Outcome.DONE:
            failed.add(result.step.name)
        results.append(result)
        on_result(result)

    for _, group in groupby(plan.steps, key=stage_of):
        ready: list[Step] = []
        for step in group:
            culprit = _culprit(step, failed)
            if culprit is None:
                ready.append(step)
            else:
                why = f"a step on {culprit} failed"
                note(StepResult(step=step, outcome=Outcome.NOT_TRIED, error=why))
        await _take(ready, client, note)
    return results


def _culprit(step: Step, failed: set[UnitName]) -> UnitName | None:
    """The unit whose failure holds a step up; a slice does not go before what lies in it."""
    if isinstance(step, StopUnit):
        inside = f"{step.name.removesuffix('.slice')}-"
        return min((name for name in failed if name.startswith(inside)), default=None)
    name = step.name
    while name != "-.slice":
        if name in failed:
            return name
        name = step.unit.parent if name == step.name else parent_slice(name)
    return None


async def _take(steps: list[Step], client: Client, note: OnResult) -> None:
    """Take steps that do not depend on one another."""
    starts = [step for step in steps if isinstance(step, StartUnit)]
    stops = [step for step in steps if isinstance(step, StopUnit)]
    await _in_batches(
        starts, lambda batch: client.start_batch([_transient(step) for step in batch]), client, note
    )
    await _in_batches(
        stops, lambda batch: client.stop_batch([step.name for step in batch]), client, note
    )
    await _singly([step for step in steps if isinstance(step, SetProperties)], client, note)


async def _in_batches(
    steps: Sequence[StepT],
    call: Callable[[Sequence[StepT]], Awaitable[None]],
    client: Client,
    note: OnResult,
) -> None:
    """Batches where there are many; one by one when a batch fails, to find the culprit."""
    for start in range(0, len(steps), BATCH_MAX):
        batch = steps[start : start + BATCH_MAX]
        if len(batch) < BATCH_MIN:
            await _singly(batch, client, note)
            continue
        try:
            await call(batch)
        except SystemdError:
            await _singly(batch, client, note)
        else:
            for step in batch:
                note(StepResult(step=step, outcome=Outcome.DONE))


async def _singly(steps: Sequence[Step], client: Client, note: OnResult) -> None:
    await together(_one(step, client, note) for step in steps)


async def _one(step: Step, client: Client, note: OnResult) -> None:
    try:
        await _call(step, client)
    except SystemdError as error:
        note(StepResult(step=step, outcome=Outcome.FAILED, error=str(error)))
    else:
        note(StepResult(step=step, outcome=Outcome.DONE))


async def _call(step: Step, client: Client) -> None:
    match step:
        case StartUnit():
            try:
                await client.start(_transient(step))
            except UnitExists:
                # it came up since the snapshot, or in a batch that failed half-way
                await client.set_properties(step.name, _values(step.changes))
        case SetProperties():
            await client.set_properties(step.name, _values(step.changes))
        case StopUnit():
            await client.stop(step.name)
        case _:
            assert_never(step)


def _transient(step: StartUnit) -> TransientUnit:
    return transient_unit(step.unit, _values(step.changes))


def _values(changes: Iterable[Change]) -> dict[str, int]:
    return {change.name: change.new for change in changes}
