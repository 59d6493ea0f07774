"""Apply: what is created, changed, refused and kept."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from podslice.errors import ForeignRoot, InputError
from podslice.model.unit import SYSTEM, TransientUnit
from podslice.plan import Skipped, StopUnit
from podslice.plan.make import CLASS_CHANGED
from podslice.reconcile import converge
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.report import StepResult
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    USER,
    besteffort,
    burstable,
    config,
    decisions,
    guaranteed,
    make_files,
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
    written,
)

# Apply.


async def test_apply_creates_the_slices(here, memory):
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


async def test_the_plan_and_the_results_are_reported(here):
    plans, results = [], []
    report = await put(here, *THREE, on_plan=plans.append, on_result=results.append)
    assert results == list(report.results)
    assert [result.step for result in results] == list(plans[0].steps)


async def test_what_was_done_is_reported_after_a_cancellation(here, memory, monkeypatch):
    """As by a signal: what is done while other calls are under way is not lost."""
    results, begun = [], asyncio.Event()

    async def hang(*_):
        begun.set()
        await asyncio.Event().wait()

    await put(here, *THREE)
    monkeypatch.setattr(memory, "start", hang)
    running = asyncio.create_task(
        put(here, burstable("web"), guaranteed("other"), prune=True, on_result=results.append)
    )
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [result.step.action for result in results] == ["stop", "stop"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_early_end_leaves_nothing_running(here):
    candidates = decisions(*THREE, on=here.node, by=here.config)
    async with aclosing(converge.apply(here, Request(candidates=candidates))) as found:
        async for each in found:
            if isinstance(each, StepResult):
                break
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert recorded(here).keys() == {pod.name for pod in THREE}


async def test_applied_pods_are_kept(here, memory):
    await put(here, burstable("web"))
    await put(here, besteffort("batch"))
    assert {WEB, BATCH} <= (await slices(memory)).keys()
    await assert_settled(here, burstable("web"), besteffort("batch"))


async def test_prune_removes_pods_that_are_not_requested(here, memory):
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


async def test_drift_is_restored(here, memory):
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


async def test_properties_unknown_to_systemd_are_reported_each_time(tmp_path):
    by = config(memory_protection="min")
    here = world(tmp_path, FakeSystemd(systemd_version=239), by=by)
    for _ in range(2):
        report = await put(here, burstable("web"))
        assert report.exit_code == 0
        assert Skipped(
            unit=WEB,
            name="MemoryMin",
            why="systemd 239 does not support it; it requires 240",
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


async def test_a_refused_change_keeps_the_applied_pod(here, memory):
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
    with pytest.raises(InputError, match="podslice delete --user -n default web"):
        await put(replace(here, manager=USER), burstable("web", uid="other"))
    assert await slices(memory) == before
    await assert_settled(here, burstable("web"))


async def test_another_name_for_an_applied_uid_is_refused_until_its_removal(here, memory):
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


async def test_nothing_changes_beside_a_kubelet(here, memory, kubelet):
    with pytest.raises(ForeignRoot, match=r"a kubelet runs on this host \(process 42, kubelet\)"):
        await put(here, *THREE)
    with pytest.raises(ForeignRoot, match='cgroup-root = "/podslice"'):
        await remove(here)
    assert not memory.calls.keys() & WRITES
    assert not here.store.root.exists()


async def test_assessing_is_allowed_beside_a_kubelet(here, kubelet):
    assert (await assess(here, Request(candidates=decisions(*THREE)))).plan


async def test_another_tree_is_allowed_beside_a_kubelet(tmp_path, memory, kubelet):
    for name, fields in (
        ("root", {"by": config(cgroup_root="/podslice")}),
        ("user", {"manager": USER}),
    ):
        here = world(
            tmp_path / name, FakeSystemd(manager=USER if name == "user" else SYSTEM), **fields
        )
        assert (await put(here, *THREE)).exit_code == 0


async def test_without_a_service_manager_only_a_plan_is_possible(tmp_path):
    here = world(tmp_path, None)
    state = await assess(here, Request(candidates=decisions(*THREE)))
    assert len(state.plan.steps) == 6


# Memory reserved for higher QoS classes.


async def test_a_tier_is_limited_to_its_usage_above_the_target(tmp_path, memory):
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
