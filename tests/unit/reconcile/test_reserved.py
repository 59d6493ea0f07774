"""Values outside the root: recorded with the former ones, and restored when no longer configured."""

from dataclasses import replace

import pytest

from podslice.errors import ForeignRoot, Refused
from podslice.model.config import Enforce, Origin, Source
from podslice.model.desired import ReservedValue, ReservedValues, Trial
from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY
from podslice.plan import Change, SetProperties
from podslice.plan.restore import fail_trial, record_steps, restore_values, settle_steps, try_steps
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.report import describe_skipped, describe_step
from podslice.reconcile.rollback import restore_all
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    amounts,
    burstable,
    config,
    decisions,
    desired,
    observed,
    run_process,
    seen,
    slice_unit,
    world,
)
from tests.unit.converged import apply, delete

SYSTEM = "system.slice"
RUNTIME = "podruntime.slice"
MI = 2**20


# The decision.


def held(before=INFINITY, *ours, trial=None):
    return ReservedValue(before=before, ours=ours or (256 * MI,), trial=trial)


def record(**values):
    return ReservedValues(units={SYSTEM: values})


def returning(recorded, *units, has=None, wanted=()):
    there = [seen(SYSTEM, values=has)] if has is not None else []
    return restore_values(desired(*units, *wanted), observed(*there), recorded)


def asked_for(found):
    return {unit.name: unit.values for unit in found.desired.units}


CASES = {
    "not requested by any manifest": (
        *({"MemoryMax": 256 * MI}, {"MemoryMax": INFINITY}, ["MemoryMax"], None),
    ),
    "it is as before, by systemctl revert or after a stop": (
        *({"MemoryMax": INFINITY}, {}, [], None),
    ),
    "set externally since": (
        *({"MemoryMax": 100 * MI}, {}, []),
        (
            "skipped MemoryMax of system.slice: podslice set it to 268435456, and it was changed to"
            " 104857600 externally; it is kept and no longer recorded"
        ),
    ),
    "the slice does not exist": (
        *(None, {}, ["MemoryMax"]),
        "skipped MemoryMax of system.slice: the slice is not loaded;",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_recorded_values_are_returned_or_kept(case):
    has, asked, kept, said = CASES[case]
    found = returning(record(MemoryMax=held()), has=has)
    assert asked_for(found) == ({SYSTEM: asked} if asked else {})
    assert sorted(found.held.units.get(SYSTEM, {})) == kept
    assert [describe_skipped(each)[: len(said or "")] for each in found.skipped] == (
        [said] if said else []
    )
    assert not any(each.blocks for each in found.skipped)


def test_configured_values_stay_and_the_rest_returns_in_the_same_step():
    recorded = record(MemoryMax=held(), CPUWeight=held(INFINITY, 50))
    wanted = slice_unit(SYSTEM, owned=False, CPUWeight=70)
    found = returning(recorded, wanted, has={"MemoryMax": 256 * MI, "CPUWeight": 50})
    assert asked_for(found) == {SYSTEM: {"CPUWeight": 70, "MemoryMax": INFINITY}}
    assert found.held == recorded
    returned = {each.name for each in found.desired.units[0].properties if each.is_return}
    assert returned == {"MemoryMax"}


def test_after_a_crash_either_value_is_ours():
    recorded = record(MemoryMax=held(INFINITY, 256 * MI, 128 * MI))
    for value in (256 * MI, 128 * MI):
        found = returning(recorded, has={"MemoryMax": value})
        assert asked_for(found) == {SYSTEM: {"MemoryMax": INFINITY}}


# What is recorded.


def step(old, new, name="MemoryMax"):
    unit = slice_unit(SYSTEM, owned=False, **{name: new})
    return SetProperties(unit=unit, changes=(Change(name=name, old=old, new=new),), tightens=False)


def test_the_first_value_is_kept_however_often_podslice_sets_another():
    first = record_steps(ReservedValues(), [step(INFINITY, 256)], "/")
    assert first == record(MemoryMax=held(INFINITY, 256))
    second = record_steps(first, [step(256, 128)], "/")
    assert second == record(MemoryMax=held(INFINITY, 256, 128))
    assert settle_steps(second, first, [step(256, 128)], []) == record(
        MemoryMax=held(INFINITY, 128)
    )
    # one that failed may be in force or not; one that was not tried is not
    assert settle_steps(second, first, [], []) == second
    assert settle_steps(second, first, [], [step(256, 128)]) == first
    assert settle_steps(first, ReservedValues(), [], [step(INFINITY, 256)]) == ReservedValues()


def test_a_value_set_externally_meanwhile_is_the_former_value():
    known = record(MemoryMax=held(INFINITY, 256))
    assert record_steps(known, [step(300, 256)], "/") == record(MemoryMax=held(300, 256))
    assert record_steps(known, [step(300, 128)], "/") == record(MemoryMax=held(300, 128))


def test_a_value_that_is_set_again_is_recorded_once_as_the_last():
    known = record(MemoryMax=held(INFINITY, 256, 128))
    again = record_steps(known, [step(128, 256)], "/")
    assert again == record(MemoryMax=held(INFINITY, 128, 256))


def test_the_record_has_the_root_of_the_podslice_that_sets_a_value():
    assert record_steps(ReservedValues(), [step(INFINITY, 256)], "/pods").cgroup_root == "/pods"


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_values_of_a_slice_that_is_not_active_stay_recorded(state):
    there = observed(seen(SYSTEM, active_state=state))
    found = restore_values(desired(), there, record(MemoryMax=held()))
    assert found.held == record(MemoryMax=held())
    assert not found.desired.units
    assert [each.name for each in found.skipped] == ["MemoryMax"]


def test_a_value_that_has_returned_is_no_longer_recorded():
    known = record(MemoryMax=held(INFINITY, 256), CPUWeight=held(INFINITY, 50))
    noted = record_steps(known, [step(256, INFINITY)], "/")
    assert settle_steps(noted, known, [step(256, INFINITY)], []) == record(
        CPUWeight=held(INFINITY, 50)
    )


def test_a_trial_keeps_its_old_values():
    known = record(MemoryMax=held(INFINITY, 256))
    noted = record_steps(known, [step(256, 128)], "/")
    tried = try_steps(noted, [step(256, 128)], 7, joins=True)
    done = settle_steps(tried, known, [step(256, 128)], [])
    trial = Trial(old=256, new=128)
    assert done == replace(record(MemoryMax=held(INFINITY, 256, 128, trial=trial)), until_usec=7)
    assert done.unconfirmed.old == {SYSTEM: {"MemoryMax": 256}}
    again = try_steps(record_steps(done, [step(128, 64)], "/"), [step(128, 64)], 9, joins=True)
    assert again.units[SYSTEM]["MemoryMax"].trial == Trial(old=256, new=64)
    over = try_steps(record_steps(done, [step(256, 64)], "/"), [step(256, 64)], 9, joins=False)
    assert over.units[SYSTEM]["MemoryMax"].trial == Trial(old=256, new=64)
    assert fail_trial(again, {SYSTEM}).unconfirmed.new == {}
    assert done.confirmed().unconfirmed is None
    assert done.confirmed().until_usec == 0


def test_every_value_of_reserved_slices_can_be_recorded():
    for name in ("CPUWeight", "MemoryMax", "TasksMax"):
        assert isinstance(PROPERTIES[name].unset, int)


# With the fake systemd.


@pytest.fixture
def memory():
    client = FakeSystemd()
    client.provide(RUNTIME)
    return client


@pytest.fixture
def notes():
    return []


@pytest.fixture
def here(tmp_path, memory, notes):
    return world(tmp_path, memory, by=enforcing(), notes=notes)


def enforcing(kube_cgroup=f"/{RUNTIME}", **fields):
    return config(
        **{
            "system_reserved": amounts("cpu=500m,memory=256Mi"),
            "system_reserved_cgroup": f"/{SYSTEM}",
            "kube_reserved": amounts("cpu=500m,memory=64Mi"),
            "kube_reserved_cgroup": kube_cgroup,
            "enforce_node_allocatable": frozenset(
                {Enforce.PODS, Enforce.SYSTEM_RESERVED, Enforce.KUBE_RESERVED}
            ),
            **fields,
        }
    )


def free(here):
    """Return a world whose configuration no longer enforces reservations."""
    return replace(here, config=config())


async def values(memory, name=SYSTEM):
    (unit,) = await memory.observe([name])
    return unit.properties["CPUWeight"], unit.properties["MemoryMax"]


NONE = (INFINITY, INFINITY)
SET = (50, 256 * MI)


async def put(here, *pods):
    candidates = decisions(*pods, on=here.node, by=here.config)
    return await apply(here, Request(candidates=candidates, by_operator=True))


async def test_values_return_when_the_configuration_asks_for_none(here, memory):
    await put(here, burstable("web"))
    assert await values(memory) == SET
    state = await assess(free(here), Request(by_operator=True, expects_unused=True))
    steps = [describe_step(each) for each in state.plan.steps if each.name == SYSTEM]
    back = "; restores the former value"
    assert steps == [
        f"set CPUWeight=unset (was 50{back}), MemoryMax=unset (was 256Mi{back}) on system.slice"
    ]
    (changed,) = [each for each in state.plan.steps if each.name == SYSTEM]
    assert all(
        change.why.startswith("not requested by the configuration") for change in changed.changes
    )
    report = await put(free(here), burstable("web"))
    assert report.exit_code == 0
    assert await values(memory) == NONE
    assert await values(memory, RUNTIME) == NONE
    assert not here.store.reserved_path.exists()
    assert not (await assess(free(here))).plan


async def test_former_values_are_restored(here, memory):
    await memory.set_properties(SYSTEM, {"MemoryMax": 2**30, "CPUWeight": 0})
    await put(here)
    await put(replace(here, config=enforcing(system_reserved=amounts("memory=128Mi"))))
    assert (await values(memory))[1] == 128 * MI
    await put(free(here))
    assert await values(memory) == (0, 2**30)


async def test_another_slice_in_the_configuration_frees_the_first(here, memory):
    memory.provide("other.slice")
    await put(here)
    await put(replace(here, config=enforcing("/other.slice")))
    assert await values(memory, RUNTIME) == NONE
    assert await values(memory, "other.slice") == (50, 64 * MI)
    assert sorted(here.store.reserved().units) == ["other.slice", SYSTEM]


async def test_another_root_keeps_values_and_record(here, memory):
    await put(here)
    moved = replace(
        here,
        config=replace(here.config, cgroup_root="/podslice"),
        store=Store(here.store.root, cgroup_root="/podslice"),
    )
    assert (await put(moved)).exit_code == 0
    assert await values(memory) == SET
    await put(replace(moved, config=config(cgroup_root="/podslice")))
    assert await values(memory) == NONE


async def test_with_the_last_pod_everything_returns_and_nothing_is_asked_for(here, memory):
    await put(here, burstable("web"), burstable("shop"))
    await delete(here, {"default/web"})
    assert await values(memory) == SET
    assert (await delete(here, None)).exit_code == 0
    assert await values(memory) == await values(memory, RUNTIME) == NONE
    assert not here.store.reserved_path.exists()
    assert not (await assess(here, Request(expects_unused=True))).plan
    assert (await assess(here)).plan, "an apply would set them again"


async def test_delete_returns_values_without_any_pod(here, memory):
    await put(here)
    await delete(here, None)
    assert await values(memory) == NONE


async def test_values_set_externally_stay_and_are_reported_once(here, memory):
    await put(here)
    await memory.set_properties(SYSTEM, {"MemoryMax": 100 * MI})
    report = await put(free(here))
    assert report.exit_code == 0
    assert "changed to 104857600 externally" in report.skipped[0].why
    assert await values(memory) == (INFINITY, 100 * MI)
    assert not here.store.reserved()
    assert not (await put(free(here))).skipped


async def test_values_of_a_missing_slice_stay_recorded(here, memory):
    await put(here)
    await memory.stop(RUNTIME)
    report = await put(free(here))
    assert report.exit_code == 0
    assert {each.unit for each in report.skipped} == {RUNTIME}
    assert list(here.store.reserved().units) == [RUNTIME]
    # a drop-in of a unit with a file outlives its stop
    memory.provide(RUNTIME, MemoryMax=64 * MI, CPUWeight=50)
    await put(free(here))
    assert await values(memory, RUNTIME) == NONE
    assert not here.store.reserved()


async def test_a_step_that_fails_is_tried_again(here, memory):
    await put(here)
    memory.refuse(SYSTEM, Refused("no"))
    assert (await put(free(here))).exit_code == 1
    assert SYSTEM in here.store.reserved().units
    memory.refuse(SYSTEM, None)
    assert (await put(free(here))).exit_code == 0
    assert await values(memory) == NONE


async def test_a_damaged_record_is_reported_and_removed_by_the_next_apply(here, memory, notes):
    await put(here)
    here.store.reserved_path.write_text("{")
    state = await assess(free(here))
    assert state.broken_records == (str(here.store.reserved_path),)
    assert "systemctl revert SLICE" in notes[-1]
    await put(free(here))
    assert await values(memory) == SET, "the former value is unknown"
    assert not here.store.reserved_path.exists()


async def test_a_running_agent_is_reported_when_values_return(here, notes, monkeypatch):
    monkeypatch.setattr("podslice.reconcile.converge.living_agent", lambda _: object())
    await put(here, burstable("web"))
    await delete(here, None)
    assert any("it sets their values again" in note for note in notes)


async def test_all_values_are_restored_and_nothing_else_changes(here, memory):
    await put(here, burstable("web"))
    before = await memory.observe(["kubepods*"])
    report = await restore_all(here)
    assert (report.exit_code, len(report.results)) == (0, 2)
    assert await values(memory) == await values(memory, RUNTIME) == NONE
    assert await memory.observe(["kubepods*"]) == before
    assert (await restore_all(here)).results == ()


async def test_nothing_is_restored_beside_a_kubelet(tmp_path, memory):
    here = world(tmp_path, memory, by=enforcing())
    await put(here)
    run_process(tmp_path, 77, "kubelet")
    beside = world(tmp_path, memory, by=enforcing())
    with pytest.raises(ForeignRoot):
        await restore_all(beside)
    assert await values(memory) == SET


@pytest.mark.parametrize("every", [True, False])
async def test_without_a_valid_configuration_values_return_with_the_last_pod_only(
    here, memory, every
):
    await put(here, burstable("web"), burstable("shop"))
    assumed = replace(here, config=config(), origin=Origin(source=Source.DEFAULT))
    await delete(assumed, None if every else {"default/web"})
    assert await values(memory) == (NONE if every else SET)
    assert bool(here.store.reserved()) is not every
