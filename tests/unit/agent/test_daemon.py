import asyncio
import os
import shutil
import signal
from dataclasses import replace

import pytest

from podslice.agent import daemon, service_process
from podslice.agent.daemon import Daemon, Setup, UnitFilter
from podslice.agent.reconciler import Reconciler
from podslice.agent.watcher import Watcher
from podslice.errors import HostError, InputError, JobFailed, Problem
from podslice.kernel.proc import read_process
from podslice.model.config import Origin, Threshold, Validate, WeightMapping
from podslice.model.container_exit import ContainerExit
from podslice.model.event import Kind
from podslice.model.node_state import AgentState, Condition
from podslice.model.unit import UnitName
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit import builders
from tests.unit.agent.fakes import Events, Host, make_context, reassess, until, use_memory
from tests.unit.builders import manifest

pytestmark = pytest.mark.usefixtures("allow_effects")  # signals go to the process itself

MI = 2**20 * 1000


class Node:
    """A host with an agent; it records what the service manager is notified of."""

    def __init__(self, tmp_path):
        self.root = tmp_path
        self.host = Host(tmp_path / "host")
        self.directory = tmp_path / "manifests"
        self.directory.mkdir()
        self.memory = FakeSystemd()
        self.events = Events()
        self.config = builders.config(manifests=(str(self.directory),), sync_period_usec=50_000)
        self.origin = Origin()
        self.store = Store(self.root / "run")
        self.error = None
        self.loads = 0
        self.notifications = []
        self.task = None

    def load(self):
        self.loads += 1
        if self.error is not None:
            raise self.error
        return self.world

    @property
    def world(self):
        world = builders.world(self.root, None, by=self.config, origin=self.origin)
        return replace(world, store=self.store)

    def connect(self, on_change, on_exit):
        self.memory.on_change, self.memory.on_exit = on_change, on_exit
        return self.memory

    async def begin(self):
        setup = Setup(
            load=self.load,
            connect=self.connect,
            journal=self.events,
            root=self.host.root,
            notifier=self,
        )
        self.daemon = Daemon(setup)
        self.task = asyncio.create_task(self.daemon.run())
        await until(lambda: self.notifications or self.task.done())

    async def end(self):
        if self.task is not None and not self.task.done():
            self.signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                await self.task

    @property
    def result(self):
        return self.task.exception()

    @staticmethod
    def signal(number):
        os.kill(os.getpid(), number)

    def put(self, name, requests=None):
        (self.directory / f"{name}.yaml").write_text(manifest(name, requests))

    def records(self):
        return {pod.name for pod in self.store.load().pods}

    # The notifier.

    watchdog_sec = None

    def ready(self, text):
        self.notifications.append(("ready", text))

    def status(self, text):
        self.notifications.append(("status", text))

    def reloading(self):
        self.notifications.append(("reloading",))

    def stopping(self):
        self.notifications.append(("stopping",))

    def watchdog(self):
        self.notifications.append(("watchdog",))


@pytest.fixture
async def node(tmp_path):
    made = Node(tmp_path)
    yield made
    await made.end()


async def test_the_agent_is_ready_once_pods_have_slices(node):
    node.put("web")
    await node.begin()
    assert node.notifications[0] == ("ready", "1 pod")
    assert node.records() == {"web"}
    assert node.events.of(Kind.AGENT_STARTED)


async def test_manifests_are_followed(node):
    await node.begin()
    assert node.notifications[0] == ("ready", "0 pods")
    node.put("web")
    node.put("shop")
    await until(lambda: node.records() == {"web", "shop"})
    await until(lambda: node.notifications[-1] == ("status", "2 pods"))
    (node.directory / "web.yaml").unlink()
    await until(lambda: node.records() == {"shop"})


@pytest.mark.parametrize("moment", [1, 2, 3])
async def test_a_service_that_fails_while_it_is_found_in_a_pod_is_reported(node, moment):
    """It fails after an observation, whose result is that it runs."""
    # only signals cause rounds
    node.config = replace(node.config, sync_period_usec=3600 * 10**6)
    node.put("web")
    await node.begin()
    name = UnitName("nginx.service")
    observe, count = node.memory.observe, 0
    last = ContainerExit(result="exit-code", exit_code=4, started_usec=1, ended_usec=2)

    async def observe_and_fail(patterns):
        nonlocal count
        found = await observe(patterns)
        if list(patterns) == [name]:
            count += 1
            if count == moment:
                node.memory.fail(name, last)
        return found

    node.memory.observe = observe_and_fail
    node.memory.provide(name, Slice="kubepods-besteffort-podweb.default.slice")
    node.memory.on_change(name)
    if moment == 3:
        await until(lambda: count == 2)
        node.memory.on_change(name)
    await until(lambda: node.events.of(Kind.CONTAINER_FAILED))
    (event,) = node.events.of(Kind.CONTAINER_FAILED)
    assert event.message == "container nginx.service of pod default/web has failed: exit code 4"


async def test_the_status_shows_problems(node):
    node.put("web")
    (node.directory / "other.yaml").write_text("[")
    await node.begin()
    assert node.notifications[0][1].startswith("1 pod; ")
    assert "other.yaml" in node.notifications[0][1]


async def test_sigterm_stops_the_agent_and_leaves_the_pods(node):
    node.put("web")
    await node.begin()
    await node.end()
    assert node.result is None
    assert node.records() == {"web"}
    assert await node.memory.observe(["kubepods*pod*"])
    assert node.store.agent.read() is None
    assert node.notifications[-1] == ("stopping",)
    assert node.events.all[-1].kind is Kind.AGENT_STOPPED


async def test_sigterm_stops_the_agent_during_a_long_call(node):
    hangs = asyncio.Event()

    async def start(_unit):
        hangs.set()
        await asyncio.sleep(3600)

    await node.begin()
    node.memory.start = start
    node.put("web")
    async with asyncio.timeout(30):
        await hangs.wait()
    await node.end()
    assert node.result is None
    with node.store.lock():
        pass  # it was released


async def test_a_second_agent_is_refused(node):
    process = read_process(1)
    node.store.agent.save(AgentState(pid=1, started_ticks=process.started_ticks))
    await node.begin()
    assert isinstance(node.result, HostError)
    assert "process 1" in str(node.result)
    assert node.store.agent.read().pid == 1


# The configuration.


async def reload(node):
    before = node.loads
    node.signal(signal.SIGHUP)
    await until(lambda: node.loads > before)
    await until(
        lambda: node.notifications[-1][0] == "ready" or node.notifications[-2][0] == "ready"
    )


async def test_a_reload_reads_the_configuration_again(node):
    node.put("web", {"cpu": "1"})
    await node.begin()
    (unit,) = await node.memory.observe(["kubepods*podb96bf486*", "kubepods-burstable-pod*"])
    node.config = replace(node.config, cpu_weight_mapping=WeightMapping.KUBELET)
    await reload(node)
    assert ("reloading",) in node.notifications
    await until(lambda: node.events.of(Kind.POD_CHANGED))
    (after,) = await node.memory.observe([unit.name])
    assert after.properties["CPUWeight"] != unit.properties["CPUWeight"]
    assert not node.events.of(Kind.DRIFT_REPAIRED)


async def test_a_reload_changes_what_an_unknown_field_is(node):
    node.put("web")
    await node.begin()
    assert node.records() == {"web"}
    typo = manifest("shop").replace('"name": "main"', '"name": "main", "resource": {}')
    (node.directory / "shop.yaml").write_text(typo)
    await until(lambda: "unknown field 'resource'" in node.notifications[-1][1])
    assert node.records() == {"web"}
    node.config = replace(node.config, validate=Validate.IGNORE)
    await reload(node)
    await until(lambda: node.records() == {"web", "shop"})


async def test_a_valid_configuration_is_recorded_as_the_last_one(node):
    node.put("web")
    await node.begin()
    settings = {"rules": "proposal"}
    node.origin = Origin(options=settings)
    await reload(node)
    assert node.store.options() == settings
    node.error = InputError(Problem(where="podslice.toml", message="no such key"))
    await reload(node)
    assert node.store.options() == settings


async def test_a_reload_changes_the_watched_directories(node):
    await node.begin()
    other = node.root / "other"
    other.mkdir()
    node.config = replace(node.config, manifests=(str(other),), sync_period_usec=3_600_000_000)
    await reload(node)
    node.put("late")
    (other / "web.yaml").write_text(manifest("web"))
    await until(lambda: node.records() == {"web"})


async def test_an_invalid_configuration_changes_nothing(node):
    node.put("web")
    await node.begin()
    node.error = InputError(Problem(where="podslice.toml", message="no such key"))
    await reload(node)
    await until(lambda: node.events.of(Kind.AGENT_FAILED))
    assert "no such key" in node.events.texts(Kind.AGENT_FAILED)[0]
    assert node.daemon.snapshot().problems
    node.put("shop")
    await until(lambda: node.records() == {"web", "shop"})
    node.error = None
    await reload(node)
    assert not node.daemon.snapshot().problems


async def test_a_configuration_without_access_to_the_records_is_refused(node):
    node.put("web")
    await node.begin()
    node.config = replace(node.config, cgroup_root="/other")
    before, node.store = node.store, Store(node.root / "run", cgroup_root="/other")
    await reload(node)
    await until(lambda: node.events.of(Kind.AGENT_FAILED))
    assert "the previous configuration stays in effect" in node.events.texts(Kind.AGENT_FAILED)[0]
    node.store = before
    node.put("shop")
    await until(lambda: node.records() == {"web", "shop"})


# Failures.


async def test_without_a_bus_the_agent_keeps_trying(node):
    node.memory.break_after(0)
    node.put("web")
    await node.begin()
    await until(lambda: node.records() == {"web"})
    await until(lambda: not node.daemon.snapshot().problems)
    assert len(node.events.of(Kind.AGENT_FAILED)) == 1


async def test_failed_steps_are_retried_with_increasing_delays(node):
    async def fail(unit):
        # systemd signals the failed job
        node.memory.on_change(unit.name)
        raise JobFailed("masked", result="failed")

    node.memory.start = fail
    node.put("web")
    await node.begin()
    await asyncio.sleep(1.5)
    rounds = sum(node.daemon.snapshot().counters.reconciles.counts)
    assert 3 <= rounds <= 25
    assert len(node.events.of(Kind.STEP_FAILED)) <= 3


async def test_an_internal_error_is_reported_and_stops_the_agent(node, monkeypatch):
    await node.begin()

    async def take(_rounds):
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Reconciler, "reconcile", take)
    node.put("web")
    await until(node.task.done)
    assert isinstance(node.result, ZeroDivisionError)
    assert "a mistake" in node.events.texts(Kind.AGENT_FAILED)[0]
    assert node.store.agent.read() is None


async def test_the_watchdog_is_notified_as_long_as_rounds_finish(node, monkeypatch):
    monkeypatch.setattr(Node, "watchdog_sec", 0.02)
    monkeypatch.setattr(service_process, "STUCK_SEC", 0.3)

    async def take(_rounds):
        await asyncio.sleep(3600)

    await node.begin()
    await until(lambda: ("watchdog",) in node.notifications)
    monkeypatch.setattr(Reconciler, "reconcile", take)
    await asyncio.sleep(0.6)
    node.notifications.clear()
    await asyncio.sleep(0.1)
    assert ("watchdog",) not in node.notifications


# Interaction of the parts.


async def test_pressure_at_the_start_prevents_admission(node):
    node.config = replace(
        node.config, eviction_hard={"memory.available": Threshold(amount=100 * MI)}
    )
    node.host.set(free_mib=50)
    node.put("batch")
    node.put("web", {"memory": "1Mi"})
    await node.begin()
    assert node.records() == {"web"}
    assert node.store.agent.read().conditions == (Condition.MEMORY,)


@pytest.fixture
def report_pressure(monkeypatch):
    """Return a function that reports pressure, as the kernel does."""
    opened = []

    class ObservedWatcher(Watcher):
        def __init__(self, manifests, events, **arguments):
            opened.append(events)
            super().__init__(manifests, events, **arguments)

    monkeypatch.setattr(daemon, "Watcher", ObservedWatcher)
    return lambda: [events.on_pressure() for events in opened]


async def test_an_evicted_pod_is_removed_and_can_be_readmitted(node, report_pressure):
    node.config = replace(
        node.config,
        eviction_hard={"memory.available": Threshold(amount=100 * MI)},
        eviction_pressure_transition_period_usec=1,
    )
    node.put("batch")
    await node.begin()
    (unit,) = await node.memory.observe(["kubepods-besteffort-pod*"])
    group = use_memory(node, unit.name, 300)
    node.host.set(free_mib=50)
    report_pressure()
    await until(lambda: node.events.of(Kind.POD_EVICTED))
    node.host.set(free_mib=1000)
    shutil.rmtree(group)
    await until(lambda: not node.records())
    assert not await node.memory.observe([unit.name])
    report_pressure()
    await until(lambda: not node.store.agent.read().conditions)
    node.store.unmark(node.events.of(Kind.POD_EVICTED)[0].fields["POD_UID"])
    # neither the record nor the event is always the first
    await until(lambda: node.events.of(Kind.POD_READMITTED))
    await until(lambda: node.records() == {"batch"})


async def test_the_snapshot_shows_pods_events_and_counters(node):
    node.put("web")
    await node.begin()
    snapshot = node.daemon.snapshot()
    assert [pod.pod.name for pod in snapshot.desired.pods] == ["web"]
    assert snapshot.events[Kind.POD_APPLIED] == 1
    assert snapshot.counters.reconciles.sum_sec > 0
    assert "memory.available" in snapshot.observe()


# The units that concern the agent.

ROOT = UnitName("kubepods.slice")


@pytest.mark.parametrize(
    ("name", "concerns"),
    [
        ("kubepods.slice", True),
        ("kubepods-burstable-podweb.slice", True),
        ("podslice-podweb-main.scope", True),
        ("run-podslice-volumes-web-cache.mount", True),
        ("system.slice", False),
        ("cron.service", False),
    ],
)
def test_units_of_pods_concern_the_agent(name, concerns):
    assert (UnitName(name) in UnitFilter(ROOT)) is concerns


async def test_the_root_and_reserved_slices_follow_the_assessment(tmp_path):
    assessment = await reassess(make_context(tmp_path, FakeSystemd()))
    units = UnitFilter(UnitName("before.slice"))
    reserved = replace(assessment.desired.units[0], name=UnitName("system.slice"), owned=False)
    desired = replace(assessment.desired, units=(*assessment.desired.units, reserved))
    units.update(replace(assessment, desired=desired))
    assert "system.slice" in units
    assert ROOT in units
    assert "before.slice" not in units
