"""The process of an agent that applies the pod levels of a kubelet."""

import asyncio
import json
import os
import signal

import pytest

from podslice.errors import HostError
from podslice.features.kubelet import agent as kubelet_daemon
from podslice.features.kubelet.agent import KubeletDaemon, KubeletSetup, level_routes
from podslice.features.kubelet.levels import LevelRecord
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import read_process
from podslice.model.event import Kind
from podslice.model.node_state import AgentState
from podslice.store import files as store_files
from podslice.store.store import Store
from tests.unit import builders
from tests.unit.agent.fakes import Events, until
from tests.unit.features.kubelet.followed import APPLIED, BEFORE, WEB, Kubelet

pytestmark = pytest.mark.usefixtures("allow_effects")  # signals go to the process itself


class Service:
    """An agent; it records what the service manager is notified of."""

    watchdog_sec = None

    def __init__(self, directory):
        self.directory = directory
        self.kubelet = Kubelet()
        self.events = Events()
        self.record = LevelRecord(directory / "run/kubelet")
        self.notifications = []
        self.task = None

    async def begin(self, **fields):
        setup = KubeletSetup(
            read=self.kubelet.read,
            refresh=self.kubelet.refresh,
            connect=self.connect,
            config=builders.config(sync_period_usec=3_600_000_000),
            directory=self.directory / "run/kubelet",
            journal=self.events,
            notifier=self,
            cgroups=CgroupFs(mount=self.directory),
            **fields,
        )
        self.daemon = KubeletDaemon(setup)
        self.task = asyncio.create_task(self.daemon.run())
        await until(lambda: self.notifications or self.task.done())

    def connect(self, on_change):
        self.kubelet.memory.on_change = on_change
        return self.kubelet.memory

    async def end(self):
        if self.task is not None and not self.task.done():
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(30):
                await self.task

    async def get(self, path):
        response = await level_routes(self.daemon.snapshot)[path]()
        return response.status, b"".join(response.body).decode()

    # The notifier.

    def ready(self, text):
        self.notifications.append(("ready", text))

    def status(self, text):
        self.notifications.append(("status", text))

    def stopping(self):
        self.notifications.append(("stopping",))


@pytest.fixture
async def service(tmp_path, monkeypatch):
    monkeypatch.setattr(kubelet_daemon, "QUIET_SEC", 0.01)
    made = Service(tmp_path)
    made.kubelet.put("web", memory="64Mi")
    await made.kubelet.start("web")
    yield made
    await made.end()


async def test_values_remain_when_the_agent_stops(service):
    await service.begin()
    assert service.notifications == [("ready", "pod levels: 1 applied, 0 left alone")]
    assert service.events.texts(Kind.AGENT_STARTED)
    await service.end()
    assert await service.kubelet.values() == {**BEFORE, **APPLIED}
    assert service.events.texts(Kind.AGENT_STOPPED) == ["the agent stops; values remain on 1 slice"]
    assert service.notifications[-1] == ("stopping",)


async def test_values_are_removed_when_an_agent_that_restores_stops(service):
    await service.begin(restores=True)
    assert await service.kubelet.values() == {**BEFORE, **APPLIED}
    await service.end()
    assert await service.kubelet.values() == BEFORE
    assert service.events.texts(Kind.AGENT_STOPPED) == ["the agent stops; no values remain"]


async def test_a_new_slice_is_followed_at_once(service):
    await service.begin()
    service.kubelet.put("shop", memory="64Mi")
    await service.kubelet.start("shop")
    shop = "kubepods-besteffort-podshop.slice"
    await until(lambda: shop in service.record.read())
    await until(lambda: service.notifications[-1][1] == "pod levels: 2 applied, 0 left alone")
    reads = service.kubelet.reads
    service.kubelet.memory.on_change("cri-containerd-0a.scope")
    service.kubelet.memory.on_change("user-1000.slice")
    service.kubelet.memory.on_change(None)  # a daemon-reload
    await until(lambda: service.kubelet.reads == reads + 1)


async def test_a_hangup_reads_the_configuration_again(service):
    await service.begin()
    service.kubelet.upgrade((1, 34))
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: service.kubelet.refreshes == 1)
    await until(lambda: service.notifications[-1][1] == "pod levels: 1 applied, 1 left alone")


async def test_a_failure_is_retried_and_shown(service):
    service.kubelet.refuse("connection refused")
    await service.begin()
    assert service.notifications[0] == (
        "ready",
        "pod levels: 0 applied, 0 left alone; connection refused",
    )
    assert await service.get("/healthz") == (503, "connection refused\n")
    assert service.events.texts(Kind.AGENT_FAILED) == ["connection refused"]
    service.kubelet.error = None
    await until(lambda: WEB in service.record.read())
    await until(lambda: len(service.notifications) == 2)
    assert await service.get("/healthz") == (200, "ok\n")


async def test_a_read_that_hangs_is_shown(service, monkeypatch):
    """It fails nothing, so that nothing else reports it."""
    monkeypatch.setattr(kubelet_daemon, "OVERDUE_SEC", 0.05)
    await service.begin()
    goes_on = service.kubelet.hang()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: service.daemon.snapshot().overdue)
        for path in ("/livez", "/healthz"):
            status, text = await service.get(path)
            assert status == 503
            assert text.startswith("the kubelet: a read has not ended after ")
        assert "podslice_problems 1.0" in (await service.get("/metrics"))[1].splitlines()
    finally:
        goes_on.set()
    await until(lambda: not service.daemon.snapshot().overdue)
    assert [await service.get(path) for path in ("/livez", "/healthz")] == [(200, "ok\n")] * 2


async def test_an_agent_without_its_kubelet_is_alive(service):
    """A restart does not help it."""
    service.kubelet.refuse("connection refused")
    await service.begin()
    assert (await service.get("/healthz"))[0] == 503
    assert await service.get("/livez") == (200, "ok\n")


async def test_the_endpoints(service):
    service.kubelet.put("later", memory="1Mi")
    await service.begin()
    _, text = await service.get("/pod-levels")
    assert json.loads(text) == {
        "applied": [{"pod": "default/web", "unit": WEB, "properties": APPLIED}],
        "left": [
            {
                "pod": "default/later",
                "unit": "kubepods-besteffort-podlater.slice",
                "property": None,
                "reason": "no-slice",
                "message": "the kubelet has no slice for it",
            }
        ],
    }
    _, text = await service.get("/metrics")
    lines = text.splitlines()
    assert "podslice_pod_levels_applied 1.0" in lines
    assert 'podslice_pod_levels_left{reason="no-slice"} 1.0' in lines
    assert 'podslice_pod_levels_left{reason="invalid"} 0.0' in lines
    assert 'podslice_events_total{kind="pod-level-applied"} 1.0' in lines
    value = 'podslice_pod_level_value{pod="default/web",property="MemoryMax"} 6.7108864e+07'
    assert value in lines


async def test_two_agents_do_not_run(service):
    """Not either where the first one is in a container, with process ids of its own."""
    held = store_files.try_lock(service.directory / "run/kubelet")
    await service.begin()
    with pytest.raises(HostError, match=r"already running on this host.*run/kubelet/lock"):
        await service.task
    assert await service.kubelet.values() == BEFORE
    store_files.release_lock(service.directory / "run/kubelet", held, is_needed=False)
    service.task = None
    await service.begin()
    assert await service.kubelet.values() == {**BEFORE, **APPLIED}


async def test_the_agent_of_the_hosts_pods_runs_beside_it(service):
    """The state and the socket are those of the other agent."""
    process = read_process(os.getpid())
    state = AgentState(pid=os.getpid(), started_ticks=process.started_ticks)
    store = Store(service.directory / "run")
    store.agent.save(state)
    path = service.directory / "run/kubelet/agent.sock"
    await service.begin(socket_path=path)
    assert path.is_socket()
    assert await service.kubelet.values() == {**BEFORE, **APPLIED}
    await service.end()
    assert store.agent.read() == state


async def test_nothing_remains_of_an_agent_that_has_set_nothing(service):
    service.kubelet.pods.clear()
    await service.begin()
    await service.end()
    assert not (service.directory / "run/kubelet").exists()
