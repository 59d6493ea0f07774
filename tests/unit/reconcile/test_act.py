import asyncio
import signal
from dataclasses import replace

import pytest

from podslice.errors import HostError, JobFailed, Refused, UnitExists
from podslice.model.unit import INFINITY, Occupants, TransientUnit, UnitKind, UnitName
from podslice.plan import Change, Plan, SetHugepages, SetProperties, StartUnit, StopUnit
from podslice.plan.make import make_plan
from podslice.reconcile.act import BATCH_MAX, BATCH_MIN, act
from podslice.reconcile.report import Outcome
from tests.fake_systemd import FakeSystemd
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
    memory = FakeSystemd()
    wanted = desired_for(guaranteed("database"), burstable("web"), besteffort("batch"))
    results = await act(make_plan(wanted, observed()), memory)
    assert {result.outcome for result in results} == {Outcome.DONE}
    assert not make_plan(wanted, observed(*await memory.observe(["kubepods*"])))


async def test_nothing_is_done_for_an_empty_plan():
    memory = FakeSystemd()
    assert await act(Plan(), memory) == []
    assert not memory.calls


async def test_results_are_reported_in_order_of_completion():
    memory, reported = FakeSystemd(), []
    plan = make_plan(desired_for(burstable("web"), besteffort("batch")), observed())
    results = await act(plan, memory, reported.append)
    assert reported == results
    assert [result.step for result in results] == list(plan.steps)


async def test_units_below_a_failure_are_not_tried_and_others_continue():
    memory = FakeSystemd()
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


async def test_a_failure_propagates_through_steps_that_were_not_tried():
    memory = FakeSystemd()
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
    memory = FakeSystemd()
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
    memory = FakeSystemd()
    memory.provide(BURSTABLE)
    memory.refuse(BURSTABLE, NO)
    change = SetProperties(unit=slice_unit(BURSTABLE), changes=(), tightens=False)
    scope = replace(change, unit=scope_unit("podslice-poda-main.scope", BURSTABLE))
    results = await act(Plan(steps=(change, scope)), memory)
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.NOT_TRIED]


async def test_a_slice_is_not_stopped_before_its_units():
    memory = FakeSystemd()
    pods = (burstable("web"), besteffort("batch"))
    plan = make_plan(desired_for(*pods), observed())
    await act(plan, memory)
    memory.refuse("kubepods-burstable-podweb.slice", JobFailed("it hangs", result="timeout"))
    there = observed(*await memory.observe(["kubepods*"]))
    results = await act(make_plan(desired_for(current=pods, terminating=pods), there), memory)
    left = {each.step.name: each.outcome for each in results if each.outcome is not Outcome.DONE}
    assert left == {
        "kubepods-burstable-podweb.slice": Outcome.FAILED,
        "kubepods-burstable.slice": Outcome.NOT_TRIED,
        "kubepods.slice": Outcome.NOT_TRIED,
    }


async def test_many_starts_go_in_batches():
    memory = FakeSystemd()
    count = BATCH_MAX + BATCH_MIN
    results = await act(start_all(slice_unit(ROOT), *numbered(count)), memory)
    assert memory.calls == {"start_batch": 2}
    assert len(results) == count + 1
    assert len(await names(memory)) == count + 1


async def test_few_starts_go_one_by_one():
    memory = FakeSystemd()
    await act(start_all(slice_unit(ROOT), *numbered(BATCH_MIN - 1)), memory)
    assert memory.calls == {"start": BATCH_MIN}


class Ordered(FakeSystemd):
    """Lists the slices of each call."""

    def __init__(self):
        super().__init__()
        self.begun = []

    async def _begin(self, call, *names):
        if call.startswith(("start", "set")):
            self.begun.append(names)
        await super()._begin(call, *names)


def two_classes(count):
    names = [f"kubepods-podg{number}" for number in range(count)]
    names += [f"kubepods-burstable-podb{number}" for number in range(count)]
    return [slice_unit(ROOT), slice_unit(BURSTABLE), *(slice_unit(f"{n}.slice") for n in names)]


async def test_parents_start_in_the_first_batch_and_the_deepest_slices_before_others(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.BATCH_MAX", 6)
    memory, reported = Ordered(), []
    plan = start_all(*two_classes(8))
    results = await act(plan, memory, reported.append)
    assert memory.begun[0][:2] == (ROOT, BURSTABLE)
    started = [name for names in memory.begun for name in names]
    assert [name.count("-") for name in started[2:]] == [2] * 8 + [1] * 8
    assert [result.step for result in results] == list(plan.steps)
    assert [result.step.name for result in reported[:2]] == [ROOT, BURSTABLE]


async def test_no_slice_is_started_before_the_batch_with_its_parents_is_up(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.BATCH_MAX", 6)

    class Slow(Ordered):
        """Finishes the first call after a while."""

        async def _begin(self, call, *names):
            await super()._begin(call, *names)
            if len(self.begun) == 1:
                for _ in range(100):
                    await asyncio.sleep(0)
                assert len(self.begun) == 1

    memory = Slow()
    results = await act(start_all(*two_classes(8)), memory)
    assert {result.outcome for result in results} == {Outcome.DONE}


@pytest.mark.parametrize("batch", [6, 64])
async def test_below_a_parent_that_fails_in_a_batch_nothing_is_started(monkeypatch, batch):
    monkeypatch.setattr("podslice.reconcile.act.BATCH_MAX", batch)
    memory = Ordered()
    memory.refuse(BURSTABLE, NO)
    found = outcomes(await act(start_all(*two_classes(8)), memory))
    assert found.pop(BURSTABLE) is Outcome.FAILED
    below = {name for name in found if name.startswith("kubepods-burstable-")}
    assert {found[name] for name in below} == {Outcome.NOT_TRIED}
    assert {found[name] for name in found.keys() - below} == {Outcome.DONE}
    assert not below.intersection(*memory.begun[1:])
    assert len(await names(memory)) == 9


async def test_before_each_call_its_steps_are_announced_and_may_be_prevented(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.BATCH_MAX", 6)
    memory, announced = Ordered(), set()

    async def before(steps):
        if len(announced) > 6:
            raise HostError("no space left on device")
        announced.update(step.name for step in steps)

    with pytest.raises(HostError, match="no space"):
        await act(start_all(*two_classes(8)), memory, before=before)
    assert {name for names in memory.begun for name in names} <= announced
    assert len(await names(memory)) in {6, 12}
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_batch_that_fails_is_taken_one_by_one_to_find_the_culprit():
    memory = FakeSystemd()
    culprit = "kubepods-pod007.slice"
    memory.refuse(culprit, NO)
    results = await act(start_all(slice_unit(ROOT), *numbered(20)), memory)
    failed = [result for result in results if result.outcome is Outcome.FAILED]
    assert [(result.step.name, result.error) for result in failed] == [(culprit, "access denied")]
    assert len(results) == 21
    assert len(await names(memory)) == 20


async def test_many_stops_go_in_batches_and_the_culprit_is_found():
    memory = FakeSystemd()
    units = numbered(20)
    await act(start_all(slice_unit(ROOT), *units), memory)
    memory.calls.clear()
    there = observed(*await memory.observe(["kubepods*"]))
    gone = make_plan(desired(slice_unit(ROOT), unwanted=[unit.name for unit in units]), there)
    memory.refuse("kubepods-pod007.slice", NO)
    results = await act(gone, memory)
    failed = [result.step.name for result in results if result.outcome is Outcome.FAILED]
    assert failed == ["kubepods-pod007.slice"]
    assert await names(memory) == ["kubepods-pod007.slice", ROOT]
    assert memory.calls["stop_batch"] == 1


@pytest.mark.parametrize("count", [1, BATCH_MIN])
async def test_a_unit_that_came_up_since_the_snapshot_gets_its_values(count):
    memory = FakeSystemd()
    units = numbered(count, CPUWeight=7)
    first = units[0].name
    await memory.start(TransientUnit(name=first, properties={"CPUWeight": 1}))
    results = await act(start_all(*units), memory)
    assert {result.outcome for result in results} == {Outcome.DONE}
    assert (await properties(memory, first))["CPUWeight"] == 7


async def test_a_unit_that_was_removed_since_the_observation_fails_alone():
    memory = FakeSystemd()
    memory.provide(ROOT)
    plan = make_plan(
        desired(slice_unit(ROOT, CPUWeight=7), slice_unit(BURSTABLE, CPUWeight=7)),
        observed(seen(ROOT), seen(BURSTABLE)),
    )
    results = await act(plan, memory)
    assert outcomes(results) == {ROOT: Outcome.DONE, BURSTABLE: Outcome.FAILED}


async def test_a_lost_connection_fails_one_step_and_the_next_continues():
    memory = FakeSystemd()
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


class Stuck(FakeSystemd):
    """A manager whose changes never finish."""

    def __init__(self):
        super().__init__()
        self.begun = 0
        self.all_begun = asyncio.Event()

    async def set_properties(self, name, properties):
        self.begun += 1
        if self.begun == 3:
            self.all_begun.set()
        await asyncio.Event().wait()


async def test_changes_of_one_turn_are_under_way_at_once_and_end_when_it_is_cancelled():
    client = Stuck()
    units = [slice_unit(f"{letter}.slice", CPUWeight=7) for letter in "abc"]
    plan = make_plan(desired(*units), as_observed(desired(*(slice_unit(u.name) for u in units))))
    running = asyncio.create_task(act(plan, client))
    async with asyncio.timeout(30):
        await client.all_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}


# Stopping pods.

POD = "kubepods-podweb.slice"
SCOPE = "podslice-podweb-main.scope"
TERM_FIRST = [(POD, signal.SIGTERM), (POD, signal.SIGKILL)]


async def running(*, stubborn=False):
    """Return a pod's slice with a container of two processes."""
    memory = FakeSystemd()
    await memory.start(TransientUnit(name=POD, properties={}))
    await memory.start(TransientUnit(name=SCOPE, properties={"Slice": POD, "PIDs": (7, 8)}))
    if stubborn:
        memory.make_stubborn(SCOPE)
    memory.calls.clear()
    return memory


def stop(**fields):
    step = StopUnit(
        name=POD, why="pod default/web is removed", tasks=2, pod="default/web", **fields
    )
    return Plan(steps=(step,))


async def is_stopped(memory, plan, patience_sec=5):
    async with asyncio.timeout(patience_sec):
        (result,) = await act(plan, memory)
    left = await memory.observe([POD, SCOPE])
    return result.outcome is Outcome.DONE and not left


async def test_processes_that_exit_in_their_grace_period_are_not_killed():
    memory = await running()
    assert await is_stopped(memory, stop(grace_sec=30))
    assert memory.signals == []


@pytest.mark.parametrize("grace_sec", [0, 0.01])
async def test_processes_that_outlast_their_grace_period_are_killed(grace_sec):
    memory = await running(stubborn=True)
    assert await is_stopped(memory, stop(grace_sec=grace_sec))
    assert memory.signals == [(POD, signal.SIGKILL)]


async def test_the_grace_of_one_pod_does_not_hold_up_another():
    memory = await running(stubborn=True)
    other = UnitName("kubepods-podother.slice")
    await memory.start(TransientUnit(name=other, properties={}))
    idle = StopUnit(name=other, why="x", pod="default/other", grace_sec=30)
    ends = []
    plan = Plan(steps=(*stop(grace_sec=0.01).steps, idle))
    results = await act(plan, memory, lambda result: ends.append(result.step.name))
    assert ends == [other, POD]
    assert tuple(result.step for result in results) == plan.steps


async def test_many_pods_have_their_graces_at_once():
    memory = FakeSystemd()
    slices = [UnitName(f"kubepods-pod{number}.slice") for number in range(BATCH_MIN + 1)]
    for number, name in enumerate(slices):
        scope = TransientUnit(
            name=UnitName(f"podslice-pod{number}-main.scope"),
            properties={"Slice": name, "PIDs": (number + 10,)},
        )
        await memory.start(TransientUnit(name=name, properties={}))
        await memory.start(scope)
        memory.make_stubborn(scope.name)
    memory.calls.clear()
    steps = [StopUnit(name=name, why="x", tasks=1, pod=name, grace_sec=0.01) for name in slices]
    results = await act(Plan(steps=tuple(steps)), memory)
    assert {result.outcome for result in results} == {Outcome.DONE}
    assert memory.calls == {"stop": len(slices), "kill": len(slices)}


async def test_killed_units_of_a_pod_are_reset():
    """systemd keeps a slice loaded while a unit in it is failed."""
    memory = await running(stubborn=True)
    assert await is_stopped(
        memory, stop(grace_sec=0, occupants=Occupants(units=(SCOPE, "libpod-1.scope")))
    )
    assert memory.calls["reset_failed"] == 2


async def test_a_service_that_belongs_to_another_slice_now_is_stopped():
    """It was released, and runs in the pod's slice until it restarts."""
    memory = await running()
    web = UnitName("web.service")
    memory.provide(web)
    assert await is_stopped(memory, stop(grace_sec=30, occupants=Occupants(units=(SCOPE, web))))
    assert memory.calls["stop"] == 2


async def test_a_slice_that_is_signalled_stands_until_its_processes_are_gone():
    memory = await running()
    assert await is_stopped(memory, stop(grace_sec=30, signals=(POD,)))
    assert memory.signals == TERM_FIRST[:1]


async def test_signalled_processes_that_do_not_exit_are_killed():
    memory = await running(stubborn=True)
    assert await is_stopped(memory, stop(grace_sec=0, signals=(POD,)))
    assert memory.signals == TERM_FIRST


@pytest.mark.parametrize("stubborn", [False, True])
async def test_with_more_time_than_systemd_gives_containers_are_signalled_and_others_stopped(
    stubborn,
):
    memory = await running()
    libpod = UnitName("libpod-1.scope")
    await memory.start(TransientUnit(name=libpod, properties={"Slice": POD, "PIDs": (9,)}))
    if stubborn:
        memory.make_stubborn(SCOPE)
        memory.make_stubborn(libpod)
    plan = stop(grace_sec=0.01, occupants=Occupants(units=(libpod, SCOPE)), signals=(SCOPE,))
    assert await is_stopped(memory, plan)
    late = [(SCOPE, signal.SIGKILL), (libpod, signal.SIGKILL)] if stubborn else []
    assert memory.signals[0] == (SCOPE, signal.SIGTERM)
    assert sorted(memory.signals[1:]) == sorted(late)
    assert memory.calls["stop"] == 2


async def test_an_inactive_slice_is_started_to_reach_its_remaining_processes():
    memory = FakeSystemd()
    assert await is_stopped(memory, stop(grace_sec=0, signals=(POD,)))
    assert memory.calls["start"] == 1
    assert memory.signals == TERM_FIRST[:1]


async def test_a_stop_that_fails_is_reported_and_leaves_no_task_waiting():
    memory = await running()
    memory.refuse(POD, NO)
    for plan in (stop(grace_sec=30), stop(grace_sec=0, signals=(POD,))):
        (result,) = await act(plan, memory)
        assert (result.outcome, result.error) == (Outcome.FAILED, "access denied")


async def test_a_kill_that_fails_ends_the_waiting():
    class Immune(FakeSystemd):
        async def kill(self, name, signal_number):
            raise NO

    memory = Immune()
    await memory.start(TransientUnit(name=POD, properties={}))
    await memory.start(TransientUnit(name=SCOPE, properties={"Slice": POD, "PIDs": (7,)}))
    memory.make_stubborn(SCOPE)
    (result,) = await act(stop(grace_sec=0), memory)
    assert (result.outcome, result.error) == (Outcome.FAILED, "access denied")


# Less memory than is in use.


class Reclaiming(FakeSystemd):
    """A manager whose units release memory gradually once MemoryHigh is set."""

    def __init__(self, used, least):
        super().__init__()
        self.used, self.least = used, least
        self.written = []
        self.stuck = asyncio.Event()

    async def set_properties(self, name, properties):
        await super().set_properties(name, properties)
        self.written.append(dict(properties))

    async def observe(self, patterns):
        units = await super().observe(patterns)
        if any(unit.properties["MemoryHigh"] < self.used for unit in units):
            self.used = max(self.used - 40, self.least)
        if self.used == self.least:
            self.stuck.set()
        return tuple(replace(unit, memory_bytes=self.used) for unit in units)


@pytest.fixture
def _short(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.POLL_SEC", 0)
    monkeypatch.setattr("podslice.reconcile.act.STALLED_SEC", 0.02)


async def shrink(memory, *, force=False):
    """Lower a limit from 300 bytes to 100, with another change."""
    await memory.start(TransientUnit(name=POD, properties={"MemoryMax": 300, "CPUWeight": 1}))
    memory.written.clear()
    unit = slice_unit(POD, pod="default/web", MemoryMax=100, CPUWeight=7)
    there = observed(*await memory.observe([POD]))
    (result,) = await act(make_plan(desired(unit), there, force=force), memory)
    return result, await properties(memory, POD)


@pytest.mark.usefixtures("_short")
async def test_a_unit_is_limited_once_it_has_come_down():
    memory = Reclaiming(used=250, least=60)
    result, values = await shrink(memory)
    assert result.outcome is Outcome.DONE
    assert (values["MemoryMax"], values["MemoryHigh"], values["CPUWeight"]) == (100, INFINITY, 7)
    assert memory.written == [
        {"MemoryHigh": 100},
        {"MemoryHigh": INFINITY, "MemoryMax": 100, "CPUWeight": 7},
    ]


@pytest.mark.usefixtures("_short")
async def test_memory_that_can_not_be_reclaimed_changes_nothing():
    memory = Reclaiming(used=250, least=180)
    result, values = await shrink(memory)
    assert result.outcome is Outcome.FAILED
    assert result.error == (
        "180 B are in use and can't be reclaimed, above the limit of 100 B; reduce the pod's"
        " memory usage, or use --force: the kernel may then OOM-kill its processes"
    )
    assert (values["MemoryMax"], values["MemoryHigh"], values["CPUWeight"]) == (300, INFINITY, 1)
    assert memory.written == [{"MemoryHigh": 100}, {"MemoryHigh": INFINITY}]


async def test_with_force_it_is_limited_at_once():
    memory = Reclaiming(used=250, least=180)
    _, values = await shrink(memory, force=True)
    assert values["MemoryMax"] == 100
    assert memory.written == [{"MemoryMax": 100, "CPUWeight": 7}]


@pytest.mark.usefixtures("_short")
async def test_memory_high_is_restored_when_the_wait_is_interrupted(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.act.STALLED_SEC", 60)
    memory = Reclaiming(used=250, least=180)
    shrinking = asyncio.create_task(shrink(memory))
    async with asyncio.timeout(30):
        await memory.stuck.wait()
    shrinking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shrinking
    assert memory.written[-1] == {"MemoryHigh": INFINITY}


# Huge pages.


def limited(unit, **files):
    changes = tuple(Change(name=name, old=None, new=value) for name, value in files.items())
    return Plan(steps=(SetHugepages(unit=unit, changes=changes),))


async def test_huge_pages_are_limited_by_the_given_function():
    written = []
    unit = slice_unit(POD)
    await act(
        limited(unit, a=1, b=2), FakeSystemd(), limit_hugepages=lambda *what: written.append(what)
    )
    assert written == [("/kubepods.slice/kubepods-podweb.slice", {"a": 1, "b": 2})]


async def test_limits_that_can_not_be_written_fail_the_step():
    (result,) = await act(limited(slice_unit(POD), a=1), FakeSystemd())
    assert result.outcome is Outcome.FAILED
    assert result.error.endswith("huge pages can't be limited by this operation")


# Volumes.


async def test_a_volume_that_was_mounted_meanwhile_is_left_as_it_is():
    class Taken(FakeSystemd):
        async def start(self, unit):
            raise UnitExists("it is loaded")

    memory = Taken()
    unit = replace(slice_unit("a.slice"), name="run-a.mount", kind=UnitKind.MOUNT)
    (result,) = await act(Plan(steps=(StartUnit(unit=unit, changes=()),)), memory)
    assert result.outcome is Outcome.DONE
    assert not memory.calls["set_properties"]
