"""Apply and delete to the end."""

from contextlib import aclosing

from podslice.plan import Plan
from podslice.reconcile import converge
from podslice.reconcile.report import Report, StepResult


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


async def delete(world, keys, *, on_plan=nothing, **how):
    return await report_of(converge.delete(world, keys, **how), on_plan)
