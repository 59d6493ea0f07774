"""Services of other programs in pods, as the agent finds and follows them."""

import asyncio

import pytest

from podslice.agent.container_ends import ServicesInPods
from podslice.model.event import Kind
from podslice.model.unit import Manager, UnitName
from podslice.reconcile.assess import Request
from podslice.store.adopted_services import AdoptedService, remove_drop_in, write_drop_in
from tests.fake_systemd import FakeSystemd
from tests.unit import builders
from tests.unit.agent.fakes import make_context, put, reassess, until, write_group
from tests.unit.builders import burstable, decisions
from tests.unit.converged import apply

WEB = "kubepods-burstable-podweb.slice"
DROP_IN = f"[X-Podslice]\nPod=default/web\nContainer=lg\n\n[Service]\nSlice={WEB}\n"
NGINX, CRON, LG = map(UnitName, ("nginx.service", "cron.service", "lg.service"))


class Node:
    """A pod without containers that run, and what follows the services in it."""

    def __init__(self, tmp_path):
        self.found = 0
        self.memory = FakeSystemd()
        self.manager = Manager(config_directory=str(tmp_path / "etc"))
        self.context = make_context(tmp_path, self.memory, manager=self.manager)
        self.services = ServicesInPods(self.context, self.memory, self._on_found)
        self.memory.on_change = self.services.notice

    def _on_found(self):
        self.found += 1

    async def follow(self):
        await reassess(self.context)
        await self.services.follow()
        return {each.unit.name: (each.pod, each.container) for each in self.services.services}

    async def observed(self):
        """Return how many observations a round needs."""
        before = self.memory.calls["observe"]
        await self.services.follow()
        return self.memory.calls["observe"] - before


@pytest.fixture
async def node(tmp_path):
    made = Node(tmp_path)
    await put(made.context, burstable("web"))
    await made.follow()
    running = asyncio.create_task(made.services.run())
    yield made
    running.cancel()


async def test_a_service_that_starts_in_a_pod_is_found(node):
    node.memory.provide(NGINX, Slice=WEB)
    node.memory.provide(CRON)
    node.memory.provide(UnitName("web-pod.service"), Slice=WEB)  # that of a podman pod
    node.memory.provide(UnitName("podslice-podweb-main.service"), Slice=WEB)
    for name in (NGINX, CRON, "web-pod.service", "podslice-podweb-main.service", "web.socket"):
        node.services.notice(UnitName(name))
    await until(lambda: node.found)
    assert await node.follow() == {NGINX: ("default/web", NGINX)}
    assert node.services.names == {NGINX}
    assert await node.observed() == 0
    node.services.notice(CRON)
    await asyncio.sleep(0)
    assert await node.observed() == 0
    node.services.notice(NGINX)
    assert await node.observed() == 2
    await node.memory.stop(NGINX)
    assert await node.follow() == {}


async def test_a_service_in_a_new_pod_is_found_by_its_control_group(node):
    node.services.notice(NGINX)
    node.memory.provide(NGINX, Slice="kubepods-burstable-podb.slice")
    for unit in ("nginx.service", "podslice-podb-main.service"):
        group = write_group(node.context, "kubepods-burstable-podb.slice", cpu_weight=1)
        builders.make_files(group / unit, {"cgroup.procs": "7\n"})
    await apply(node.context.world, Request(candidates=decisions(burstable("b"))))
    await node.follow()
    await until(lambda: node.found)
    assert await node.follow() == {NGINX: ("default/b", NGINX)}


async def test_an_adopted_service_is_followed_until_it_is_released(node):
    service = AdoptedService(unit=LG, pod="default/web", container="lg", slice=WEB, text=DROP_IN)
    node.memory.provide(LG)
    node.services.notice(LG)  # it runs elsewhere before
    await until(lambda: not node.services.may_have(LG))
    await node.memory.stop(LG)
    write_drop_in(service, node.manager)
    assert await node.follow() == {LG: ("default/web", "lg")}
    assert [each.unit.active_state for each in node.services.services] == ["inactive"]
    assert node.services.may_have(LG)
    remove_drop_in(LG, node.manager)
    assert await node.follow() == {}


async def test_services_that_cannot_be_observed_are_observed_again(node):
    node.memory.provide(NGINX, Slice=WEB)
    node.services.notice(NGINX)
    await until(lambda: node.found)
    node.memory.break_after(0)
    await node.services.follow()
    assert [str(each) for each in node.context.status.failures]
    assert await node.follow() == {NGINX: ("default/web", NGINX)}
    assert node.context.events.journal.of(Kind.AGENT_FAILED)
    assert not node.context.status.failures
