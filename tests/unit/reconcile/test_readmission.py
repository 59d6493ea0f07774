"""Pods that are not admitted: evicted ones, and new ones under pressure."""

import json
import os
from dataclasses import replace

import pytest

from podslice.errors import InputError
from podslice.kernel.proc import read_process
from podslice.model.node_state import AgentState, Condition, Eviction
from podslice.policy.eviction import CRITICAL_PRIORITY
from podslice.reconcile.assess import Request, assess, living_agent
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import besteffort, burstable, config, decisions, guaranteed, world
from tests.unit.converged import apply, delete

WEB = "kubepods-burstable-podweb.slice"
BATCH = "kubepods-besteffort-podbatch.slice"
NUMBERS = "50Mi of memory are available, 100Mi are required"


@pytest.fixture
def memory():
    return FakeSystemd()


@pytest.fixture
def notes():
    return []


@pytest.fixture
def here(tmp_path, memory, notes):
    return world(tmp_path, memory, notes=notes)


async def put(here, *pods, prune=False, to_remove=lambda _: False, **how):
    candidates = decisions(*pods, on=here.node, by=here.config)
    request = Request(candidates=candidates, prune=prune, to_remove=to_remove)
    return await apply(here, request, **how)


async def plan_for(here, *pods):
    return (
        await assess(here, Request(candidates=decisions(*pods, on=here.node, by=here.config)))
    ).plan


async def slices(memory):
    return {unit.name for unit in await memory.observe(["kubepods*"])}


def evict(here, pod):
    """Mark a pod as the evictor does."""
    mark = Eviction(
        pod=pod.key,
        uid=pod.uid,
        digest=here.store.digest(pod),
        signal="memory.available",
        message=NUMBERS,
        at_usec=1,
    )
    here.store.mark_evicted(mark)
    return mark


def recorded(here):
    return [pod.name for pod in here.store.load().pods]


def refusals(report):
    return [(refusal.pod, refusal.reason) for refusal in report.refused]


# Eviction.


async def test_an_evicted_pod_is_removed_by_any_apply(here, memory):
    """The agent may exit right after it marked the pod."""
    await put(here, burstable("web"), besteffort("batch"))
    mark = evict(here, burstable("web"))
    await memory.stop(WEB)
    report = await put(here, guaranteed("new"))
    assert report.exit_code == 0
    assert recorded(here) == ["batch", "new"]
    assert here.store.load().evicted == (mark,)
    assert WEB not in await slices(memory)
    assert not (await assess(here)).plan


async def test_an_evicted_pod_that_still_exists_is_stopped(here, memory):
    await put(here, burstable("web"))
    evict(here, burstable("web"))
    assert {step.name for step in (await assess(here)).plan.steps} >= {WEB}
    await put(here)
    assert await slices(memory) == set()


async def test_an_evicted_pod_does_not_come_back(here, memory):
    evict(here, burstable("web"))
    report = await put(here, burstable("web"), besteffort("batch"))
    (refused,) = report.refused
    assert (refused.pod, refused.reason, report.exit_code) == ("default/web", "Evicted", 1)
    assert refused.message == (
        f"{NUMBERS}; it is not admitted until its manifest changes; to readmit it:"
        " podslice readmit default/web"
    )
    assert recorded(here) == ["batch"]
    assert WEB not in await slices(memory)
    assert [
        (each.pod, each.reason) for each in (await plan_for(here, burstable("web"))).refused
    ] == [("default/web", "Evicted")]


async def test_another_manifest_is_admitted_and_removes_the_mark(here, memory):
    await put(here, burstable("web"))
    evict(here, burstable("web"))
    await put(here)
    report = await put(here, burstable("web", "cpu=501m"))
    assert (report.exit_code, refusals(report)) == (0, [])
    assert here.store.load().evicted == ()
    assert WEB in await slices(memory)
    # the first manifest again: the mark was removed
    assert (await put(here, burstable("web"))).exit_code == 0


async def test_a_crash_between_the_record_and_the_mark_is_mended(here, memory):
    await put(here, burstable("web", "cpu=501m"))
    evict(here, burstable("web"))
    await put(here)
    assert recorded(here) == ["web"]
    assert here.store.load().evicted == ()


async def test_another_manifest_that_does_not_fit_keeps_the_mark(here):
    mark = evict(here, burstable("web"))
    report = await put(here, burstable("web", "cpu=99"))
    assert refusals(report) == [("default/web", "OutOfcpu")]
    assert here.store.load().evicted == (mark,)


async def test_without_admission_it_stays_away_nevertheless(here):
    here = replace(here, config=config(admission=False))
    evict(here, burstable("web"))
    assert refusals(await put(here, burstable("web"))) == [("default/web", "Evicted")]


async def test_an_evicted_pod_without_a_record_is_removed(here, memory):
    """Recovered from its slice it has another digest."""
    await put(here, burstable("web"))
    mark = evict(here, burstable("web"))
    here.store.remove("web")
    await put(here)
    assert await slices(memory) == set()
    assert here.store.load().evicted == (mark,)


async def test_one_that_was_evicted_holds_up_no_other_of_its_name(here):
    """Another uid means another pod."""
    evict(here, burstable("web"))
    assert (await put(here, burstable("web", uid="other"))).exit_code == 0
    with pytest.raises(InputError):
        await put(here, burstable("web", uid="third"))


async def test_deleting_an_evicted_pod_forgets_the_eviction(here, notes):
    evict(here, burstable("web"))
    mark = evict(here, burstable("shop"))
    report = await delete(here, {"default/web"})
    assert report.exit_code == 0
    assert here.store.load().evicted == (mark,)
    assert notes == ["pod default/web was evicted; its mark is removed, it may be applied again"]
    await put(here, besteffort("batch"))
    await delete(here, None)
    assert here.store.load().evicted == ()
    assert not here.store.root.exists() or not list(here.store.root.iterdir())


# Conditions of the node.


def process():
    return read_process(os.getpid())


def agent(here, *conditions, **fields):
    """Publish the state of an agent with this process."""
    found = process()
    state = AgentState(
        **{
            "pid": found.pid,
            "started_ticks": found.started_ticks,
            "conditions": conditions,
            **fields,
        }
    )
    here.store.agent.save(state)
    return state


async def test_an_agent_that_lives_is_believed(here):
    state = agent(here, Condition.MEMORY)
    assert living_agent(here.store) == state
    assert (await assess(here)).agent == state


@pytest.mark.parametrize("fields", [{"started_ticks": 1}, {"pid": 2**22 + 1}])
async def test_an_agent_that_has_ended_is_not(here, fields):
    agent(here, Condition.DISK, **fields)
    assert living_agent(here.store) is None
    assert (await assess(here)).agent is None
    assert (await put(here, besteffort("batch"))).exit_code == 0


@pytest.mark.parametrize(
    ("condition", "waits"),
    [
        (Condition.MEMORY, {"default/batch"}),
        (Condition.BESTEFFORT_MEMORY, {"default/batch"}),
        (Condition.BURSTABLE_MEMORY, set()),
        (Condition.DISK, {"default/batch", "default/web"}),
        (Condition.PID, {"default/batch", "default/web"}),
    ],
)
async def test_new_pods_wait_while_the_node_is_short_of_something(here, condition, waits):
    agent(here, condition)
    critical = besteffort("critical", priority=CRITICAL_PRIORITY)
    report = await put(here, besteffort("batch"), burstable("web"), critical)
    assert set(refusals(report)) == {(key, condition.value) for key in waits}
    assert {"batch", "web", "critical"} - set(recorded(here)) == {
        key.removeprefix("default/") for key in waits
    }


async def test_applied_pods_can_change_under_pressure(here, memory):
    await put(here, besteffort("batch"), burstable("web"))
    agent(here, Condition.MEMORY, Condition.DISK)
    report = await put(here, besteffort("batch"), burstable("web", "cpu=1"))
    assert (report.exit_code, refusals(report)) == (0, [])
    assert {BATCH, WEB} <= await slices(memory)


async def test_without_admission_no_pod_waits(here):
    here = replace(here, config=config(admission=False))
    agent(here, Condition.DISK)
    assert (await put(here, besteffort("batch"))).exit_code == 0


async def test_an_evicted_pod_and_one_that_waits(here):
    agent(here, Condition.PID)
    evict(here, burstable("web"))
    report = await put(here, besteffort("batch"), burstable("web"))
    assert sorted(refusals(report)) == [
        ("default/batch", "PIDPressure"),
        ("default/web", "Evicted"),
    ]


async def test_prune_keeps_applied_pods_that_are_held_back(here):
    """It is requested, but not admitted."""
    await put(here, besteffort("batch"), burstable("web"))
    agent(here, Condition.DISK)
    report = await put(here, besteffort("batch"), besteffort("new"), prune=True)
    assert refusals(report) == [("default/new", "DiskPressure")]
    assert recorded(here) == ["batch"]


# Sources of pods.


async def test_sources_are_recorded_until_a_pod_is_applied_by_hand(here):
    files = {"web": "/m/web.yaml", "batch": "/m/batch.yaml"}
    await put(here, burstable("web"), besteffort("batch"), sources=files)
    await put(here, guaranteed("new"))
    assert (await assess(here)).sources == files
    await put(here, burstable("web"))
    assert here.store.load().sources == {"batch": "/m/batch.yaml"}
    await put(here, burstable("web"), sources={"web": "/m/moved.yaml"})
    assert here.store.load().sources == {"batch": "/m/batch.yaml", "web": "/m/moved.yaml"}
    await delete(here, {"default/web"})
    assert here.store.load().sources == {"batch": "/m/batch.yaml"}


async def test_a_candidate_that_is_refused_leaves_the_source(here):
    await put(here, burstable("web"), sources={"web": "/m/web.yaml"})
    report = await put(here, burstable("web", "cpu=99"))
    assert refusals(report) == [("default/web", "OutOfcpu")]
    assert here.store.load().sources == {"web": "/m/web.yaml"}


async def test_an_apply_removes_the_requested_pods(here, memory):
    await put(here, burstable("web"), besteffort("batch"))
    await put(here, guaranteed("new"), to_remove=lambda pod: pod.name == "web")
    assert recorded(here) == ["batch", "new"]
    assert WEB not in await slices(memory)


async def test_the_record_names_the_file(here):
    await put(here, burstable("web"), sources={"web": "/m/web.yaml"})
    written = json.loads((here.store.root / "pods/web.json").read_text())
    assert written["source"] == "/m/web.yaml"
