"""Apply and delete to the end."""

from contextlib import aclosing

from podslice.plan import Plan
from podslice.reconcile import converge
from podslice.reconcile.assess import Request
from podslice.reconcile.report import Report, StepResult
from tests.unit.builders import decisions


def nothing(_):
    pass


async def report_of(found, on_plan=nothing, on_result=nothing):
    """Return the report, and hand on what precedes it."""
    async with aclosing(found):
        async for each in found:
            if isinstance(each, Plan):
                on_plan(each)
            elif isinstance(each, StepResult):
                on_result(each)
    assert isinstance(each, Report)
    return each


async def apply(world, request, *, on_plan=nothing, on_result=nothing, **how):
    return await report_of(converge.apply(world, request, **how), on_plan, on_result)


async def apply_pods(world, *pods, prune=False, force=False, **how):
    """Apply pods of the builders."""
    candidates = decisions(*pods, on=world.node, by=world.config)
    return await apply(world, Request(candidates=candidates, prune=prune, force=force), **how)


async def delete(world, keys, *, on_plan=nothing, **how):
    return await report_of(converge.delete(world, keys, **how), on_plan)
