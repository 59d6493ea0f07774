"""Beside a kubelet, nothing is changed, even if only its units remain."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from podslice.agent.context import AgentContext, Counters
from podslice.agent.terminations import Terminations
from podslice.errors import ForeignRoot
from podslice.features.run import adoption
from podslice.features.run.phase import finish_container, set_phase
from podslice.features.run.start import start_scope, start_service
from podslice.kernel.programs import Invocation
from podslice.model.event import Kind
from podslice.model.pod import ContainerKind
from podslice.model.unit import TransientUnit, UnitName
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.converge import settle
from podslice.reconcile.world import Guard
from podslice.store.store import Store
from podslice.systemd.client import Client
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import Events
from tests.unit.builders import (
    burstable,
    config,
    container,
    decisions,
    run_process,
    world,
)
from tests.unit.converged import apply, delete

RECORDED = json.loads((Path(__file__).parents[2] / "kubelet_units.json").read_text())["units"]
WRITES = {"start", "start_batch", "start_timer", "set_properties", "attach", "stop", "stop_batch"}
WRITES |= {"start_existing", "restart", "reload", "kill", "reset_failed"}
POD = "kubepods-burstable-podweb.slice"
WEB = burstable(
    "web",
    containers=(
        container("setup", kind=ContainerKind.INIT),
        container("main", "cpu=500m"),
    ),
)
SLEEP = Invocation(file="/bin/sleep", arguments=("sleep",), environment={})


class Clock:
    """A clock that advances between two calls, so that no judgment is cached."""

    sec = 0.0

    def __call__(self):
        self.sec += 10.0
        return self.sec


async def start_units_of_a_kubelet(client):
    """Start the recorded units of a real kubelet, which keeps existing slices unchanged."""
    there = {unit.name for unit in await client.observe(["kubepods*"])}
    for pid, (name, unit) in enumerate(RECORDED.items(), 4711):
        properties = {"Description": unit["Description"], "DefaultDependencies": False}
        if name.endswith(".scope"):
            properties |= {"PIDs": (pid,), "Slice": unit["Slice"], "Delegate": True}
        if name not in there:
            await client.start(TransientUnit(name=UnitName(name), properties=properties))


@pytest.fixture
def memory():
    return FakeSystemd()


@pytest.fixture
def here(tmp_path, memory):
    return world(tmp_path, memory, guard=Guard(tmp_path / "host", now=Clock()))


@pytest.fixture
async def beside(here, memory):
    """Return a world with a pod that was applied before the kubelet started."""
    await apply(here, Request(candidates=decisions(WEB, on=here.node, by=here.config)))
    await start_units_of_a_kubelet(memory)
    return here


async def _put(here):
    await apply(here, Request(candidates=decisions(burstable("new"), on=here.node, by=here.config)))


async def _delete(here):
    await delete(here, None)


async def _settle(here):
    await settle(here, WEB.key)


async def _run(here):
    await start_scope(here, WEB.key, "setup", lambda _: pytest.fail("a process was started"))


async def _detach(here):
    await start_service(here, WEB.key, "setup", SLEEP, "/", lambda _: ())


async def _adopt(here):
    await adoption.adopt(here, WEB.key, "main", [4711])


async def _phase(here, *, initializing):
    await set_phase(here, WEB.key, initializing=initializing)


async def _finish(here):
    await finish_container(here, WEB.key, "setup")


VERBS = {
    "apply": _put,
    "delete": _delete,
    "settle": _settle,
    "run": _run,
    "run --detach": _detach,
    "adopt": _adopt,
    "phase init": partial(_phase, initializing=True),
    "phase running": partial(_phase, initializing=False),
    "the end of an init container": _finish,
}


def records(root):
    return {
        path.relative_to(root): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("verb", VERBS)
async def test_each_verb_that_changes_something_is_refused(beside, memory, verb):
    before = await memory.observe(["*"]), records(beside.store.root)
    memory.calls.clear()
    with pytest.raises(ForeignRoot, match=r"belongs to a kubelet.*; podslice changes nothing; "):
        await VERBS[verb](beside)
    assert not memory.calls.keys() & WRITES
    assert (await memory.observe(["*"]), records(beside.store.root)) == before


CALLS = {
    "start": (TransientUnit(name="a.slice", properties={}),),
    "start_batch": ([],),
    "start_timer": (
        TransientUnit(name="a.timer", properties={}),
        TransientUnit(name="a.service", properties={}),
    ),
    "start_existing": ("a.service",),
    "restart": ("a.service",),
    "reload": (),
    "set_properties": (POD, {}),
    "attach": ("a.scope", []),
    "stop": (POD,),
    "stop_batch": ([POD],),
    "kill": (POD, 9),
    "reset_failed": (POD,),
}


@pytest.mark.parametrize("call", sorted(WRITES))
async def test_each_call_that_changes_something_is_refused(beside, memory, call):
    memory.calls.clear()
    with pytest.raises(ForeignRoot):
        await getattr(beside.client, call)(*CALLS[call])
    assert not memory.calls.keys() & WRITES


def test_every_call_of_a_client_is_guarded_or_only_reads():
    """All changes are submitted, which `Guarded` refuses."""
    reads = {
        "caps",
        "observe",
        "list_units",
        "inspect",
        "read_start",
        "read_definition",
        "read_predecessors",
    }
    assert Client.__abstractmethods__ == reads | {"__aenter__", "__aexit__", "submit"}
    others = {name for name in vars(Client) if not name.startswith("_")} - reads
    assert others == {*CALLS, "submit"}


async def test_the_quick_way_to_end_a_pod_is_refused(beside, memory):
    state = await assess(beside)
    (pod,) = state.desired.pods
    memory.calls.clear()
    context = AgentContext(beside, Events(), Counters())
    terminations = Terminations(context, beside.client, lambda *_: None)
    assert not await terminations.start(pod, why="", grace_sec=0, is_removal=True)
    (failed,) = context.events.journal.texts(Kind.STEP_FAILED)
    assert "belongs to a kubelet" in failed
    assert not memory.calls.keys() & WRITES


async def test_looking_shows_why_and_takes_nothing_of_a_kubelet_for_an_orphan(beside):
    state = await assess(beside)
    assert "it contains 6 units of a kubelet" in state.foreign.reason
    assert not state.orphans
    assert [pod.key for pod in state.current] == ["default/web"]


async def test_the_way_out_leads_out(beside, memory):
    """The remedy: stop the kubelet's units, then delete podslice's pods."""
    way_out = (await assess(beside)).foreign.way_out
    while (state := await assess(beside)).foreign is not None:
        named = state.foreign.way_out.partition("(systemctl stop ")[2].partition(")")[0]
        await memory.stop(named.split()[0])
    assert "run podslice delete --all" in way_out
    await delete(beside, None)
    assert not await memory.observe(["kubepods*"])


async def test_another_root_is_not_touched_by_a_kubelet(tmp_path, memory):
    run_process(tmp_path, 812, "kubelet")
    await start_units_of_a_kubelet(memory)
    before = await memory.observe(["kubepods*", "cri-*"])
    there = replace(
        world(tmp_path, memory, by=config(cgroup_root="/podslice")),
        store=Store(tmp_path / "run", cgroup_root="/podslice"),
    )
    assert (
        await apply(there, Request(candidates=decisions(WEB, on=there.node, by=there.config)))
    ).exit_code == 0
    assert (await delete(there, None)).exit_code == 0
    assert await memory.observe(["kubepods*", "cri-*"]) == before


async def test_the_calls_of_one_moment_share_one_answer(tmp_path, memory):
    here = world(tmp_path, memory, guard=Guard(tmp_path / "host", now=lambda: 1.0))
    await apply(
        here,
        Request(candidates=decisions(*map(burstable, "abcdefgh"), on=here.node, by=here.config)),
    )
    # one assessment before and one after, each with one call, which the guard shares
    assert memory.calls["observe"] == 2
    assert memory.calls["list_units"] == 0
