import signal

import pytest

from podslice.errors import JobFailed
from podslice.model.event import Kind
from tests.unit.agent.fakes import until
from tests.unit.agent.reconciled import POD_STEPS, WEB, Node


@pytest.fixture
async def here(tmp_path):
    """A node whose pod ignores SIGTERM during its grace period of 30 s."""
    node = Node(tmp_path)
    node.put("web", {"cpu": "500m", "memory": "256Mi"})
    await node.settle()
    node.memory.set_tasks(WEB, 3)
    node.memory.make_stubborn(WEB)
    yield node
    await node.terminations.close()


async def terminate(node):
    """Remove the manifest, so that the pod terminates."""
    node.drop("web")
    result = await node.run_round()
    await until(lambda: node.memory.calls["stop"])
    return result


async def exit_processes(node):
    """Let the processes of the pod exit."""
    node.memory.set_tasks(WEB, 0)
    await until(lambda: not node.context.terminating.in_progress)


# Others do not wait.


async def test_while_a_pod_terminates_others_start_and_the_lock_is_free(here):
    result = await terminate(here)
    assert (result.acted, result.is_settled) == (False, True)
    lock = here.context.world.store.try_lock()
    assert lock is not None
    with lock:
        pass
    here.put("late")
    assert (await here.run_round()).is_settled
    assert here.records == {"web", "late"}
    assert WEB in await here.slices()
    assert here.reported(Kind.POD_TERMINATING, *POD_STEPS) == [
        ("pod-terminating", "default/web"),
        ("pod-applied", "default/late"),
    ]
    here.context.publish()
    assert here.context.world.store.agent.read().terminating == ("default/web",)
    assert here.texts(Kind.POD_TERMINATING) == [
        "stopping 3 processes of pod default/web, up to 30 s"
    ]


async def test_a_pod_is_asked_to_stop_once(here):
    await terminate(here)
    for _ in range(3):
        assert not (await here.run_round()).acted
    assert here.memory.calls["stop"] == 1


async def test_its_record_is_removed_when_it_is_stopped(here):
    await terminate(here)
    await exit_processes(here)
    assert here.reported(*POD_STEPS) == [("pod-removed", "default/web")]
    result = await here.run_round()
    assert result.is_settled
    assert not here.records
    assert WEB not in await here.slices()
    assert here.reported(*POD_STEPS) == [("pod-removed", "default/web")]


async def test_it_counts_until_it_is_removed(here):
    here.put("web", {"cpu": "5"})
    await here.settle()
    await terminate(here)
    here.put("next", {"cpu": "5"})
    await here.run_round()
    assert here.reported(Kind.POD_REFUSED) == [("pod-refused", "default/next")]
    await exit_processes(here)
    await here.run_round()
    assert here.records == {"next"}


async def test_pods_without_processes_are_removed_at_once(here):
    here.memory.set_tasks(WEB, 0)
    here.drop("web")
    assert (await here.run_round()).acted
    assert not here.records
    assert not here.texts(Kind.POD_TERMINATING)


# Pods requested again.


async def test_a_pod_requested_again_starts_when_it_has_terminated(here):
    await terminate(here)
    here.put("web", {"cpu": "500m", "memory": "128Mi"})
    result = await here.run_round()
    assert (result.acted, result.is_settled) == (False, True)
    assert (await here.slices())[WEB]["MemoryLow"] == 2**28
    await exit_processes(here)
    await here.run_round()
    assert (await here.slices())[WEB]["MemoryLow"] == 2**27
    assert here.reported(Kind.DRIFT_REPAIRED, *POD_STEPS) == [
        ("pod-removed", "default/web"),
        ("pod-applied", "default/web"),
    ]


async def test_it_then_has_a_new_grace_period(here):
    await terminate(here)
    here.put("web", {"cpu": "500m", "memory": "256Mi"})
    await exit_processes(here)
    await here.run_round()
    here.memory.set_tasks(WEB, 1)
    here.memory.make_stubborn(WEB)
    here.drop("web")
    assert not (await here.run_round()).acted
    assert len(here.texts(Kind.POD_TERMINATING)) == 2


async def test_another_pod_of_its_name_starts_when_it_has_terminated(here):
    here.put("web", {"cpu": "500m"}, uid="other")
    result = await here.run_round()
    assert (result.acted, result.is_settled) == (False, True)
    assert set(await here.slices()) == {WEB}
    await exit_processes(here)
    await here.settle()
    assert set(await here.slices()) == {"kubepods-burstable-podother.slice"}


# Evicted pods.


async def test_an_evicted_pod_stays_marked_while_it_terminates(here):
    decision = here.context.assessment.desired.pods[0]
    stopping = here.terminations.start(decision, why="it is evicted", grace_sec=30, is_removal=True)
    here.mark("web")
    assert not (await here.run_round()).acted
    assert here.records == {"web"}
    here.memory.set_tasks(WEB, 0)
    assert await stopping
    assert (await here.run_round()).is_settled
    assert not here.records
    assert [mark.pod for mark in here.context.world.store.load().evicted] == ["default/web"]


# Failures.


async def test_the_round_kills_what_is_left_after_the_grace_period(here):
    here.memory.refuse(WEB, JobFailed("not now", result="failed"))
    here.drop("web")
    await here.run_round()
    await until(lambda: not here.context.terminating.in_progress)
    # the round that has begun the stop may try again, if the stop has failed before its end
    for event in (events := here.context.events.journal.of(Kind.STEP_FAILED)):
        assert (event.pod, event.unit) == ("default/web", WEB)
        assert "not now" in event.message
    assert events
    here.memory.refuse(WEB, None)
    assert (await here.run_round()).acted
    assert here.memory.signals[-1] == (WEB, signal.SIGKILL)
    assert not here.records
    assert len(here.texts(Kind.POD_TERMINATING)) == 1


async def test_a_repeated_failure_is_not_settled(here):
    here.memory.refuse(WEB, JobFailed("not now", result="failed"))
    here.drop("web")
    await here.run_round()
    await until(lambda: not here.context.terminating.in_progress)
    assert not (await here.run_round()).is_settled


async def test_a_stopping_agent_does_not_wait_for_pods(here):
    await terminate(here)
    await here.terminations.close()
    assert not here.context.terminating.in_progress
    assert WEB in await here.slices()


async def test_a_pod_stopped_during_an_assessment_is_not_drift(here, monkeypatch):
    """The assessment of the round is outdated when it is remembered."""
    here.memory.set_tasks(WEB, 0)

    async def stop(_):
        await here.memory.stop(WEB)
        here.reconciler.forget("default/web", WEB)

    monkeypatch.setattr(here.reconciler, "restore_overwritten", stop)
    await here.run_round()
    monkeypatch.undo()
    await here.run_round()
    assert here.reported(Kind.DRIFT_REPAIRED, *POD_STEPS) == [("pod-applied", "default/web")]
