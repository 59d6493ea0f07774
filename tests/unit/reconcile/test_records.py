"""Records: written before slices, removed after them, recovered from them."""

from dataclasses import replace

import pytest

from podslice.errors import Refused
from podslice.plan import SetProperties
from podslice.reconcile.assess import assess
from podslice.reconcile.report import Outcome
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    besteffort,
    burstable,
    guaranteed,
    world,
)
from tests.unit.reconcile.worlds import (
    BATCH,
    THREE,
    WEB,
    WRITES,
    assert_settled,
    put,
    recorded,
    remove,
    slices,
)

# Failures.


async def test_the_next_apply_completes_failed_steps(here, memory):
    memory.refuse(WEB, Refused("access denied"))
    report = await put(here, *THREE)
    assert report.exit_code == 1
    assert report.count(Outcome.FAILED) == 1
    assert report.remaining.steps == ()
    memory.refuse(WEB, None)
    report = await put(here)
    assert [result.step.name for result in report.results] == [WEB]
    await assert_settled(here, *THREE)


class Forgetful(FakeSystemd):
    """A manager that accepts every change and keeps none."""

    async def set_properties(self, name, properties):
        pass


async def test_values_that_do_not_persist_are_reported(tmp_path):
    here = world(tmp_path, Forgetful())
    await put(here, burstable("web", "cpu=1"))
    report = await put(here, burstable("web", "cpu=2"))
    assert report.count(Outcome.DONE) == 2
    assert [step.name for step in report.remaining.steps] == ["kubepods-burstable.slice", WEB]
    assert report.exit_code == 1


class WithDropIn(FakeSystemd):
    """A manager with a drop-in for all slices, which overrides their initial properties."""

    async def start(self, unit):
        await super().start(unit)
        await self.set_properties(unit.name, {"ManagedOOMMemoryPressure": "kill"})

    async def start_batch(self, units):
        await super().start_batch(units)
        for unit in units:
            await self.set_properties(unit.name, {"ManagedOOMMemoryPressure": "kill"})


@pytest.mark.parametrize("pods", [(burstable("web"),), THREE], ids=["single", "batch"])
async def test_drop_ins_for_all_slices_are_overridden_at_once(tmp_path, pods):
    here = world(tmp_path, WithDropIn())
    report = await put(here, *pods)
    assert report.exit_code == 0
    set_again = [r.step for r in report.results if isinstance(r.step, SetProperties)]
    assert {change.name for step in set_again for change in step.changes} == {
        "ManagedOOMMemoryPressure"
    }
    await assert_settled(here, *pods)


# Records.


class Watched(FakeSystemd):
    """Lists the records at every start and stop of a unit."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.seen = []

    async def _begin(self, call, *writes):
        if call in WRITES:
            names = {pod.name for pod in self.store.load().pods}
            self.seen.append((call.removesuffix("_batch"), names))
        await super()._begin(call, *writes)


async def test_records_are_written_before_the_slices_and_removed_after_them(tmp_path):
    memory = Watched(Store(tmp_path / "run"))
    here = world(tmp_path, memory)
    await put(here, *THREE)
    await remove(here)
    everyone = {"batch", "web", "database"}
    assert {call for call, _ in memory.seen} == {"start", "stop"}
    assert all(names == everyone for _, names in memory.seen)
    assert recorded(here) == {}


async def test_a_lost_record_is_recovered_and_reported(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    web = burstable("web", "cpu=500m,memory=256Mi", "cpu=1,memory=512Mi")
    await put(here, web, besteffort("batch"))
    before = await slices(memory)
    here.store.remove("web")
    state = await assess(here)
    assert state.plan.steps == ()
    assert [pod.key for pod in state.current] == ["default/batch", "default/web"]
    said = f"pod default/web has no record; it is recovered from the properties of {WEB}"
    assert notes == [f"{said}, without its containers"]
    await put(here, guaranteed("database"))
    after = await slices(memory)
    assert {name: after[name] for name in (WEB, BATCH)} == {
        name: before[name] for name in (WEB, BATCH)
    }
    assert recorded(here).keys() == {"batch", "database", "web"}
    await put(here, web)
    await assert_settled(here, web, besteffort("batch"), guaranteed("database"))
    assert len(notes) == 2


async def test_a_slice_that_is_loaded_but_inactive_is_not_a_pod(tmp_path):
    """A failed unit keeps its slice loaded."""

    class CachingClient(FakeSystemd):
        async def observe(self, patterns):
            units = await super().observe(patterns)
            return tuple(replace(unit, active_state="inactive") for unit in units)

    here = world(tmp_path, CachingClient())
    await put(here, burstable("web"))
    here.store.remove("web")
    state = await assess(here)
    assert state.current == ()
    assert not state.plan


async def test_all_records_lost_and_one_pod_deleted(here, memory):
    await put(here, *THREE)
    for name in recorded(here):
        here.store.remove(name)
    assert (await remove(here, "web")).exit_code == 0
    assert WEB not in await slices(memory)
    await assert_settled(here, besteffort("batch"), guaranteed("database"))


async def test_a_broken_record_is_reported_and_removed(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    await put(here, *THREE)
    path = here.store.root / "pods" / "web.json"
    path.write_text("{")
    here.store.verify()  # for a file that was edited in place
    state = await assess(here)
    assert state.broken_records == (str(path),)
    assert notes[0] == f"{path} is not a valid record of a pod; the next apply removes it"
    assert path.exists()
    await put(here)
    await assert_settled(here, *THREE)


async def test_a_pod_with_a_record_but_no_slice_is_started(here, memory):
    here.store.save(burstable("web"))
    report = await put(here)
    assert report.exit_code == 0
    assert WEB in await slices(memory)


async def test_slices_that_no_pod_accounts_for_are_named_and_left(here, memory):
    await put(here, burstable("web"))
    memory.provide("kubepods-podforeign.slice")
    state = await assess(here)
    assert state.orphans == ("kubepods-podforeign.slice",)
    assert not state.plan
