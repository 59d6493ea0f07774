"""The ends of containers without a parent, as the agent observes them."""

import pytest

from podslice.agent.container_ends import ContainerEnds
from podslice.model.unit import TransientUnit
from podslice.reconcile.converge import apply
from podslice.reconcile.request import Request
from podslice.store import histories
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import make_context, reassess, write_group
from tests.unit.builders import burstable, decisions

WEB = "kubepods-burstable-podweb.slice"
SCOPE = "podslice-podweb-main.scope"
START = 1_700_000_000_000_000


class Node:
    """A pod with a running container."""

    def __init__(self, tmp_path):
        self.memory = FakeSystemd()
        self.context = make_context(tmp_path, self.memory)
        self.store = self.context.world.store
        self.ends = ContainerEnds(self.context)

    async def begin(self):
        await apply(self.context.world, Request(candidates=decisions(burstable("web"))))
        self.kills(0)
        await self.start(START)

    async def start(self, started_usec):
        properties = {"PIDs": (7,), "Slice": WEB}
        await self.memory.start(TransientUnit(name=SCOPE, properties=properties))
        self.store.save_start("web", "main", started_usec)
        await self.follow()

    def kills(self, count):
        write_group(self.context, WEB, memory_events=f"low 0\noom_kill {count}")

    async def follow(self):
        await reassess(self.context)
        self.ends.follow()

    async def end(self):
        await self.memory.stop(SCOPE)
        await self.follow()

    @property
    def last(self):
        return self.store.histories("web")["main"].last_exit


@pytest.fixture
async def node(tmp_path):
    made = Node(tmp_path)
    await made.begin()
    return made


@pytest.mark.parametrize(("kills", "result"), [(0, "unknown"), (2, "oom-kill")])
async def test_an_end_is_recorded_with_its_time(node, kills, result):
    assert node.last is None
    node.kills(kills)
    await node.end()
    assert (node.last.result, node.last.is_oom) == (result, kills > 0)
    assert (node.last.exit_code, node.last.signal) == (None, None)
    assert node.last.ended_usec > START
    await node.start(START + 1)
    assert node.store.histories("web")["main"].restarts == 1
    await node.end()
    assert (node.last.result, node.last.started_usec) == ("unknown", START + 1)


async def test_an_end_that_is_recorded_is_kept(node):
    path = node.store.end_path("web", "main", START)
    result = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}
    histories.save_end(path, result)
    await node.end()
    assert node.last.exit_code == 7
    histories.save_observed_end(path, is_oom=True)
    assert node.last.exit_code == 7


async def test_the_parent_of_a_command_may_be_later(node):
    await node.end()
    result = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}
    histories.save_end(node.store.end_path("web", "main", START), result)
    assert node.last.exit_code == 7


async def test_containers_of_unknown_starts_and_removed_pods_are_ignored(node):
    node.store.remove("web")
    await node.end()
    assert node.store.histories("web") == {}
    await node.memory.stop(WEB)
    await node.follow()
    assert not (node.store.root / "containers/web").exists()
