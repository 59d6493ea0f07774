"""The ends of containers without a parent, as the agent observes them."""

import os
from types import SimpleNamespace

import pytest

from podslice.agent.container_ends import ContainerEnds
from podslice.agent.oom_kills import OomdMonitor
from podslice.model.container_exit import ContainerExit
from podslice.model.event import Kind
from podslice.model.unit import TransientUnit, UnitName
from podslice.reconcile.manual_changes import finish, record
from podslice.store import histories
from podslice.usage.location import observe_placed
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import Oomd, make_context, put, reassess, write_group
from tests.unit.builders import burstable

WEB = "kubepods-burstable-podweb.slice"
SCOPE = "podslice-podweb-main.scope"
SERVICE = "podslice-podweb-main.service"
START = 1_700_000_000_000_000


class Node:
    """A pod with a running container."""

    def __init__(self, tmp_path):
        self.memory = FakeSystemd()
        self.context = make_context(tmp_path, self.memory)
        self.store = self.context.world.store
        self.oomd = OomdMonitor(self.context)
        self.others = SimpleNamespace(services=())
        self.ends = ContainerEnds(self.context, self.oomd, self.others)
        self.memory.on_exit = self._on_exit

    def _on_exit(self, name, last):
        self.ends.notice_exit(name, last)

    async def begin(self):
        await put(self.context, burstable("web"))
        self.kills(0)
        await self.start(START)

    async def start(self, started_usec):
        properties = {"PIDs": (7,), "Slice": WEB}
        await self.memory.start(TransientUnit(name=SCOPE, properties=properties))
        self.store.histories.save_start("web", "main", started_usec)
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
        self.ends.begin()
        await reassess(self.context)
        await self.oomd.follow()
        await self.ends.follow()

    async def end(self):
        await self.memory.stop(SCOPE)
        await self.follow()

    @property
    def last(self):
        return self.store.histories.read("web")["main"].last_exit


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
    assert node.store.histories.read("web")["main"].restarts == 1
    await node.end()
    assert (node.last.result, node.last.started_usec) == ("unknown", START + 1)


async def test_an_end_that_is_recorded_is_kept(node):
    path = node.store.histories.end_path("web", "main", START)
    result = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}
    histories.save_end(path, result)
    await node.end()
    assert node.last.exit_code == 7
    histories.save_observed_end(path, "oom-kill")
    assert node.last.exit_code == 7


async def test_the_parent_of_a_command_may_be_later(node):
    await node.end()
    result = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}
    histories.save_end(node.store.histories.end_path("web", "main", START), result)
    assert node.last.exit_code == 7


async def test_containers_of_unknown_starts_and_removed_pods_are_ignored(node):
    node.store.remove("web")
    await node.end()
    assert node.store.histories.read("web") == {}
    await node.memory.stop(WEB)
    await node.follow()
    assert not (node.store.root / "containers/web").exists()


# Failures and restarts, as events.

FAILURES = (Kind.CONTAINER_FAILED, Kind.CONTAINER_OOM_KILLED, Kind.CONTAINER_RESTARTED)


def reported(node):
    events = node.context.events.journal.of(*FAILURES)
    return [(each.kind, each.message, each.unit, each.fields) for each in events]


@pytest.mark.parametrize(
    ("end", "kind", "text", "fields"),
    [
        (
            *("exit-code exited 7", Kind.CONTAINER_FAILED, "has failed: exit code 7"),
            {"RESULT": "exit-code", "EXIT_STATUS": "7"},
        ),
        (
            *("core-dump dumped SEGV", Kind.CONTAINER_FAILED, "has failed: SIGSEGV"),
            {"RESULT": "core-dump", "EXIT_STATUS": "SIGSEGV"},
        ),
        (
            *("oom-kill killed KILL", Kind.CONTAINER_OOM_KILLED),
            "was killed for lack of memory: an OOM kill",
            {"RESULT": "oom-kill", "EXIT_STATUS": "SIGKILL"},
        ),
        ("timeout", Kind.CONTAINER_FAILED, "has failed: timeout", {"RESULT": "timeout"}),
        ("success exited 0", None, "", {}),
        ("success killed TERM", None, "", {}),
    ],
)
async def test_a_container_that_has_failed_is_reported_once(node, end, kind, text, fields):
    variables = dict(zip(histories.VARIABLES, end.split(), strict=False))
    histories.save_end(node.store.histories.end_path("web", "main", START), variables)
    await node.end()
    await node.follow()
    message = f"container main of pod default/web {text}"
    expected = (kind, message, SERVICE, {"CONTAINER": "main", **fields})
    assert reported(node) == [expected] * (kind is not None)


CRASH = {"SERVICE_RESULT": "exit-code", "EXIT_CODE": "exited", "EXIT_STATUS": "7"}


async def test_a_container_that_ends_before_it_is_observed_is_reported(node):
    await node.end()

    def run(started_usec):
        histories.save_end(node.store.histories.end_path("web", "main", started_usec), CRASH)
        node.ends.notice(UnitName(SERVICE))

    run(START + 1)
    await node.follow()
    assert reported(node) == []  # `run` records the start only after its end
    node.store.histories.save_start("web", "main", START + 1)
    await node.follow()
    await node.follow()
    assert len(reported(node)) == 1
    node.store.histories.save_start("web", "main", START + 2)
    run(START + 2)
    await node.follow()
    node.ends.notice(UnitName(SERVICE))
    await node.follow()
    assert len(reported(node)) == 2


async def test_a_container_that_starts_after_an_assessment_has_not_ended(node):
    await node.end()
    await reassess(node.context)
    await node.memory.start(TransientUnit(name=SCOPE, properties={"PIDs": (8,), "Slice": WEB}))
    node.store.histories.save_start("web", "main", START + 1)
    node.ends.notice(UnitName(SCOPE))
    await node.ends.follow()
    assert not node.store.histories.read("web")["main"].has_ended
    histories.save_end(node.store.histories.end_path("web", "main", START + 1), CRASH)
    await node.end()
    assert len(reported(node)) == 1


async def test_ends_before_the_agent_are_not_reported(node):
    histories.save_end(node.store.histories.end_path("web", "main", START), CRASH)
    await node.memory.stop(SCOPE)
    node.ends = ContainerEnds(node.context, node.oomd, node.others)
    for _ in range(2):
        node.ends.notice(UnitName(SERVICE))
        await node.follow()
    assert reported(node) == []


async def test_an_adopted_process_that_the_kernel_kills_is_reported(node):
    node.kills(1)
    await node.end()
    assert [each[0] for each in reported(node)] == [Kind.CONTAINER_OOM_KILLED]


async def test_a_failure_in_the_foreground_is_reported_to_its_caller_only(node):
    end = {**CRASH, "PODSLICE_ATTENDED": "yes"}
    histories.save_end(node.store.histories.end_path("web", "main", START), end)
    await node.end()
    assert reported(node) == []


async def test_the_end_of_a_pod_is_not_the_failure_of_its_containers(node):
    histories.save_end(node.store.histories.end_path("web", "main", START), CRASH)
    change = record(node.store, "delete", pods=["default/web"], units=[])
    await node.end()
    finish(node.store, change)
    assert reported(node) == []


def crash(code=1, ended_usec=START + 9, **fields):
    result = fields.pop("result", "exit-code")
    return ContainerExit(
        result=result, exit_code=code, started_usec=START, ended_usec=ended_usec, **fields
    )


@pytest.fixture
async def served(node):
    """The same with the container as a service that systemd keeps, as of a quadlet."""
    await node.end()
    node.memory.provide(UnitName(SERVICE), Slice=WEB)
    await node.follow()
    return node


async def test_restarts_are_reported_with_their_reason_and_count(served):
    served.memory.crash(UnitName(SERVICE), 0, crash())
    await served.follow()
    assert reported(served) == []  # systemd has not started it again
    served.memory.crash(UnitName(SERVICE), 1, crash())
    await served.follow()
    served.memory.run_again(UnitName(SERVICE), 2)
    await served.follow()
    await served.follow()
    text = "container main of pod default/web was restarted"
    assert reported(served) == [
        (
            *(Kind.CONTAINER_RESTARTED, f"{text} after exit code 1: 1 restart", SERVICE),
            {"CONTAINER": "main", "RESTARTS": "1", "RESULT": "exit-code", "EXIT_STATUS": "1"},
        ),
        (
            *(Kind.CONTAINER_RESTARTED, f"{text}: 2 restarts in a row", SERVICE),
            {"CONTAINER": "main", "RESTARTS": "2"},
        ),
    ]
    served.memory.run_again(UnitName(SERVICE), 0)  # an administrator has started it
    await served.follow()
    assert len(reported(served)) == 2


async def test_a_failed_service_is_reported_once_for_each_failure(served):
    for ended_usec in (START + 1, START + 2):
        served.memory.fail(UnitName(SERVICE), crash(3, ended_usec))
        await served.follow()
        await served.follow()
    text = "container main of pod default/web has failed: exit code 3"
    fields = {"CONTAINER": "main", "RESULT": "exit-code", "EXIT_STATUS": "3"}
    assert reported(served) == [(Kind.CONTAINER_FAILED, text, SERVICE, fields)] * 2


async def test_an_oom_kill_before_a_restart_is_reported(served):
    last = crash(None, result="oom-kill", signal="SIGKILL", is_oom=True)
    served.memory.crash(UnitName(SERVICE), 1, last)
    await served.follow()
    kinds = [each[0] for each in reported(served)]
    assert kinds == [Kind.CONTAINER_OOM_KILLED, Kind.CONTAINER_RESTARTED]


async def test_failures_before_the_agent_are_not_reported(node):
    await node.end()
    node.memory.provide(UnitName(SERVICE), Slice=WEB)
    node.memory.fail(UnitName(SERVICE), crash())
    node.ends = ContainerEnds(node.context, node.oomd, node.others)
    await node.follow()
    await node.follow()
    assert reported(node) == []


NGINX = UnitName("nginx.service")


class Placed:
    """A service of another program in the pod."""

    def __init__(self, node):
        self.node, self.memory = node, node.memory
        self.memory.provide(NGINX, Slice=WEB)

    async def follow(self):
        pods = self.node.context.assessment.desired.pods
        await reassess(self.node.context)
        self.node.ends.begin()
        self.node.others.services = await observe_placed(self.memory, pods, [NGINX])
        await self.node.ends.follow()

    @property
    def messages(self):
        texts = [each[1] for each in reported(self.node)]
        return [text.removeprefix("container nginx.service of pod default/web ") for text in texts]


@pytest.fixture
async def placed(node):
    made = Placed(node)
    await made.follow()
    return made


async def test_a_restart_that_is_over_has_its_reason(placed):
    placed.memory.crash(NGINX, 0, crash(7))
    placed.memory.run_again(NGINX, 1)
    await placed.follow()
    placed.memory.crash(NGINX, 1, crash(8, START + 10))
    await placed.follow()
    placed.memory.run_again(NGINX, 2)
    await placed.follow()
    placed.memory.run_again(NGINX, 3)
    await placed.follow()
    assert placed.messages == [
        "was restarted after exit code 7: 1 restart",
        "was restarted after exit code 8: 2 restarts in a row",
        "was restarted: 3 restarts in a row",
    ]


async def test_oom_kills_before_restarts_that_are_over_are_reported(placed):
    for number in (1, 2):
        fields = {"result": "oom-kill", "signal": "SIGKILL", "is_oom": True}
        for _ in range(2):  # systemd sends several signals for an exit
            placed.memory.crash(NGINX, number - 1, crash(None, START + number, **fields))
        placed.memory.run_again(NGINX, number)
    await placed.follow()
    await placed.follow()
    kill = "was killed for lack of memory: an OOM kill"
    assert placed.messages == [
        *(kill, kill),
        "was restarted after an OOM kill: 2 restarts in a row",
    ]


async def test_an_exit_of_podslice_run_is_reported_by_its_record(node):
    await node.end()
    last = crash(None, result="oom-kill", signal="SIGKILL", is_oom=True)
    properties = {"ExecStart": (("/bin/sh", ("sh",), False),), "Slice": WEB}
    for _ in range(2):  # started again before the agent looks
        await node.memory.start(TransientUnit(name=UnitName(SERVICE), properties=properties))
        node.store.histories.save_start("web", "main", START + 1)
        await node.follow()
        node.ends.notice_exit(UnitName(SERVICE), last)
        await node.follow()
        await node.memory.stop(UnitName(SERVICE))
    assert reported(node) == []


async def test_a_failed_service_of_another_program_is_reported(placed):
    placed.memory.fail(NGINX, crash(9))
    await placed.follow()
    await placed.follow()
    assert placed.messages == ["has failed: exit code 9"]
    assert [each.unit for each in placed.node.context.events.journal.of(*FAILURES)] == [NGINX]


async def test_a_service_that_is_found_in_the_pod_later_is_reported(node):
    """Rounds go on until the service is found there."""
    made = Placed(node)
    made.memory.fail(NGINX, crash(9))
    await node.follow()
    await made.follow()
    await made.follow()
    assert made.messages == ["has failed: exit code 9"]


async def test_a_service_that_is_found_after_a_restart_is_reported(node):
    made = Placed(node)
    made.memory.crash(NGINX, 0, crash(9))
    made.memory.run_again(NGINX, 1)
    await node.follow()
    await made.follow()
    await made.follow()
    assert made.messages == ["was restarted after exit code 9: 1 restart"]


async def test_a_service_that_failed_before_it_was_in_the_pod_is_not_reported(node):
    made = Placed(node)
    made.memory.on_exit = lambda _name, _last: None  # without an agent
    made.memory.fail(NGINX, crash(9))
    await made.follow()
    await made.follow()
    assert made.messages == []


async def test_exits_of_services_elsewhere_do_not_pile_up(node):
    for number in range(1002):
        last = crash(None, result="oom-kill", signal="SIGKILL", is_oom=True)
        node.ends.notice_exit(UnitName(f"run-{number}.service"), last)
    await node.follow()
    made = Placed(node)
    made.memory.provide(UnitName("run-7.service"), Slice=WEB)
    pods = node.context.assessment.desired.pods
    node.others.services = await observe_placed(made.memory, pods, ["run-7.service"])
    await node.ends.follow()
    assert reported(node) == []


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
    path = killed.store.histories.end_path("web", "main", START)
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
    await killed.oomd.follow()
    assert not killed.context.events.journal.of(Kind.POD_OOMD_KILL)
    killed.oomd.close()
    await killed.follow()
    assert not killed.context.events.journal.of(Kind.POD_OOMD_KILL)
