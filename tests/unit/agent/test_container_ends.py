"""The ends of containers without a parent, as the agent observes them."""

import os

import pytest

from podslice.agent.container_ends import ContainerEnds
from podslice.agent.oomd_kills import OomdMonitor
from podslice.model.event import Kind
from podslice.model.unit import TransientUnit
from podslice.reconcile.converge import apply
from podslice.reconcile.request import Request
from podslice.store import histories
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import Oomd, make_context, reassess, write_group
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
        self.oomd = OomdMonitor(self.context)
        self.ends = ContainerEnds(self.context, self.oomd)

    async def begin(self):
        await apply(self.context.world, Request(candidates=decisions(burstable("web"))))
        self.kills(0)
        await self.start(START)

    async def start(self, started_usec):
        properties = {"PIDs": (7,), "Slice": WEB}
        await self.memory.start(TransientUnit(name=SCOPE, properties=properties))
        self.store.save_start("web", "main", started_usec)
        await self.follow()

    @property
    def directory(self):
        """Return the directory of the container's control group."""
        group = self.context.assessment.observed.units[SCOPE].control_group
        return self.context.world.cgroups.directory(group)

    async def open(self):
        """Create the control group, as systemd does, and follow it."""
        self.directory.mkdir(parents=True)
        await self.follow()

    def kills(self, count):
        write_group(self.context, WEB, memory_events=f"low 0\noom_kill {count}")

    async def follow(self):
        await reassess(self.context)
        self.oomd.follow()
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
    histories.save_observed_end(path, "oom-kill")
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


@pytest.fixture
async def killed(node, monkeypatch):
    """A node whose container systemd-oomd has killed; systemd has removed its control group."""
    oomd = Oomd(monkeypatch)
    await node.open()
    oomd.kill(node.directory)
    node.directory.rmdir()
    yield node
    node.oomd.close()


async def test_a_kill_by_systemd_oomd_is_reported_once(killed):
    await killed.follow()
    await killed.follow()
    (event,) = killed.context.events.journal.of(Kind.POD_OOMD_KILL)
    assert (event.pod, event.unit, event.fields) == ("default/web", SCOPE, {"CONTAINER": "main"})
    assert event.message == "systemd-oomd killed container main of pod default/web"
    assert killed.context.counters.oomd_kills == 1


@pytest.mark.parametrize("rounds", [0, 1])
async def test_systemd_oomd_is_in_the_recorded_end(killed, rounds):
    for _ in range(rounds):
        await killed.follow()
    await killed.end()
    assert (killed.last.result, killed.last.is_oom, killed.last.is_oomd) == (
        "oomd-kill",
        False,
        True,
    )


@pytest.mark.parametrize(
    ("recorded", "result"),
    [("signal", "oomd-kill"), ("oom-kill", "oomd-kill"), ("success", "success")],
)
async def test_a_recorded_end_gets_its_reason(killed, recorded, result):
    path = killed.store.end_path("web", "main", START)
    status = {"EXIT_CODE": "killed", "EXIT_STATUS": "KILL"}
    histories.save_end(path, {"SERVICE_RESULT": recorded, **status})
    os.utime(path, ns=(0, (START + 7) * 1000))
    await killed.end()
    last = killed.last
    assert (last.result, last.is_oom, last.signal) == (result, False, "SIGKILL")
    assert last.ended_usec == START + 7


async def test_the_next_run_of_the_container_was_not_killed(killed):
    await killed.follow()
    await killed.open()
    await killed.end()
    assert killed.last.result == "unknown"
    assert len(killed.context.events.journal.of(Kind.POD_OOMD_KILL)) == 1


async def test_kills_before_the_agent_are_not_reported(node, monkeypatch):
    oomd = Oomd(monkeypatch)
    node.directory.mkdir(parents=True)
    oomd.kill(node.directory, b"3")
    await node.follow()
    await node.follow()
    assert not node.context.events.journal.of(Kind.POD_OOMD_KILL)
    node.oomd.close()


async def test_descriptors_are_left_for_the_rest_of_the_agent(node, monkeypatch):
    oomd = Oomd(monkeypatch)
    monkeypatch.setattr("resource.getrlimit", lambda _: (1, 1))
    node.oomd = OomdMonitor(node.context)
    await node.open()
    oomd.kill(node.directory)
    await node.follow()
    assert not node.context.events.journal.of(Kind.POD_OOMD_KILL)


async def test_a_removed_pod_is_followed_no_longer(killed):
    killed.context.assessment = None
    killed.oomd.follow()
    assert not killed.context.events.journal.of(Kind.POD_OOMD_KILL)
    killed.oomd.close()
    await killed.follow()
    assert not killed.context.events.journal.of(Kind.POD_OOMD_KILL)
