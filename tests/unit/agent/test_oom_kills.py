import asyncio

import pytest

from podslice.agent.oom_kills import OomMonitor
from podslice.agent.terminations import Terminations
from podslice.errors import JobFailed
from podslice.model.config import OomPolicy
from podslice.model.event import Kind
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context, put, reassess, until, write_group
from tests.unit.builders import burstable, config
from tests.unit.reconcile.test_guard import start_units_of_a_kubelet

WEB = "kubepods-burstable-podweb.slice"
SHOP = "kubepods-burstable-podshop.slice"


class Node:
    """Two pods with counters of the kernel, and their monitor."""

    def __init__(self, tmp_path, policy):
        self.memory = FakeSystemd()
        self.context = make_context(tmp_path, self.memory, by=config(oom_policy=policy))
        self.stopped = []
        self.terminations = Terminations(
            self.context, self.memory, lambda _, name: self.stopped.append(name)
        )
        self.oom = OomMonitor(self.context, self.terminations, lambda: None)

    async def begin(self):
        await put(self.context, burstable("web"), burstable("shop"))
        self.kill(WEB, 3)
        await self.oom.follow()

    def kill(self, name, count):
        """Set the total number of kills."""
        write_group(self.context, name, memory_events=f"oom 9\noom_kill {count}")

    def check(self, *names):
        self.oom.check(set(names or (WEB, SHOP)))

    def reported(self):
        return self.context.events.journal.of(Kind.POD_OOM)

    async def is_up(self, name):
        return bool(await self.memory.observe([name]))


@pytest.fixture
async def here(tmp_path):
    node = Node(tmp_path, OomPolicy.CONTAINER)
    await node.begin()
    return node


@pytest.fixture
async def whole(tmp_path):
    """A node with the policy that stops the whole pod."""
    node = Node(tmp_path, OomPolicy.POD)
    await node.begin()
    return node


async def test_earlier_kills_are_not_reported(here):
    here.check()
    assert not here.reported()


async def test_a_kill_is_reported_with_its_pod(here):
    here.kill(WEB, 4)
    here.check()
    here.check()
    (event,) = here.reported()
    assert (event.pod, event.unit, event.fields) == ("default/web", WEB, {"OOM_KILLS": "4"})
    assert "OOM-killed a process" in event.message
    assert here.context.counters.oom_kills == 1
    assert await here.is_up(WEB)


async def test_several_kills_are_reported_together(here):
    here.kill(SHOP, 2)
    here.check(SHOP)
    (event,) = here.reported()
    assert "OOM-killed 2 processes" in event.message
    assert here.context.counters.oom_kills == 2


async def test_only_pods_with_memory_events_are_checked(here):
    here.kill(WEB, 4)
    here.check(SHOP, "kubepods.slice")
    assert not here.reported()


async def test_another_assessment_changes_no_count(here):
    here.kill(WEB, 4)
    await here.oom.follow()
    here.check()
    assert len(here.reported()) == 1


async def test_a_new_slice_counts_from_zero(here):
    here.kill(WEB, 1)
    here.check()
    (event,) = here.reported()
    assert event.fields == {"OOM_KILLS": "1"}
    assert here.context.counters.oom_kills == 1


async def test_with_policy_pod_the_whole_pod_is_stopped(whole):
    whole.kill(WEB, 4)
    whole.check()
    await until(lambda: whole.stopped)
    assert whole.stopped == [WEB]
    assert not await whole.is_up(WEB)
    assert await whole.is_up(SHOP)
    assert "the other processes of the pod are stopped" in whole.reported()[0].message


async def test_a_terminating_pod_is_not_stopped_twice(whole):
    whole.memory.set_tasks(WEB, 2)
    whole.memory.make_stubborn(WEB)
    for count in (4, 5):
        whole.kill(WEB, count)
        whole.check()
        await asyncio.sleep(0.01)
    assert whole.memory.calls["stop"] == 1
    whole.memory.set_tasks(WEB, 0)
    await until(lambda: whole.stopped)
    assert whole.stopped == [WEB]


async def test_a_pod_that_cannot_be_stopped_is_reported(whole):
    whole.memory.refuse(WEB, JobFailed("no", result="failed"))
    whole.kill(WEB, 4)
    whole.check()
    await until(lambda: whole.stopped)
    (event,) = whole.context.events.journal.of(Kind.STEP_FAILED)
    assert (event.pod, event.unit) == ("default/web", WEB)


async def test_closing_does_not_wait_for_pods(whole):
    whole.memory.set_tasks(WEB, 2)
    whole.memory.make_stubborn(WEB)
    whole.kill(WEB, 4)
    whole.check()
    await asyncio.sleep(0.01)
    await whole.terminations.close()
    assert not whole.stopped


async def test_beside_a_kubelet_no_pod_is_stopped_after_a_kill(whole):
    await start_units_of_a_kubelet(whole.memory)
    await reassess(whole.context)
    whole.kill(WEB, 4)
    whole.check()
    (event,) = whole.reported()
    assert event.message.endswith("of pod default/web")
    assert not whole.context.terminating.in_progress
    assert await whole.is_up(WEB)
