import asyncio

import pytest

from podslice.agent.oom_kills import OomMonitor
from podslice.agent.terminations import Terminations
from podslice.errors import JobFailed
from podslice.model.config import OomPolicy
from podslice.model.event import Kind
from podslice.reconcile.converge import apply
from podslice.reconcile.request import Request
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.agents import look_again, make_context, until, write_group
from tests.unit.builders import burstable, config, decisions
from tests.unit.reconcile.test_guard import start_units_of_a_kubelet

WEB = "kubepods-burstable-podweb.slice"
SHOP = "kubepods-burstable-podshop.slice"


class Node:
    """Two pods, what the kernel counts of them, and who watches that."""

    def __init__(self, tmp_path, policy):
        self.memory = FakeSystemd()
        self.context = make_context(tmp_path, self.memory, by=config(oom_policy=policy))
        self.stopped = []
        self.terminations = Terminations(
            self.context, self.memory, lambda _, name: self.stopped.append(name)
        )
        self.oom = OomMonitor(self.context, self.terminations)

    async def begin(self):
        world = self.context.world
        await apply(world, Request(candidates=decisions(burstable("web"), burstable("shop"))))
        await look_again(self.context)
        self.kill(WEB, 3)
        self.oom.follow()

    def kill(self, name, count):
        """The kernel has killed so many in all."""
        write_group(self.context, name, memory_events=f"oom 9\noom_kill {count}")

    def check(self, *names):
        self.oom.check(set(names or (WEB, SHOP)))

    def told(self):
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
    """A node on which pods live and die as a whole."""
    node = Node(tmp_path, OomPolicy.POD)
    await node.begin()
    return node


async def test_what_was_killed_before_is_not_told(here):
    here.check()
    assert not here.told()


async def test_a_kill_is_told_of_its_pod(here):
    here.kill(WEB, 4)
    here.check()
    here.check()
    (event,) = here.told()
    assert (event.pod, event.unit, event.fields) == ("default/web", WEB, {"OOM_KILLS": "4"})
    assert "OOM-killed a process" in event.message
    assert here.context.counters.oom_kills == 1
    assert await here.is_up(WEB)


async def test_several_kills_are_told_at_once(here):
    here.kill(SHOP, 2)
    here.check(SHOP)
    (event,) = here.told()
    assert "OOM-killed 2 processes" in event.message
    assert here.context.counters.oom_kills == 2


async def test_only_those_are_looked_at_of_which_the_kernel_told(here):
    here.kill(WEB, 4)
    here.check(SHOP, "kubepods.slice")
    assert not here.told()


async def test_another_look_changes_no_count(here):
    here.kill(WEB, 4)
    here.oom.follow()
    here.check()
    assert len(here.told()) == 1


async def test_a_slice_that_was_made_anew_counts_from_nothing(here):
    here.kill(WEB, 1)
    here.check()
    (event,) = here.told()
    assert event.fields == {"OOM_KILLS": "1"}
    assert here.context.counters.oom_kills == 1


async def test_the_rest_of_a_pod_goes_with_it_where_that_is_wished_for(whole):
    whole.kill(WEB, 4)
    whole.check()
    await until(lambda: whole.stopped)
    assert whole.stopped == [WEB]
    assert not await whole.is_up(WEB)
    assert await whole.is_up(SHOP)
    assert "the other processes of the pod are stopped" in whole.told()[0].message


async def test_a_pod_that_is_being_stopped_is_not_stopped_twice(whole):
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


async def test_a_pod_that_cannot_be_stopped_is_told(whole):
    whole.memory.refuse(WEB, JobFailed("no", result="failed"))
    whole.kill(WEB, 4)
    whole.check()
    await until(lambda: whole.stopped)
    (event,) = whole.context.events.journal.of(Kind.STEP_FAILED)
    assert (event.pod, event.unit) == ("default/web", WEB)


async def test_with_the_agent_its_waiting_ends(whole):
    whole.memory.set_tasks(WEB, 2)
    whole.memory.make_stubborn(WEB)
    whole.kill(WEB, 4)
    whole.check()
    await asyncio.sleep(0.01)
    await whole.terminations.close()
    assert not whole.stopped


async def test_beside_a_kubelet_nothing_goes_with_a_process_that_was_killed(whole):
    await start_units_of_a_kubelet(whole.memory)
    await look_again(whole.context)
    whole.kill(WEB, 4)
    whole.check()
    (event,) = whole.told()
    assert event.message.endswith("of pod default/web")
    assert not whole.context.terminating.in_progress
    assert await whole.is_up(WEB)
