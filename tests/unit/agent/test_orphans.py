import asyncio

import pytest

from podslice.agent.orphans import REMOVE_AFTER_SEC, REPORT_AFTER_SEC, OrphanCollector
from podslice.errors import JobFailed
from podslice.model.event import Kind
from podslice.model.unit import TransientUnit
from podslice.reconcile.world import Guard
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import (
    GUARD_CACHE_SEC,
    Clock,
    make_context,
    put,
    reassess,
    until,
    write_group,
)
from tests.unit.builders import burstable, config
from tests.unit.reconcile.test_guard import start_units_of_a_kubelet

STRAY = "kubepods-burstable-podstray.slice"
WEB = "kubepods-burstable-podweb.slice"


class Handle:
    """A timer that never fires."""

    def cancel(self):
        pass


class Node:
    """A node with a pod, an orphan, and a collector."""

    def __init__(self, tmp_path, *, collect):
        self.memory = FakeSystemd()
        self.clock = Clock()
        self.context = make_context(
            tmp_path,
            self.memory,
            by=config(collect_orphans=collect),
            guard=Guard(tmp_path / "host", now=self.clock),
        )
        client = self.context.world.client
        self.orphans = OrphanCollector(self.context, client, on_due=lambda: None, now=self.clock)

    async def begin(self):
        await put(self.context, burstable("web"))
        await self.memory.start(TransientUnit(name=STRAY, properties={}))
        await self.check()
        await self.check(REPORT_AFTER_SEC)

    async def check(self, after_sec=0.0):
        self.clock.advance(after_sec)
        await reassess(self.context)
        await self.orphans.follow()

    async def is_up(self, name):
        return bool(await self.memory.observe([name]))

    def events(self, kind):
        return self.context.events.journal.of(kind)


@pytest.fixture
async def here(tmp_path):
    """A node that only reports orphans."""
    node = Node(tmp_path, collect=False)
    await node.begin()
    yield node
    node.orphans.close()


@pytest.fixture
async def collecting(tmp_path):
    """A node that removes orphans."""
    node = Node(tmp_path, collect=True)
    await node.begin()
    yield node
    node.orphans.close()


async def test_an_orphan_is_reported_once_with_a_hint(here):
    await here.check(REMOVE_AFTER_SEC * 2)
    await here.check(REMOVE_AFTER_SEC * 2)
    (event,) = here.events(Kind.ORPHAN_FOUND)
    assert event.unit == STRAY
    assert "it has no processes" in event.message
    assert f"systemctl stop {STRAY}" in event.message
    assert here.context.counters.orphans == 1
    assert await here.is_up(STRAY)


async def test_its_processes_are_reported(tmp_path):
    node = Node(tmp_path, collect=False)
    write_group(node.context, STRAY, cgroup_procs="999999999")
    await node.begin()
    assert "1 process" in node.events(Kind.ORPHAN_FOUND)[0].message


async def test_a_new_orphan_of_the_same_name_is_reported_again(here):
    await here.memory.stop(STRAY)
    await here.check()
    assert here.context.counters.orphans == 0
    await here.memory.start(TransientUnit(name=STRAY, properties={}))
    await here.check()
    assert len(here.events(Kind.ORPHAN_FOUND)) == 1, "its creator may be about to fill it"
    await here.check(REPORT_AFTER_SEC)
    assert len(here.events(Kind.ORPHAN_FOUND)) == 2


async def test_only_the_orphan_is_removed_after_a_while(collecting):
    assert "it will be stopped in" in collecting.events(Kind.ORPHAN_FOUND)[0].message
    await collecting.check(REMOVE_AFTER_SEC / 2 - REPORT_AFTER_SEC)
    assert await collecting.is_up(STRAY)
    await collecting.check(REMOVE_AFTER_SEC / 2)
    await until(lambda: collecting.events(Kind.ORPHAN_REMOVED))
    assert not await collecting.is_up(STRAY)
    assert await collecting.is_up(WEB)


@pytest.mark.parametrize(
    ("collect", "dues"),
    [(False, [REPORT_AFTER_SEC]), (True, [REPORT_AFTER_SEC, REMOVE_AFTER_SEC - REPORT_AFTER_SEC])],
)
async def test_an_assessment_is_requested_when_due(tmp_path, monkeypatch, collect, dues):
    asked = []
    monkeypatch.setattr(
        asyncio.get_running_loop(), "call_later", lambda sec, call: asked.append(sec) or Handle()
    )
    node = Node(tmp_path, collect=collect)
    await node.begin()
    assert asked == dues


async def test_a_slice_recorded_for_a_pod_meanwhile_is_kept(collecting):
    collecting.context.world.store.save(burstable("stray"))
    collecting.clock.advance(REMOVE_AFTER_SEC)
    # without a new assessment
    await collecting.orphans.follow()
    await collecting.check()
    assert await collecting.is_up(STRAY)
    assert not collecting.events(Kind.ORPHAN_REMOVED)


async def test_a_failed_removal_is_reported_once_and_retried(collecting):
    collecting.memory.refuse(STRAY, JobFailed("no", result="failed"))
    for tries in (1, 2, 3):
        await collecting.check(REMOVE_AFTER_SEC)
        await until(lambda: collecting.memory.calls["stop"] == tries)  # noqa: B023 - waited for
        await collecting.check()
        assert collecting.memory.calls["stop"] == tries
    assert len(collecting.events(Kind.STEP_FAILED)) == 1
    collecting.memory.refuse(STRAY, None)
    await collecting.check(REMOVE_AFTER_SEC)
    await until(lambda: collecting.events(Kind.ORPHAN_REMOVED))


async def test_remains_of_a_kubelet_are_not_orphans(tmp_path):
    """The kubelet has exited, and podslice has applied nothing."""
    node = Node(tmp_path, collect=True)
    await start_units_of_a_kubelet(node.memory)
    before = await node.memory.observe(["*"])
    await node.check()
    await node.check(REPORT_AFTER_SEC)
    await node.check(REMOVE_AFTER_SEC * 2)
    assert not node.orphans.is_removing
    assert not node.context.events.journal.all
    assert await node.memory.observe(["*"]) == before
    node.orphans.close()


async def test_a_kubelet_started_before_the_removal_prevents_it(collecting):
    collecting.clock.advance(GUARD_CACHE_SEC)
    await start_units_of_a_kubelet(collecting.memory)
    before = await collecting.memory.observe(["*"])
    collecting.clock.advance(REMOVE_AFTER_SEC)
    # without a new assessment
    await collecting.orphans.follow()
    (event,) = await until_reported(collecting, Kind.STEP_FAILED)
    assert "belongs to a kubelet" in event.message
    assert await collecting.memory.observe(["*"]) == before


async def until_reported(node, kind):
    await until(lambda: node.events(kind))
    return node.events(kind)
