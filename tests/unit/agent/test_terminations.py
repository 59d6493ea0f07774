import signal

import pytest

from podslice.errors import JobFailed
from podslice.model.event import Kind
from tests.unit.agent.agents import until
from tests.unit.agent.kept import DEEDS, WEB, Node


@pytest.fixture
async def here(tmp_path):
    """A node whose pod takes no notice of a signal to end; it has 30 s."""
    node = Node(tmp_path)
    node.put("web", {"cpu": "500m", "memory": "256Mi"})
    await node.settle()
    node.memory.set_tasks(WEB, 3)
    node.memory.make_stubborn(WEB)
    yield node
    await node.terminations.close()


async def go(node):
    """Its manifest goes, and it is asked to end."""
    node.drop("web")
    taken = await node.take()
    await until(lambda: node.memory.calls["stop"])
    return taken


async def end(node):
    """It ends by itself."""
    node.memory.set_tasks(WEB, 0)
    await until(lambda: not node.context.terminating.in_progress)


# Nobody waits.


async def test_while_a_pod_ends_others_come_and_the_lock_is_free(here):
    taken = await go(here)
    assert (taken.acted, taken.is_settled) == (False, True)
    lock = here.context.world.store.try_lock()
    assert lock is not None
    with lock:
        pass
    here.put("late")
    assert (await here.take()).is_settled
    assert here.records == {"web", "late"}
    assert WEB in await here.there()
    assert here.told(Kind.POD_TERMINATING, *DEEDS) == [
        ("pod-terminating", "default/web"),
        ("pod-applied", "default/late"),
    ]
    here.context.publish()
    assert here.context.world.store.agent().terminating == ("default/web",)
    assert here.texts(Kind.POD_TERMINATING) == [
        "stopping 3 processes of pod default/web, up to 30 s"
    ]


async def test_it_is_asked_to_end_once(here):
    await go(here)
    for _ in range(3):
        assert not (await here.take()).acted
    assert here.memory.calls["stop"] == 1


async def test_its_record_goes_when_it_has_gone(here):
    await go(here)
    await end(here)
    assert here.told(*DEEDS) == [("pod-removed", "default/web")]
    taken = await here.take()
    assert taken.is_settled
    assert not here.records
    assert WEB not in await here.there()
    assert here.told(*DEEDS) == [("pod-removed", "default/web")]


async def test_it_counts_until_it_has_gone(here):
    here.put("web", {"cpu": "5"})
    await here.settle()
    await go(here)
    here.put("next", {"cpu": "5"})
    await here.take()
    assert here.told(Kind.POD_REFUSED) == [("pod-refused", "default/next")]
    await end(here)
    await here.take()
    assert here.records == {"next"}


async def test_pods_in_which_nothing_runs_go_at_once(here):
    here.memory.set_tasks(WEB, 0)
    here.drop("web")
    assert (await here.take()).acted
    assert not here.records
    assert not here.texts(Kind.POD_TERMINATING)


# Who comes back.


async def test_a_pod_that_is_wanted_again_comes_when_it_has_ended(here):
    await go(here)
    here.put("web", {"cpu": "500m", "memory": "128Mi"})
    taken = await here.take()
    assert (taken.acted, taken.is_settled) == (False, True)
    assert (await here.there())[WEB]["MemoryLow"] == 2**28
    await end(here)
    await here.take()
    assert (await here.there())[WEB]["MemoryLow"] == 2**27
    assert here.told(Kind.DRIFT_REPAIRED, *DEEDS) == [
        ("pod-removed", "default/web"),
        ("pod-applied", "default/web"),
    ]


async def test_it_then_has_its_time_once_more(here):
    await go(here)
    here.put("web", {"cpu": "500m", "memory": "256Mi"})
    await end(here)
    await here.take()
    here.memory.set_tasks(WEB, 1)
    here.memory.make_stubborn(WEB)
    here.drop("web")
    assert not (await here.take()).acted
    assert len(here.texts(Kind.POD_TERMINATING)) == 2


async def test_another_pod_of_its_name_comes_when_it_has_ended(here):
    here.put("web", {"cpu": "500m"}, uid="other")
    taken = await here.take()
    assert (taken.acted, taken.is_settled) == (False, True)
    assert set(await here.there()) == {WEB}
    await end(here)
    await here.settle()
    assert set(await here.there()) == {"kubepods-burstable-podother.slice"}


# Evicted pods.


async def test_an_evicted_pod_stays_marked_while_it_ends(here):
    decision = here.context.assessment.desired.pods[0]
    stopping = here.terminations.start(
        decision, here.context.assessment, why="it is evicted", grace_sec=30, is_removal=True
    )
    here.mark("web")
    assert not (await here.take()).acted
    assert here.records == {"web"}
    here.memory.set_tasks(WEB, 0)
    assert await stopping
    assert (await here.take()).is_settled
    assert not here.records
    assert [mark.pod for mark in here.context.world.store.load().evicted] == ["default/web"]


# What goes wrong.


async def test_what_is_left_after_its_time_is_killed_by_the_round(here):
    here.memory.refuse(WEB, JobFailed("not now", result="failed"))
    here.drop("web")
    await here.take()
    await until(lambda: not here.context.terminating.in_progress)
    (event,) = here.context.events.journal.of(Kind.STEP_FAILED)
    assert (event.pod, event.unit) == ("default/web", WEB)
    assert "not now" in event.message
    here.memory.refuse(WEB, None)
    assert (await here.take()).acted
    assert here.memory.signals[-1] == (WEB, signal.SIGKILL)
    assert not here.records
    assert len(here.texts(Kind.POD_TERMINATING)) == 1


async def test_what_fails_again_is_not_settled(here):
    here.memory.refuse(WEB, JobFailed("not now", result="failed"))
    here.drop("web")
    await here.take()
    await until(lambda: not here.context.terminating.in_progress)
    assert not (await here.take()).is_settled


async def test_at_the_agents_end_nobody_is_waited_for(here):
    await go(here)
    await here.terminations.close()
    assert not here.context.terminating.in_progress
    assert WEB in await here.there()


async def test_what_ends_while_a_round_looks_is_no_drift(here, monkeypatch):
    """What the round has seen is not so any more when it is remembered."""
    here.memory.set_tasks(WEB, 0)

    async def stop(_):
        await here.memory.stop(WEB)
        here.reconciler.forget("default/web", WEB)

    monkeypatch.setattr(here.reconciler, "restore_overwritten", stop)
    await here.take()
    monkeypatch.undo()
    await here.take()
    assert here.told(Kind.DRIFT_REPAIRED, *DEEDS) == [("pod-applied", "default/web")]
