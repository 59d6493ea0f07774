"""Delete: stopped units, remaining processes and records."""

import shutil
import signal
from dataclasses import replace

import pytest

from podslice.errors import JobFailed
from podslice.kernel.cgroup import CgroupFs
from podslice.model.node_state import StuckPod
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.report import Outcome
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    besteffort,
    burstable,
    guaranteed,
    make_files,
    world,
)
from tests.unit.reconcile.worlds import (
    CACHE,
    SCOPE,
    THREE,
    WEB,
    assert_settled,
    put,
    recorded,
    remove,
    slices,
    written,
)

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


async def test_delete_of_an_unknown_pod_does_nothing(here, memory):
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


async def test_units_of_other_programs_in_the_tree_are_kept(here, memory):
    await put(here, burstable("web"))
    memory.provide("kubepods-burstable-podforeign.slice", MemoryMax=5)
    report = await remove(here)
    assert report.exit_code == 0
    assert {each.unit for each in report.skipped} == {"kubepods.slice", "kubepods-burstable.slice"}
    assert (await slices(memory))["kubepods-burstable-podforeign.slice"]["MemoryMax"] == 5


# Processes of stopped pods.


@pytest.fixture
def names(monkeypatch):
    """Name processes after their ids."""
    known = {7: "nginx", 8: "sh", 9: "\x1b[31mevil", 10: "a", 11: "b", 12: "c"}
    monkeypatch.setattr("podslice.reconcile.observe.process_name", known.__getitem__)
    return known


def group_files(tmp_path, groups):
    """Create control groups with processes: path below the pod's slice → ids."""
    top = f"cgroup/kubepods.slice/kubepods-burstable.slice/{WEB}"
    text = {path: "".join(f"{pid}\n" for pid in pids) for path, pids in groups.items()}
    files = {f"{top}/{path}/cgroup.procs": procs for path, procs in text.items()}
    make_files(tmp_path, {"cgroup/cgroup.controllers": "", **files})
    return tmp_path / top


def clear_groups(tmp_path):
    shutil.rmtree(tmp_path / "cgroup/kubepods.slice")


class Kernel(FakeSystemd):
    """A manager that removes control groups with their slices."""

    def __init__(self, tmp_path):
        super().__init__()
        self.tmp_path = tmp_path

    async def stop(self, name, *, timeout_sec=None):
        await super().stop(name, timeout_sec=timeout_sec)
        if name == WEB:
            clear_groups(self.tmp_path)


async def stops_of(here, pod_, **how):
    """Return the step with which delete would stop a pod."""
    state = await assess(here, Request(to_remove=lambda each: each.name == pod_), **how)
    return next(step for step in state.plan.steps if step.name == WEB)


@pytest.mark.usefixtures("names")
async def test_processes_of_a_stopped_pod_are_reported_by_name(tmp_path):
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
    """A stop of the slice alone would leave them running."""
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


# Remains of stopped pods.


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr("podslice.reconcile.converge.REMOVAL_PATIENCE_SEC", 0)


@pytest.mark.usefixtures("names", "_impatient")
async def test_a_pod_with_remaining_processes_keeps_its_record_and_is_reported(tmp_path):
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
            why=f"{group} still contains nginx (7), sh (8)",
            hint="to retry: podslice delete -n default web",
        ),
    )
    assert report.count(Outcome.DONE) == len(report.results)
    assert recorded(here).keys() == {"web"}
    # the next delete continues with what remains
    memory.signals.clear()
    (top / "by-hand" / "cgroup.procs").write_text("")
    report = await remove(here)
    assert memory.signals == [(WEB, signal.SIGTERM)]
    (stuck,) = report.stuck
    assert stuck.why == f"its control group {group} still exists, without processes"
    clear_groups(tmp_path)
    assert (await remove(here)).exit_code == 0
    await assert_settled(here)


async def test_a_control_group_may_take_a_moment(tmp_path, memory):
    checked = []

    class Fading(CgroupFs):
        def exists(self, control_group):
            checked.append(control_group)
            return len(checked) == 1

    here = replace(world(tmp_path, memory), cgroups=Fading(mount=tmp_path))
    await put(here, burstable("web"))
    assert (await remove(here)).exit_code == 0
    assert len(checked) > 1
    await assert_settled(here)


async def test_a_deleted_pod_whose_slice_is_down_is_emptied_through_it(tmp_path):
    """Only its record and its control group remain."""
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
    monkeypatch.setattr("podslice.store.store.os.path.ismount", lambda _: True)
    report = await remove(here)
    hint = "unmount it; to retry: podslice delete -n default web"
    why = f"something is still mounted at {path}"
    assert report.stuck == (StuckPod(pod="default/web", why=why, hint=hint),)
    assert recorded(here).keys() == {"web"}
    monkeypatch.undo()
    assert (await remove(here)).exit_code == 0
    assert not here.store.root.exists() or not list(here.store.root.rglob("cache"))
