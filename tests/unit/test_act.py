import asyncio
from dataclasses import replace

import pytest

from podslice.act import BATCH_MAX, BATCH_MIN, act
from podslice.errors import JobFailed, Refused
from podslice.model.unit import TransientUnit
from podslice.plan import Plan, SetProperties, StartUnit, make_plan
from podslice.report import Outcome
from podslice.systemd.memory import Memory
from tests.unit.builders import (
    as_observed,
    besteffort,
    burstable,
    desired,
    desired_for,
    guaranteed,
    observed,
    scope_unit,
    seen,
    slice_unit,
)

ROOT = "kubepods.slice"
BURSTABLE = "kubepods-burstable.slice"
NO = Refused("access denied")


def numbered(count, **values):
    return [slice_unit(f"kubepods-pod{number:03}.slice", **values) for number in range(count)]


def start_all(*units):
    return make_plan(desired(*units), observed())


async def names(memory):
    units = await memory.observe(["kubepods*"])
    return [unit.name for unit in units if unit.transient]


async def properties(memory, name):
    (unit,) = await memory.observe([name])
    return unit.properties


def outcomes(results):
    return {result.step.name: result.outcome for result in results}


async def test_every_step_is_taken():
    memory = Memory()
    wanted = desired_for(guaranteed("database"), burstable("web"), besteffort("batch"))
    results = await act(make_plan(wanted, observed()), memory)
    assert {result.outcome for result in results} == {Outcome.DONE}
    assert not make_plan(wanted, observed(*await memory.observe(["kubepods*"])))


async def test_nothing_is_done_for_an_empty_plan():
    memory = Memory()
    assert await act(Plan(), memory) == []
    assert not memory.calls


async def test_results_come_as_they_end_and_are_told_at_once():
    memory, told = Memory(), []
    plan = make_plan(desired_for(burstable("web"), besteffort("batch")), observed())
    results = await act(plan, memory, told.append)
    assert told == results
    assert [result.step for result in results] == list(plan.steps)


async def test_what_lies_below_a_failure_is_not_tried_and_others_go_on():
    memory = Memory()
    memory.refuse(BURSTABLE, NO)
    wanted = desired_for(guaranteed("database"), burstable("web"), besteffort("batch"))
    results = await act(make_plan(wanted, observed()), memory)
    assert outcomes(results) == {
        ROOT: Outcome.DONE,
        BURSTABLE: Outcome.FAILED,
        "kubepods-besteffort.slice": Outcome.DONE,
        "kubepods-poddatabase.slice": Outcome.DONE,
        "kubepods-besteffort-podbatch.slice": Outcome.DONE,
        "kubepods-burstable-podweb.slice": Outcome.NOT_TRIED,
    }
    errors = {result.step.name: result.error for result in results if result.error}
    assert errors == {
        BURSTABLE: "access denied",
        "kubepods-burstable-podweb.slice": f"a step on {BURSTABLE} failed",
    }


async def test_a_failure_is_passed_on_through_what_was_not_tried():
    memory = Memory()
    memory.refuse(ROOT, NO)
    units = (slice_unit(ROOT), slice_unit(BURSTABLE), slice_unit("kubepods-burstable-podweb.slice"))
    results = await act(start_all(*units), memory)
    assert [result.outcome for result in results] == [
        Outcome.FAILED,
        Outcome.NOT_TRIED,
        Outcome.NOT_TRIED,
    ]
    assert memory.calls == {"start": 1}


async def test_a_tier_that_can_not_tighten_gets_no_new_pod():
    memory = Memory()
    for unit in start_all(slice_unit(ROOT), slice_unit(BURSTABLE)).steps:
        await memory.start(TransientUnit(name=unit.name, properties={}))
    memory.refuse(BURSTABLE, NO)
    plan = make_plan(
        desired(
            slice_unit(ROOT),
            slice_unit(BURSTABLE, MemoryMax=4096),
            slice_unit("kubepods-burstable-podweb.slice"),
        ),
        observed(seen(ROOT), seen(BURSTABLE)),
    )
    assert list(outcomes(await act(plan, memory)).values()) == [Outcome.FAILED, Outcome.NOT_TRIED]


async def test_a_scope_is_not_tried_when_its_slice_failed():
    memory = Memory()
    memory.provide(BURSTABLE)
    memory.refuse(BURSTABLE, NO)
    change = SetProperties(unit=slice_unit(BURSTABLE), changes=(), tightens=False)
    scope = replace(change, unit=scope_unit("podslice-poda-main.scope", BURSTABLE))
    results = await act(Plan(steps=(change, scope)), memory)
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.NOT_TRIED]


async def test_a_slice_is_not_stopped_before_what_lies_in_it():
    memory = Memory()
    pods = (burstable("web"), besteffort("batch"))
    plan = make_plan(desired_for(*pods), observed())
    await act(plan, memory)
    memory.refuse("kubepods-burstable-podweb.slice", JobFailed("it hangs", result="timeout"))
    there = observed(*await memory.observe(["kubepods*"]))
    results = await act(make_plan(desired_for(current=pods, gone=pods), there), memory)
    left = {each.step.name: each.outcome for each in results if each.outcome is not Outcome.DONE}
    assert left == {
        "kubepods-burstable-podweb.slice": Outcome.FAILED,
        "kubepods-burstable.slice": Outcome.NOT_TRIED,
        "kubepods.slice": Outcome.NOT_TRIED,
    }


async def test_many_starts_go_in_batches():
    memory = Memory()
    count = BATCH_MAX + BATCH_MIN
    results = await act(start_all(slice_unit(ROOT), *numbered(count)), memory)
    assert memory.calls == {"start": 1, "start_batch": 2}
    assert len(results) == count + 1
    assert len(await names(memory)) == count + 1


async def test_few_starts_go_one_by_one():
    memory = Memory()
    await act(start_all(slice_unit(ROOT), *numbered(BATCH_MIN - 1)), memory)
    assert memory.calls == {"start": BATCH_MIN}


async def test_a_batch_that_fails_is_taken_one_by_one_to_find_the_culprit():
    memory = Memory()
    culprit = "kubepods-pod007.slice"
    memory.refuse(culprit, NO)
    results = await act(start_all(slice_unit(ROOT), *numbered(20)), memory)
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    assert [(result.step.name, result.error) for result in failed] == [(culprit, "access denied")]
    assert len(results) == 21
    assert len(await names(memory)) == 20


async def test_many_stops_go_in_batches_and_the_culprit_is_found():
    memory = Memory()
    units = numbered(20)
    await act(start_all(slice_unit(ROOT), *units), memory)
    memory.calls.clear()
    there = observed(*await memory.observe(["kubepods*"]))
    gone = make_plan(desired(slice_unit(ROOT), absent=[unit.name for unit in units]), there)
    memory.refuse("kubepods-pod007.slice", NO)
    results = await act(gone, memory)
    failed = [result.step.name for result in results if result.outcome is Outcome.FAILED]
    assert failed == ["kubepods-pod007.slice"]
    assert await names(memory) == ["kubepods-pod007.slice", ROOT]
    assert memory.calls["stop_batch"] == 1


@pytest.mark.parametrize("count", [1, BATCH_MIN])
async def test_a_unit_that_came_up_since_the_snapshot_gets_its_values(count):
    memory = Memory()
    units = numbered(count, CPUWeight=7)
    first = units[0].name
    await memory.start(TransientUnit(name=first, properties={"CPUWeight": 1}))
    results = await act(start_all(*units), memory)
    assert {result.outcome for result in results} == {Outcome.DONE}
    assert (await properties(memory, first))["CPUWeight"] == 7


async def test_a_unit_that_is_gone_since_the_snapshot_fails_alone():
    memory = Memory()
    memory.provide(ROOT)
    plan = make_plan(
        desired(slice_unit(ROOT, CPUWeight=7), slice_unit(BURSTABLE, CPUWeight=7)),
        observed(seen(ROOT), seen(BURSTABLE)),
    )
    results = await act(plan, memory)
    assert outcomes(results) == {ROOT: Outcome.DONE, BURSTABLE: Outcome.FAILED}


async def test_a_lost_connection_fails_one_step_and_the_next_goes_on():
    memory = Memory()
    memory.break_after(0)
    plan = make_plan(
        desired(slice_unit("a.slice"), slice_unit("b.slice"), slice_unit("c.slice")), observed()
    )
    results = await act(plan, memory)
    assert sorted(result.outcome for result in results) == [
        Outcome.DONE,
        Outcome.DONE,
        Outcome.FAILED,
    ]


class Stuck(Memory):
    """Changes never end."""

    def __init__(self):
        super().__init__()
        self.begun = 0
        self.all_begun = asyncio.Event()

    async def set_properties(self, name, properties):
        self.begun += 1
        if self.begun == 3:
            self.all_begun.set()
        await asyncio.Event().wait()


async def test_nothing_is_left_running_when_it_is_cancelled():
    client = Stuck()
    units = [slice_unit(f"{letter}.slice", CPUWeight=7) for letter in "abc"]
    plan = make_plan(desired(*units), as_observed(desired(*(slice_unit(u.name) for u in units))))
    running = asyncio.create_task(act(plan, client))
    await client.all_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_changes_of_one_turn_are_under_way_at_once():
    client = Stuck()
    units = [slice_unit(f"{letter}.slice", CPUWeight=7) for letter in "abc"]
    plan = make_plan(desired(*units), as_observed(desired(*(slice_unit(u.name) for u in units))))
    running = asyncio.create_task(act(plan, client))
    async with asyncio.timeout(1):
        await client.all_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_starts_have_everything_that_systemd_needs():
    step = StartUnit(unit=slice_unit(BURSTABLE), changes=())
    assert step.name == BURSTABLE
