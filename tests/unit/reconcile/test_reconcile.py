import shutil
import signal
from contextlib import suppress
from dataclasses import replace

import pytest

from podslice.errors import ForeignRoot, InputError, JobFailed, Refused, SystemdError
from podslice.kernel.cgroup import CgroupFs
from podslice.model.manager import SYSTEM
from podslice.model.pod import ContainerKind, InitProgress, MemoryVolume
from podslice.model.unit import INFINITY, TransientUnit, UnitKind
from podslice.plan import CLASS_CHANGED, SetHugepages, SetProperties, Skipped, StopUnit
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import apply, delete, settle
from podslice.reconcile.report import Outcome, StuckPod
from podslice.reconcile.request import Request
from podslice.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    USER,
    besteffort,
    burstable,
    config,
    container,
    decisions,
    guaranteed,
    make_files,
    node,
    pod,
    resources,
    run_process,
    world,
)

WEB = "kubepods-burstable-podweb.slice"
BATCH = "kubepods-besteffort-podbatch.slice"
THREE = (besteffort("batch"), burstable("web"), guaranteed("database"))
WRITES = {"start", "start_batch", "set_properties", "stop", "stop_batch", "reset_failed"}


@pytest.fixture
def kubelet(tmp_path):
    """A kubelet runs."""
    run_process(tmp_path, 42, "kubelet")


@pytest.fixture
def memory():
    return FakeSystemd()


@pytest.fixture
def here(tmp_path, memory):
    return world(tmp_path, memory)


async def put(here, *pods, prune=False, force=False, **how):
    candidates = decisions(*pods, on=here.node, by=here.config)
    return await apply(here, Request(candidates=candidates, prune=prune, force=force), **how)


async def remove(here, *names):
    return await delete(here, {f"default/{name}" for name in names} if names else None)


async def slices(memory):
    """Every loaded slice and scope that may be ours, with its properties."""
    units = await memory.observe(["kubepods*", "podslice-*"])
    return {unit.name: unit.properties for unit in units}


def recorded(here):
    records = here.store.load()
    assert not records.broken
    return {pod.name: pod for pod in records.pods}


def written(memory):
    return {name: count for name, count in memory.calls.items() if name in WRITES}


async def assert_settled(here, *pods):
    """A new look finds nothing to do, and the records are those of the pods."""
    state = await assess(here, Request(candidates=decisions(*pods, on=here.node, by=here.config)))
    assert state.plan.steps == ()
    assert recorded(here).keys() == {pod.name for pod in pods}
    assert [pod.name for pod in state.current] == sorted(pod.name for pod in pods)
    assert not state.orphans


# Apply.


async def test_apply_makes_it_so(here, memory):
    report = await put(here, *THREE)
    assert report.exit_code == 0
    assert (await slices(memory)).keys() == {
        "kubepods.slice",
        "kubepods-burstable.slice",
        "kubepods-besteffort.slice",
        "kubepods-poddatabase.slice",
        WEB,
        BATCH,
    }
    assert (await slices(memory))[WEB]["MemoryLow"] == 2**28
    await assert_settled(here, *THREE)


async def test_a_second_apply_writes_nothing(here, memory):
    await put(here, *THREE)
    memory.calls.clear()
    report = await put(here, *THREE)
    assert report.results == ()
    assert report.exit_code == 0
    assert memory.calls == {"observe": 1, "caps": 1}


async def test_the_plan_and_the_results_are_told(here):
    plans, results = [], []
    report = await put(here, *THREE, on_plan=plans.append, on_result=results.append)
    assert results == list(report.results)
    assert [result.step for result in results] == list(plans[0].steps)


async def test_pods_that_were_applied_stay(here, memory):
    await put(here, burstable("web"))
    await put(here, besteffort("batch"))
    assert {WEB, BATCH} <= (await slices(memory)).keys()
    await assert_settled(here, burstable("web"), besteffort("batch"))


async def test_prune_removes_what_is_not_asked_for(here, memory):
    await put(here, *THREE)
    report = await put(here, burstable("web"), prune=True)
    assert report.exit_code == 0
    stopped = {r.step.name for r in report.results if isinstance(r.step, StopUnit)}
    assert stopped == {BATCH, "kubepods-poddatabase.slice"}
    assert not stopped & (await slices(memory)).keys()
    await assert_settled(here, burstable("web"))


async def test_prune_of_everything_leaves_nothing(here, memory):
    await put(here, *THREE)
    await put(here, prune=True)
    assert await slices(memory) == {}
    await assert_settled(here)


async def test_a_change_of_a_pod_is_made_in_place(here, memory):
    await put(here, burstable("web", "cpu=500m"))
    memory.calls.clear()
    await put(here, burstable("web", "cpu=2"))
    assert (await slices(memory))[WEB]["CPUWeight"] == 200
    assert (await slices(memory))["kubepods-burstable.slice"]["CPUWeight"] == 200
    assert written(memory) == {"set_properties": 2}
    await assert_settled(here, burstable("web", "cpu=2"))


async def test_drift_is_put_back(here, memory):
    await put(here, *THREE)
    await memory.set_properties(WEB, {"CPUWeight": 1, "TasksMax": 5})
    await memory.stop(BATCH)
    report = await put(here)
    assert {result.step.name for result in report.results} == {WEB, BATCH}
    await assert_settled(here, *THREE)


async def test_an_idle_pod_moves_to_its_new_class(here, memory):
    await put(here, besteffort("web"))
    report = await put(here, burstable("web"))
    assert report.exit_code == 0
    names = (await slices(memory)).keys()
    assert WEB in names
    assert "kubepods-besteffort-podweb.slice" not in names
    await assert_settled(here, burstable("web"))


async def test_scopes_that_run_are_held_to_their_container(here, memory):
    await put(here, burstable("web", "cpu=1,memory=1Gi"))
    scope = "podslice-podweb-main.scope"
    await memory.start(TransientUnit(name=scope, properties={"Slice": WEB, "PIDs": (1,)}))
    await put(here)
    found = (await slices(memory))[scope]
    assert (found["CPUWeight"], found["MemoryLow"]) == (100, 2**30)
    await put(here, besteffort("batch"))
    await assert_settled(here, burstable("web", "cpu=1,memory=1Gi"), besteffort("batch"))


async def test_what_this_systemd_does_not_know_is_said_each_time(tmp_path):
    by = config(memory_protection="min")
    here = world(tmp_path, FakeSystemd(systemd_version=239), by=by)
    for _ in range(2):
        report = await put(here, burstable("web"))
        assert report.exit_code == 0
        assert Skipped(
            unit=WEB,
            name="MemoryMin",
            why="systemd 239 does not know it; it came with 240",
        ) in [*report.skipped]


async def test_another_root_is_another_tree(tmp_path, memory):
    here = world(tmp_path, memory, by=config(cgroup_root="/custom"))
    await put(here, burstable("web"))
    names = {unit.name for unit in await memory.observe(["custom*"])}
    assert names == {
        "custom.slice",
        "custom-kubepods.slice",
        "custom-kubepods-burstable.slice",
        "custom-kubepods-besteffort.slice",
        "custom-kubepods-burstable-podweb.slice",
    }
    await assert_settled(here, burstable("web"))


# Reserved slices.


RESERVED = {
    "system_reserved": {"cpu": 500, "memory": 2**30 * 1000},
    "system_reserved_cgroup": "/system.slice",
    "enforce_node_allocatable": frozenset({"pods", "system-reserved"}),
}


async def test_a_reserved_slice_is_held_to_its_reservation_and_nothing_else(tmp_path, memory):
    here = world(tmp_path, memory, by=config(**RESERVED))
    await memory.set_properties("system.slice", {"TasksMax": 5})
    await put(here, besteffort("batch"))
    (system,) = await memory.observe(["system.slice"])
    assert system.properties["CPUWeight"] == 50
    assert system.properties["MemoryMax"] == 2**30
    assert system.properties["TasksMax"] == 5
    await remove(here)
    assert await memory.observe(["system.slice"])


# Refusals.


async def test_a_pod_that_does_not_fit_is_refused_and_the_others_go_on(here, memory):
    report = await put(here, guaranteed("huge", cpu="100"), burstable("web"))
    assert [(each.pod, each.reason) for each in report.refused] == [("default/huge", "OutOfcpu")]
    assert report.exit_code == 1
    assert WEB in await slices(memory)
    assert recorded(here).keys() == {"web"}


async def test_a_refused_change_keeps_what_was_there(here, memory):
    await put(here, burstable("web", "cpu=500m"))
    before = await slices(memory)
    report = await put(here, burstable("web", "cpu=100"))
    assert [each.reason for each in report.refused] == ["OutOfcpu"]
    assert await slices(memory) == before
    assert recorded(here)["web"].containers[0].resources.requests == {"cpu": 500}
    await assert_settled(here, burstable("web", "cpu=500m"))


async def test_without_admission_everything_fits(tmp_path, memory):
    here = world(tmp_path, memory, by=config(admission=False))
    report = await put(here, guaranteed("huge", cpu="100"))
    assert report.exit_code == 0
    assert "kubepods-podhuge.slice" in await slices(memory)


async def test_a_pod_with_processes_keeps_its_class_its_record_and_its_part_of_the_sums(
    here, memory
):
    old, new = burstable("web", "cpu=2"), guaranteed("web", cpu="1")
    await put(here, old)
    memory.set_tasks(WEB, 3)
    before = await slices(memory)
    report = await put(here, new, besteffort("batch"))
    assert [(each.pod, each.reason) for each in report.refused] == [("default/web", CLASS_CHANGED)]
    assert report.exit_code == 1
    after = await slices(memory)
    assert BATCH in after
    assert {name: after[name] for name in before} == before
    assert recorded(here)["web"].containers[0].resources.requests == {"cpu": 2000}
    await assert_settled(here, old, besteffort("batch"))
    memory.set_tasks(WEB, 0)
    assert (await put(here, new)).exit_code == 0
    await assert_settled(here, new, besteffort("batch"))


async def test_another_uid_is_another_pod(here, memory):
    await put(here, burstable("web"))
    before = await slices(memory)
    with pytest.raises(InputError) as caught:
        await put(here, burstable("web", uid="other"), besteffort("batch"))
    assert str(caught.value) == (
        "web.yaml: pod default/web is applied with uid web, not other;"
        " delete it first: podslice delete -n default web"
    )
    assert await slices(memory) == before
    await assert_settled(here, burstable("web"))


async def test_another_name_for_a_uid_that_is_there_is_refused_until_that_goes(here, memory):
    await put(here, burstable("web"))
    before = await slices(memory)
    with pytest.raises(InputError) as caught:
        await put(here, burstable("shop", uid="web"))
    assert str(caught.value) == (
        "shop.yaml: uid web belongs to pod default/web, which is applied;"
        " delete it first: podslice delete -n default web"
    )
    assert await slices(memory) == before
    await put(here, burstable("shop", uid="web"), prune=True)
    assert [pod.key for pod in here.store.load().pods] == ["default/shop"]
    await assert_settled(here, burstable("shop", uid="web"))


async def test_a_kubelet_is_in_charge(here, memory, kubelet):
    with pytest.raises(ForeignRoot, match=r"a kubelet runs on this host \(process 42, kubelet\)"):
        await put(here, *THREE)
    with pytest.raises(ForeignRoot, match='cgroup-root = "/podslice"'):
        await remove(here)
    assert not memory.calls.keys() & WRITES
    assert not here.store.root.exists()


async def test_looking_is_allowed_beside_a_kubelet(here, kubelet):
    assert (await assess(here, Request(candidates=decisions(*THREE)))).plan


async def test_a_kubelet_does_not_mind_another_tree(tmp_path, memory, kubelet):
    for name, fields in (
        ("root", {"by": config(cgroup_root="/podslice")}),
        ("user", {"manager": USER}),
    ):
        here = world(
            tmp_path / name, FakeSystemd(manager=USER if name == "user" else SYSTEM), **fields
        )
        assert (await put(here, *THREE)).exit_code == 0


async def test_without_a_service_manager_there_is_only_a_plan(tmp_path):
    here = world(tmp_path, None)
    state = await assess(here, Request(candidates=decisions(*THREE)))
    assert len(state.plan.steps) == 6


# Delete.


async def test_delete_stops_the_pod_and_relaxes_the_tiers(here, memory):
    await put(here, burstable("web", "cpu=2"), burstable("api", "cpu=1"))
    assert (await slices(memory))["kubepods-burstable.slice"]["CPUWeight"] == 300
    report = await remove(here, "web")
    assert report.exit_code == 0
    assert (await slices(memory))["kubepods-burstable.slice"]["CPUWeight"] == 100
    await assert_settled(here, burstable("api", "cpu=1"))


async def test_delete_of_the_last_pod_leaves_nothing(here, memory):
    await put(here, *THREE)
    assert (await remove(here)).exit_code == 0
    assert await slices(memory) == {}
    await assert_settled(here)
    assert not (here.store.root / "pods").exists()


async def test_delete_of_a_pod_that_is_not_there_does_nothing(here, memory):
    await put(here, burstable("web"))
    memory.calls.clear()
    assert (await remove(here, "other")).results == ()
    assert not written(memory)


async def test_a_pod_that_can_not_be_stopped_keeps_its_record(here, memory):
    await put(here, *THREE)
    memory.refuse(WEB, JobFailed("it hangs", result="timeout"))
    report = await remove(here, "web")
    assert report.exit_code == 1
    assert "web" in recorded(here)
    memory.refuse(WEB, None)
    assert (await remove(here, "web")).exit_code == 0
    await assert_settled(here, besteffort("batch"), guaranteed("database"))


async def test_what_others_have_in_the_tree_stays(here, memory):
    await put(here, burstable("web"))
    memory.provide("kubepods-burstable-podforeign.slice", MemoryMax=5)
    report = await remove(here)
    assert report.exit_code == 0
    assert {each.unit for each in report.skipped} == {"kubepods.slice", "kubepods-burstable.slice"}
    assert (await slices(memory))["kubepods-burstable-podforeign.slice"]["MemoryMax"] == 5


# Failures.


async def test_what_failed_is_done_by_the_next_apply(here, memory):
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
    """Takes every change and keeps none."""

    async def set_properties(self, name, properties):
        pass


async def test_what_does_not_hold_is_told(tmp_path):
    here = world(tmp_path, Forgetful())
    await put(here, burstable("web", "cpu=1"))
    report = await put(here, burstable("web", "cpu=2"))
    assert report.count(Outcome.DONE) == 2
    assert [step.name for step in report.remaining.steps] == ["kubepods-burstable.slice", WEB]
    assert report.exit_code == 1


class WithDropIn(FakeSystemd):
    """Has a drop-in for all slices, which wins over what they are started with."""

    async def start(self, unit):
        await super().start(unit)
        await self.set_properties(unit.name, {"ManagedOOMMemoryPressure": "kill"})


async def test_what_the_host_has_for_all_slices_gives_way_at_once(tmp_path):
    here = world(tmp_path, WithDropIn())
    report = await put(here, burstable("web"))
    assert report.exit_code == 0
    set_again = [r.step for r in report.results if isinstance(r.step, SetProperties)]
    assert {change.name for step in set_again for change in step.changes} == {
        "ManagedOOMMemoryPressure"
    }
    await assert_settled(here, burstable("web"))


# Records.


class Watched(FakeSystemd):
    """Notes which records there are whenever a unit is started or stopped."""

    def __init__(self, store):
        super().__init__()
        self.store = store
        self.seen = []

    async def _begin(self, call, *writes):
        if call in WRITES:
            names = {pod.name for pod in self.store.load().pods}
            self.seen.append((call.removesuffix("_batch"), names))
        await super()._begin(call, *writes)


async def test_records_are_there_before_the_slices_and_go_after_them(tmp_path):
    memory = Watched(Store(tmp_path / "run"))
    here = world(tmp_path, memory)
    await put(here, *THREE)
    await remove(here)
    everyone = {"batch", "web", "database"}
    assert {call for call, _ in memory.seen} == {"start", "stop"}
    assert all(names == everyone for _, names in memory.seen)
    assert recorded(here) == {}


async def test_a_lost_record_is_rebuilt_and_said(tmp_path, memory):
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


async def test_a_slice_that_is_only_in_systemds_mind_is_no_pod(tmp_path):
    """What failed in it keeps it loaded."""

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


async def test_a_broken_record_is_told_and_removed(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    await put(here, *THREE)
    path = here.store.root / "pods" / "web.json"
    path.write_text("{")
    state = await assess(here)
    assert state.broken_records == (str(path),)
    assert notes[0] == f"{path} is not a valid record of a pod; the next apply removes it"
    assert path.exists()
    await put(here)
    await assert_settled(here, *THREE)


async def test_a_record_without_a_slice_is_a_pod_that_has_to_be_started(here, memory):
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


# Memory that is reserved for better classes.


async def test_a_tier_is_held_at_its_usage_where_that_is_above_the_target(tmp_path, memory):
    by = config(qos_reserved={"memory": 100})
    here = world(tmp_path, memory, by=by)
    large = guaranteed("large", memory="30Gi")
    await put(here, besteffort("batch"))
    group = "cgroup/kubepods.slice/kubepods-besteffort.slice"
    make_files(
        tmp_path,
        {"cgroup/cgroup.controllers": "", f"{group}/memory.stat": f"anon {3 * 2**30}\n"},
    )
    await put(here, large)
    assert (await slices(memory))["kubepods-besteffort.slice"]["MemoryMax"] == 3 * 2**30
    assert (await slices(memory))["kubepods-burstable.slice"]["MemoryMax"] == 2 * 2**30
    make_files(tmp_path, {f"{group}/memory.stat": "anon 4096\n"})
    await put(here)
    assert (await slices(memory))["kubepods-besteffort.slice"]["MemoryMax"] == 2 * 2**30


# Crashes: the twin of the test that kills the real thing.


class Killed(Exception):
    """The process ends here."""


class Mortal(FakeSystemd):
    """Dies before the effect of a write, and stays dead until revived."""

    def __init__(self):
        super().__init__()
        self.writes_left = None

    async def _begin(self, call, *writes):
        if call in WRITES and self.writes_left is not None:
            if self.writes_left == 0:
                raise Killed
            self.writes_left -= 1
        await super()._begin(call, *writes)


class MortalStore(Store):
    """Dies before a record is written or removed."""

    def __init__(self, root, writes_left):
        super().__init__(root)
        self.writes_left = writes_left

    def save(self, pod, source=None):
        self._one_less()
        super().save(pod, source)

    def remove(self, uid):
        self._one_less()
        super().remove(uid)

    def _one_less(self):
        if self.writes_left == 0:
            raise Killed
        self.writes_left -= 1


MANY = tuple(besteffort(f"many{number}") for number in range(6))
BEFORE = (*MANY[:3], besteffort("moves"), burstable("web"), guaranteed("away"))
AFTER = (*MANY, burstable("moves"), burstable("web", "cpu=2", "memory=1Gi"), guaranteed("new"))
CHANGES = [
    pytest.param((), AFTER, id="first"),
    pytest.param(BEFORE, AFTER, id="change"),
    pytest.param(AFTER, BEFORE, id="back"),
    pytest.param(AFTER, (), id="end"),
]


async def outcome_of(tmp_path, then):
    memory = Mortal()
    await put(world(tmp_path, memory), *then)
    return await slices(memory)


async def die_and_come_back(tmp_path, was, then, *, calls=None, records=None):
    """Die on the way from one state to another, then apply anew; whether it died at all."""
    memory = Mortal()
    here = world(tmp_path, memory)
    await put(here, *was)
    memory.writes_left = calls
    dying = here
    if records is not None:
        dying = replace(here, store=MortalStore(here.store.root, records))
    died = True
    with suppress(Killed):
        await put(dying, *then, prune=True)
        died = False
    memory.writes_left = None
    report = await put(here, *then, prune=True)
    assert report.exit_code == 0
    await assert_settled(here, *then)
    memory.calls.clear()
    await put(here, *then, prune=True)
    assert not written(memory)
    return died, await slices(memory)


@pytest.mark.parametrize(("was", "then"), CHANGES)
async def test_after_a_crash_at_any_call_the_next_apply_converges(tmp_path, was, then):
    expected = await outcome_of(tmp_path / "expected", then)
    for calls in range(100):
        died, found = await die_and_come_back(tmp_path / str(calls), was, then, calls=calls)
        assert found == expected
        if not died:
            assert calls > 2
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize(("was", "then"), CHANGES)
async def test_after_a_crash_at_any_record_the_next_apply_converges(tmp_path, was, then):
    expected = await outcome_of(tmp_path / "expected", then)
    for records in range(100):
        died, found = await die_and_come_back(tmp_path / str(records), was, then, records=records)
        assert found == expected
        if not died:
            assert records > 2
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize(("was", "then"), CHANGES)
async def test_after_a_lost_connection_at_any_call_the_next_apply_converges(tmp_path, was, then):
    """The connection breaks once; whatever that hits, the others go on and the next one repairs."""
    expected = await outcome_of(tmp_path / "expected", then)
    for calls in range(40):
        memory = FakeSystemd()
        here = world(tmp_path / str(calls), memory)
        await put(here, *was)
        memory.calls.clear()
        memory.break_after(calls)
        with suppress(SystemdError):
            await put(here, *then, prune=True)
        broke = sum(memory.calls.values()) > calls
        memory.break_after(10_000)
        assert (await put(here, *then, prune=True)).exit_code == 0
        await assert_settled(here, *then)
        assert await slices(memory) == expected
        if not broke:
            return
    pytest.fail("it never came to an end")


# Containers, as scopes and as services.

SCOPE = "podslice-podweb-main.scope"
SERVICE = "podslice-podweb-main.service"
COMMAND = (("/bin/true", ("true",), False),)


async def run_service(memory):
    await memory.start(TransientUnit(name=SERVICE, properties={"Slice": WEB, "ExecStart": COMMAND}))


async def test_a_container_is_the_service_that_it_runs_in(here, memory):
    web = burstable("web", "cpu=1,memory=1Gi")
    await put(here, web)
    await run_service(memory)
    state = await assess(here)
    units = {unit.name: unit for unit in state.desired.units}
    assert SCOPE not in units
    assert units[SERVICE].kind is UnitKind.SERVICE
    assert units[SERVICE].control_group.endswith(f"/{WEB}/{SERVICE}")
    assert (await put(here)).exit_code == 0
    assert (await slices(memory))[SERVICE]["MemoryLow"] == 2**30
    await assert_settled(here, web)


async def test_where_both_are_there_the_scope_is_the_container(here, memory):
    await put(here, burstable("web"))
    await run_service(memory)
    await memory.start(TransientUnit(name=SCOPE, properties={"Slice": WEB, "PIDs": (7,)}))
    names = {unit.name for unit in (await assess(here)).desired.units}
    assert SCOPE in names
    assert SERVICE not in names


# The init phase.

SHOP = "kubepods-burstable-podshop.slice"


def shop(init="one", **fields):
    containers = (
        container(init, kind=ContainerKind.INIT),
        container("app", "cpu=1,memory=64Mi"),
    )
    limits = fields.pop("limits", "cpu=2,memory=128Mi")
    return pod("shop", containers=containers, resources=resources("", limits), **fields)


async def limit_of(memory):
    return (await slices(memory))[SHOP]["MemoryMax"]


async def test_limits_that_do_not_bind_yet_are_told_with_what_makes_them(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    await put(here, shop())
    assert await limit_of(memory) == INFINITY
    (note,) = set(notes)
    assert note == (
        "pod default/shop: its own limits bind once its init container one exited with 0"
        " (podslice run default/shop -c one -- CMD); to bind them now:"
        " podslice phase default/shop --set running"
    )
    notes.clear()
    await put(here, besteffort("batch"))
    assert notes == []


async def test_nothing_is_told_where_the_phase_changes_nothing(tmp_path, memory):
    notes = []
    here = world(tmp_path, memory, notes=notes)
    await put(here, shop(limits=""))
    assert notes == []


async def test_settle_changes_the_units_of_one_pod_only(here, memory):
    await put(here, shop(), burstable("web"))
    here.store.save_progress("shop", InitProgress(over=True))
    await memory.set_properties(WEB, {"CPUWeight": 1})
    report = await settle(here, "default/shop")
    assert report.exit_code == 0
    assert [result.step.name for result in report.results] == [SHOP]
    assert await limit_of(memory) == 2**27
    assert (await slices(memory))[WEB]["CPUWeight"] == 1
    assert (await settle(here, "default/shop")).results == ()


async def test_settle_tells_what_it_could_not_do(here, memory):
    await put(here, shop())
    here.store.save_progress("shop", InitProgress(over=True))
    memory.refuse(SHOP, Refused("access denied"))
    report = await settle(here, "default/shop")
    assert report.exit_code == 1
    assert report.results[0].error == "access denied"


# What is in the pods that go.


@pytest.fixture
def names(monkeypatch):
    """Names of processes by their ids."""
    known = {7: "nginx", 8: "sh", 9: "\x1b[31mevil", 10: "a", 11: "b", 12: "c"}
    monkeypatch.setattr("podslice.reconcile.occupants.process_name", known.__getitem__)
    return known


def group_files(tmp_path, groups):
    """Control groups with processes: path below the pod's slice → ids."""
    top = f"cgroup/kubepods.slice/kubepods-burstable.slice/{WEB}"
    text = {path: "".join(f"{pid}\n" for pid in pids) for path, pids in groups.items()}
    files = {f"{top}/{path}/cgroup.procs": procs for path, procs in text.items()}
    make_files(tmp_path, {"cgroup/cgroup.controllers": "", **files})
    return tmp_path / top


def clear_groups(tmp_path):
    shutil.rmtree(tmp_path / "cgroup/kubepods.slice")


class Kernel(FakeSystemd):
    """With it control groups go when their slices are stopped."""

    def __init__(self, tmp_path):
        super().__init__()
        self.tmp_path = tmp_path

    async def stop(self, name, *, timeout_sec=None):
        await super().stop(name, timeout_sec=timeout_sec)
        if name == WEB:
            clear_groups(self.tmp_path)


async def stops_of(here, pod_, **how):
    """The step that stops a pod, as delete would take it."""
    state = await assess(here, Request(to_remove=lambda each: each.name == pod_), **how)
    return next(step for step in state.plan.steps if step.name == WEB)


@pytest.mark.usefixtures("names")
async def test_what_runs_in_a_pod_is_told_by_name_when_it_is_stopped(tmp_path):
    memory = Kernel(tmp_path)
    here = world(tmp_path, memory)
    await put(here, burstable("web", grace_period_sec=5))
    memory.set_tasks(WEB, 9)
    libpod = f"libpod-{'0123456789' * 6}.scope"
    group_files(
        tmp_path,
        {
            SCOPE: (7, 8, 8),
            f"{libpod}/container": (9,),
            f"{WEB.removesuffix('.slice')}-libpod_pod_1.slice/libpod-2.scope": (10,),
        },
    )
    step = await stops_of(here, "web")
    assert step.occupants.descriptions == (
        "libpod-2.scope: 1 process (a)",
        "libpod-012345678….scope: 1 process (\\x1b[31mevil)",
        "container main: 3 processes (nginx, sh)",
    )
    assert (step.occupants.processes, step.tasks, step.grace_sec) == (5, 9, 5)
    assert set(step.occupants.units) == {"libpod-2.scope", libpod, SCOPE}
    assert step.signals == ()
    assert (await remove(here, "web")).exit_code == 0
    assert memory.signals == []


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("group", "word"),
    [
        (".", "the slice itself"),
        ("by-hand", "control group by-hand"),
        ("inner.slice", "inner.slice"),
        ("inner.slice/by-hand/deeper", "control group by-hand"),
    ],
)
async def test_processes_beside_units_are_signalled(tmp_path, group, word):
    """A stop of the slice would leave them running."""
    memory = Kernel(tmp_path)
    here = world(tmp_path, memory)
    await put(here, burstable("web"))
    group_files(tmp_path, {group: (7,)})
    step = await stops_of(here, "web")
    assert step.occupants.descriptions == (f"{word}: 1 process (nginx)",)
    assert step.signals == (WEB,)
    assert (await remove(here, "web")).exit_code == 0
    assert memory.signals[0] == (WEB, signal.SIGTERM)


async def test_long_lists_are_cut(tmp_path, memory, names):
    here = world(tmp_path, memory)
    await put(here, burstable("web"))
    names |= {pid: f"name{pid}" for pid in range(100, 200)}
    groups = {f"unit{number}.scope": (number,) for number in range(101, 112)}
    group_files(tmp_path, {"many.scope": range(110, 120), **groups})
    step = await stops_of(here, "web")
    assert (
        step.occupants.descriptions[0]
        == "many.scope: 10 processes (name110, name111, name112, name113, …)"
    )
    assert len(step.occupants.descriptions) == 9
    assert step.occupants.descriptions[-1] == "4 more"


# What is left of pods that are gone.


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.converge.REMOVAL_PATIENCE_SEC", 0)


@pytest.mark.usefixtures("names", "_impatient")
async def test_a_pod_whose_processes_do_not_end_keeps_its_record_and_that_is_told(tmp_path):
    memory = FakeSystemd()
    here = world(tmp_path, memory)
    await put(here, burstable("web"))
    top = group_files(tmp_path, {"by-hand": (7, 8)})
    report = await remove(here)
    group = f"/kubepods.slice/kubepods-burstable.slice/{WEB}"
    assert report.exit_code == 1
    assert report.stuck == (
        StuckPod(
            pod="default/web",
            why=f"{group} still contains nginx (7), sh (8); to retry:"
            " podslice delete -n default web",
        ),
    )
    assert report.count(Outcome.DONE) == len(report.results)
    assert recorded(here).keys() == {"web"}
    # with nothing but that left, the next one takes it up
    memory.signals.clear()
    (top / "by-hand" / "cgroup.procs").write_text("")
    report = await remove(here)
    assert memory.signals == [(WEB, signal.SIGTERM)]
    assert report.stuck[0].why.startswith(
        f"its control group {group} still exists, without processes; to retry:"
    )
    clear_groups(tmp_path)
    assert (await remove(here)).exit_code == 0
    await assert_settled(here)


async def test_a_control_group_may_take_a_moment(tmp_path, memory):
    looks = []

    class Fading(CgroupFs):
        def exists(self, control_group):
            looks.append(control_group)
            return len(looks) == 1

    here = replace(world(tmp_path, memory), cgroups=Fading(mount=tmp_path))
    await put(here, burstable("web"))
    assert (await remove(here)).exit_code == 0
    assert len(looks) > 1
    await assert_settled(here)


async def test_a_deleted_pod_whose_slice_is_down_is_emptied_through_it(tmp_path):
    """Only its record and its control group are left."""
    memory = Kernel(tmp_path)
    here = world(tmp_path, memory)
    await put(here, burstable("web"))
    await memory.stop("kubepods.slice")
    group_files(tmp_path, {"by-hand": (1,)})
    report = await remove(here)
    assert report.exit_code == 0
    assert memory.signals == [(WEB, signal.SIGTERM)]
    assert await slices(memory) == {}
    await assert_settled(here)


async def test_volumes_that_are_still_mounted_keep_the_record(tmp_path, memory, monkeypatch):
    here = world(tmp_path, memory)
    await put(here, burstable("web", volumes=CACHE))
    path = here.store.make_volume("web", "cache")
    monkeypatch.setattr("podslice.store.volume_directories.os.path.ismount", lambda _: True)
    report = await remove(here)
    assert [each.why for each in report.stuck] == [
        (
            f"something is still mounted at {path}; unmount it; to retry:"
            " podslice delete -n default web"
        )
    ]
    assert recorded(here).keys() == {"web"}
    monkeypatch.undo()
    assert (await remove(here)).exit_code == 0
    assert not here.store.root.exists() or not list(here.store.root.rglob("cache"))


# Volumes in memory.

CACHE = (MemoryVolume(name="cache", size_bytes=2**20),)
MOUNT = "run-podslice-pods-web-volumes-cache.mount"


async def mounts(memory):
    return [unit.name for unit in await memory.observe(["run-podslice-*.mount"])]


async def test_volumes_are_mounted_and_go_with_their_pod(here, memory):
    web = burstable("web", volumes=CACHE)
    await put(here, web)
    assert await mounts(memory) == [MOUNT]
    await assert_settled(here, web)
    await remove(here)
    assert await mounts(memory) == []


async def test_a_volume_that_was_lost_is_mounted_again(here, memory):
    web = burstable("web", volumes=CACHE)
    await put(here, web)
    await memory.stop(MOUNT)
    report = await put(here)
    assert [result.step.name for result in report.results] == [MOUNT]
    await assert_settled(here, web)


async def test_a_volume_that_is_left_out_is_unmounted(here, memory):
    await put(here, burstable("web", volumes=CACHE))
    report = await put(here, burstable("web"))
    assert report.exit_code == 0
    assert await mounts(memory) == []
    await assert_settled(here, burstable("web"))


async def test_a_users_volumes_are_directories_and_that_is_said_once(tmp_path):
    notes = []
    memory = FakeSystemd(manager=USER)
    here = world(tmp_path, memory, manager=USER, notes=notes)
    web = burstable("web", volumes=CACHE)
    for _ in range(2):
        assert (await put(here, web)).exit_code == 0
    path = here.store.volume_path("web", "cache")
    assert path.is_dir()
    assert await mounts(memory) == []
    assert notes == [
        (
            f"pod default/web: volume cache is the directory {path}, without a size of its own:"
            " a user's manager can't mount"
        )
    ]
    (path / "data").write_text("x")
    assert (await remove(here)).exit_code == 0
    assert not path.exists()


# Huge pages.

PAGES = "kubepods-podhuge.slice"


def huge(**fields):
    limits = "cpu=1,memory=1Gi,hugepages-2Mi=8Mi"
    return pod("huge", limits=limits, **fields)


def hugetlb_files(tmp_path, control="cpu hugetlb"):
    group = f"cgroup/kubepods.slice/{PAGES}"
    make_files(
        tmp_path,
        {
            "cgroup/cgroup.controllers": "cpu hugetlb",
            "cgroup/cgroup.subtree_control": control,
            "cgroup/kubepods.slice/cgroup.subtree_control": "",
            f"{group}/hugetlb.2MB.max": "max",
            f"{group}/hugetlb.2MB.rsvd.max": "max",
        },
    )
    return tmp_path / group / "hugetlb.2MB.max"


def reserved_of(file):
    return file.with_name("hugetlb.2MB.rsvd.max").read_text()


def with_huge_pages():
    return {"on": node("cpu=8,memory=32Gi,hugepages-2Mi=64Mi")}


async def test_huge_pages_are_limited_and_drift_is_put_back(tmp_path, memory):
    here = world(tmp_path, memory, **with_huge_pages())
    file = hugetlb_files(tmp_path)
    await put(here, huge())
    assert (file.read_text(), reserved_of(file)) == ("8388608", "8388608")
    control = tmp_path / "cgroup/kubepods.slice/cgroup.subtree_control"
    assert control.read_text() == "+hugetlb"
    assert not (await assess(here)).plan
    file.write_text("max")
    report = await put(here)
    assert [type(result.step) for result in report.results] == [SetHugepages]
    assert file.read_text() == "8388608"


async def test_a_pod_without_huge_pages_is_limited_to_none(tmp_path, memory):
    on = replace(node("cpu=8,memory=32Gi"), hugepage_sizes=(2**21,))
    here = world(tmp_path, memory, on=on)
    file = hugetlb_files(tmp_path)
    await put(here, pod("huge", limits="cpu=1,memory=1Gi"))
    assert (file.read_text(), reserved_of(file)) == ("0", "0")
    assert not (await assess(here)).plan


async def test_huge_pages_are_left_out_where_they_can_not_be_limited(tmp_path, memory):
    here = world(tmp_path, memory, **with_huge_pages())
    file = hugetlb_files(tmp_path, control="cpu")
    report = await put(here, huge())
    assert report.exit_code == 0
    assert [(each.unit, each.name) for each in report.skipped] == [(PAGES, "limits of huge pages")]
    assert file.read_text() == "max"
