import asyncio
import signal
from dataclasses import replace

import pytest

from podslice.agent import evictor as module
from podslice.agent.evictor import Evictor
from podslice.agent.terminations import Terminations
from podslice.errors import BusUnavailable, ForeignRoot, HostError, JobFailed
from podslice.model.config import Threshold
from podslice.model.event import Kind
from podslice.model.node_state import Condition
from podslice.model.pod import Qos
from podslice.policy.eviction import CRITICAL_PRIORITY
from podslice.reconcile.world import Guard
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.agent.fakes import (
    GUARD_CACHE_SEC,
    Clock,
    Host,
    end,
    make_context,
    put,
    reassess,
    skip_time,
    until,
    use_memory,
    write_group,
)
from tests.unit.builders import besteffort, burstable, config, guaranteed, node
from tests.unit.reconcile.test_guard import start_units_of_a_kubelet

MI = 2**20 * 1000
SHORT = Threshold(amount=100 * MI)
FEW = Threshold(amount=500_000)
HARD = {
    "eviction_hard": {"memory.available": SHORT},
    "eviction_pressure_transition_period_usec": 1,
}
SOFT = {
    "eviction_hard": {"memory.available": Threshold(amount=50 * MI)},
    "eviction_soft": {"memory.available": SHORT},
    "eviction_soft_grace_period_usec": {"memory.available": 0},
    "eviction_max_pod_grace_period_sec": 20,
    "eviction_pressure_transition_period_usec": 1,
}
TIERS = {
    "qos_reserved": {"memory": 50},
    "eviction_tier": {
        Qos.BURSTABLE: Threshold(percent_milli=10_000),
        Qos.BESTEFFORT: Threshold(amount=50 * MI),
    },
}
BURSTABLE, BESTEFFORT = "kubepods-burstable.slice", "kubepods-besteffort.slice"
BATCH = "kubepods-besteffort-podbatch.slice"
WEB = "kubepods-burstable-podweb.slice"
DATABASE = "kubepods-poddatabase.slice"


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "host")


@pytest.fixture
def memory(host):
    return FakeSystemd(on_change=host.on_change)


class Node:
    """A node with pods, and its evictor."""

    def __init__(self, tmp_path, memory, host, **fields):
        self.memory = memory
        self.clock = Clock()
        self.context = make_context(
            tmp_path,
            memory,
            by=config(**{**HARD, **fields}),
            on=node("cpu=8,memory=4000Mi"),
            guard=Guard(tmp_path / "host", now=self.clock),
        )
        self.changes = []
        self.terminations = Terminations(self.context, memory, lambda *_: None)
        self.evictor = Evictor(
            self.context,
            memory,
            self.terminations,
            lambda: self.changes.append(True),
            root=host.root,
        )

    async def put(self, *pods):
        await put(self.context, *pods)

    async def check(self):
        return await self.evictor.check()

    def events(self, *kinds):
        return self.context.events.journal.of(*kinds)

    def evicted(self):
        return [event.pod for event in self.events(Kind.POD_EVICTED)]

    def marked(self):
        return [mark.pod for mark in self.context.world.store.load().evicted]

    async def there(self):
        return {unit.name for unit in await self.memory.observe(["kubepods*"])}


@pytest.fixture
async def make(tmp_path, memory, host):
    """Return a function that makes nodes, whose terminations are closed with the test."""
    made = []

    def make_node(**fields):
        made.append(Node(tmp_path, memory, host, **fields))
        return made[-1]

    yield make_node
    for each in made:
        await each.terminations.close()


@pytest.fixture
async def here(make, host):
    """A node whose BestEffort pod uses the most memory."""
    node_ = make()
    await node_.put(besteffort("batch"), burstable("web"), guaranteed("database", memory="500Mi"))
    for name, mebibytes in ((BATCH, 300), (WEB, 200), (DATABASE, 400)):
        use_memory(node_.context, name, mebibytes)
    host.held = {BATCH: 300, WEB: 200, DATABASE: 400}
    node_.memory.set_tasks(BATCH, 1)
    return node_


# The choice of pods.


async def test_without_pressure_nothing_is_evicted(here):
    await here.check()
    assert not here.evicted()
    assert not here.context.status.conditions
    assert not here.changes


async def test_evicting_stops_when_enough_is_available(here, host):
    host.set(free_mib=80)
    await here.check()
    await here.check()
    assert here.evicted() == ["default/batch"]
    assert BATCH not in await here.there()
    assert {WEB, DATABASE} <= await here.there()
    (event,) = here.events(Kind.POD_EVICTED)
    assert event.unit == BATCH
    assert "memory.available is 80 MiB, below the hard threshold 100 MiB" in event.message
    assert event.fields["SIGNAL"] == "memory.available"
    assert here.context.counters.evictions == {"memory.available": 1}
    assert here.changes


async def test_the_mark_has_the_reason_and_the_manifest_digest(here, host):
    host.set(free_mib=80)
    await here.check()
    store = here.context.world.store
    (mark,) = store.load().evicted
    assert (mark.pod, mark.uid, mark.signal) == ("default/batch", "batch", "memory.available")
    assert mark.digest == store.digest(besteffort("batch"))
    assert "80 MiB" in mark.message


async def test_under_lasting_pressure_the_next_pod_is_evicted(here, host):
    host.held = {BATCH: 0, WEB: 300}
    host.set(free_mib=80)
    await here.check()
    await here.check()
    # without a new assessment, the evicted pod is still not a candidate
    assert here.evicted() == ["default/batch", "default/web"]


async def test_critical_and_guaranteed_pods_are_not_evicted(make, host):
    here = make()
    await here.put(guaranteed("database"), besteffort("vital", priority=CRITICAL_PRIORITY))
    use_memory(here.context, DATABASE, 400)
    use_memory(here.context, "kubepods-besteffort-podvital.slice", 400)
    host.set(free_mib=10)
    for _ in range(3):
        await here.check()
    assert not here.evicted()
    (failed,) = here.events(Kind.AGENT_FAILED)
    assert "memory.available is 10 MiB" in failed.message
    assert "evicting a pod would not help" in failed.message


async def test_without_a_candidate_pods_are_observed_again_later(make, host, monkeypatch):
    monkeypatch.setattr(module, "NO_CANDIDATE_SEC", 1000)
    here = make()
    await here.put(besteffort("batch"))
    host.set(free_mib=10)
    await here.check()
    use_memory(here.context, BATCH, 300)
    await here.check()
    assert not here.evicted()
    skip_time(monkeypatch, 1001)
    await here.check()
    assert here.evicted() == ["default/batch"]


async def test_a_missing_candidate_is_reported_once_per_shortage(make, host, monkeypatch):
    monkeypatch.setattr(module, "NO_CANDIDATE_SEC", 0.0)
    monkeypatch.setattr(module, "SETTLE_SEC", 0.0)
    here = make(eviction_hard={"memory.available": SHORT, "pid.available": FEW})
    await here.put(guaranteed("database"))
    for _ in range(2):
        host.set(free_mib=10, tasks=1000)
        for _ in range(3):
            await here.check()
        host.set(free_mib=1000, tasks=1)
        await asyncio.sleep(0.001)
        await here.check()
    reported = [event.fields["SIGNAL"] for event in here.events(Kind.AGENT_FAILED)]
    assert reported == ["memory.available", "pid.available"] * 2


async def test_without_a_candidate_for_memory_there_may_be_one_for_processes(make, host):
    here = make(eviction_hard={"memory.available": SHORT, "pid.available": FEW})
    await here.put(besteffort("batch"))
    write_group(here.context, BATCH, pids_current=900)
    host.set(free_mib=10, tasks=1000)
    await here.check()
    (event,) = here.events(Kind.POD_EVICTED)
    assert event.fields["SIGNAL"] == "pid.available"
    assert "900" in event.message


async def test_slowly_released_resources_get_time(make, host):
    here = make(eviction_hard={"pid.available": FEW})
    await here.put(besteffort("batch"), burstable("web"))
    for name in (BATCH, WEB):
        write_group(here.context, name, pids_current=400)
    host.set(tasks=1000)
    await here.check()
    await here.check()
    assert len(here.evicted()) == 1


# Grace.


async def test_a_soft_threshold_grants_the_pods_grace(make, host):
    here = make(**SOFT)
    await here.put(besteffort("batch", grace_period_sec=15))
    use_memory(here.context, BATCH, 300)
    host.set(free_mib=80)
    await here.check()
    (event,) = here.events(Kind.POD_EVICTED)
    assert event.fields["GRACE_SEC"] == "15"
    assert "soft threshold" in event.message


async def test_crossing_a_hard_threshold_kills_a_terminating_pod(make, host):
    here = make(**SOFT)
    await here.put(besteffort("batch"))
    use_memory(here.context, BATCH, 300)
    here.memory.set_tasks(BATCH, 1)
    here.memory.make_stubborn(BATCH)
    host.set(free_mib=80)
    checking = asyncio.create_task(here.check())
    await asyncio.sleep(0.05)
    assert not here.memory.signals
    host.set(free_mib=20)
    async with asyncio.timeout(30):
        await checking
    assert here.memory.signals == [(BATCH, signal.SIGKILL)]
    assert BATCH not in await here.there()


async def test_a_stuck_pod_does_not_prevent_the_next_eviction(make, host, monkeypatch):
    monkeypatch.setattr(module, "OVERDUE_SEC", -0.9)

    async def no_effect(*_):
        """Do nothing, as for a process that hangs in the kernel."""

    here = make()
    await here.put(besteffort("batch"), burstable("web"))
    for name in (BATCH, WEB):
        use_memory(here.context, name, 300)
    here.memory.set_tasks(BATCH, 1)
    here.memory.make_stubborn(BATCH)
    here.memory.kill = no_effect
    host.set(free_mib=80)
    await here.check()
    await here.check()
    assert here.evicted() == ["default/batch", "default/web"]


async def test_a_terminating_pod_is_not_evicted_again(make, host, monkeypatch):
    monkeypatch.setattr(module, "OVERDUE_SEC", -20.0)
    here = make(**SOFT)
    await here.put(besteffort("batch"), burstable("web"))
    for name in (BATCH, WEB):
        use_memory(here.context, name, 300)
    here.memory.set_tasks(BATCH, 1)
    here.memory.make_stubborn(BATCH)
    host.set(free_mib=80)
    await here.check()
    state = await reassess(here.context)
    assert BATCH in {pod.slice for pod in state.desired.pods}
    await here.check()
    assert here.evicted() == ["default/batch", "default/web"]


# Conditions.


async def test_conditions_begin_and_end_with_the_numbers(here, host):
    host.set(free_mib=80)
    await here.check()
    assert here.context.status.conditions == {Condition.MEMORY}
    (began,) = here.events(Kind.PRESSURE_BEGAN)
    assert began.message == (
        "MemoryPressure: memory.available is 80 MiB, below the hard threshold 100 MiB"
    )
    host.set(free_mib=900)
    await asyncio.sleep(0.001)
    await here.check()
    assert here.context.status.conditions == frozenset()
    (ended,) = here.events(Kind.PRESSURE_ENDED)
    assert ended.message == "MemoryPressure has ended: memory.available is 900 MiB"


async def test_a_condition_begins_before_the_first_eviction(make, host):
    here = make(**{**SOFT, "eviction_soft_grace_period_usec": {"memory.available": 10**9}})
    await here.put(besteffort("batch"))
    use_memory(here.context, BATCH, 300)
    host.set(free_mib=80)
    await here.check()
    assert not here.evicted()
    (began,) = here.events(Kind.PRESSURE_BEGAN)
    assert "memory.available is 80 MiB, below the soft threshold 100 MiB" in began.message


async def test_each_condition_has_its_own_numbers(make, host):
    here = make(eviction_hard={"memory.available": SHORT, "pid.available": FEW})
    host.set(free_mib=80, tasks=1000)
    await here.check()
    texts = [event.message for event in here.events(Kind.PRESSURE_BEGAN)]
    assert ["memory." in text for text in texts] == [True, False]
    assert ["pid." in text for text in texts] == [False, True]


async def test_conditions_are_known_before_the_first_assessment(make, host):
    here = make()
    host.set(free_mib=80)
    await here.check()
    assert here.context.status.conditions == {Condition.MEMORY}
    assert not here.events(Kind.AGENT_FAILED)


async def test_the_message_shows_an_unmet_minimum_reclaim(here, host):
    by = replace(here.context.world.config, eviction_minimum_reclaim={"memory.available": SHORT})
    here.context.world = replace(here.context.world, config=by)
    host.held = {BATCH: 70, WEB: 300}
    host.set(free_mib=80)
    await here.check()
    await here.check()
    _, second = here.events(Kind.POD_EVICTED)
    assert (
        "memory.available is 150 MiB, below the hard threshold 100 MiB with its minimum reclaim 100 MiB"
        in second.message
    )


# Tiers.


def use_tier(node_, name, left_mib, limit_mib=1000):
    """Set the limit of a tier, and what is left of it."""
    used = (limit_mib - left_mib) * 2**20
    stat = "inactive_file 0"
    limit = limit_mib * 2**20
    write_group(node_.context, name, memory_max=limit, memory_current=used, memory_stat=stat)


@pytest.fixture
async def tiered(make):
    """A node of which both tiers have a limit, and enough left of it."""
    node_ = make(**{**SOFT, **TIERS})
    await node_.put(besteffort("batch"), burstable("web"), guaranteed("database", memory="500Mi"))
    for name, mebibytes in ((BATCH, 300), (WEB, 200), (DATABASE, 400)):
        use_memory(node_.context, name, mebibytes)
    for name in (BURSTABLE, BESTEFFORT):
        use_tier(node_, name, left_mib=200)
    return node_


async def test_a_tier_near_its_limit_evicts_a_pod_of_the_tier(tiered, host):
    use_tier(tiered, BURSTABLE, left_mib=99)
    await tiered.check()
    assert tiered.evicted() == tiered.marked() == ["default/web"]
    (event,) = tiered.events(Kind.POD_EVICTED)
    what = "burstable.memory.available is 99 MiB, below the hard threshold 100 MiB"
    assert what in event.message
    assert event.fields["SIGNAL"] == "burstable.memory.available"
    assert event.fields["GRACE_SEC"] == "1"
    assert tiered.context.counters.evictions == {"burstable.memory.available": 1}
    assert tiered.context.status.conditions == {Condition.BURSTABLE_MEMORY}
    (began,) = tiered.events(Kind.PRESSURE_BEGAN)
    assert began.message == f"BurstableMemoryPressure: {what}"


async def test_for_the_node_and_a_tier_one_pod_is_evicted_at_a_time(tiered, host):
    host.set(free_mib=40)
    host.held = {BATCH: 300}
    use_tier(tiered, BESTEFFORT, left_mib=10)
    await tiered.check()
    (event,) = tiered.events(Kind.POD_EVICTED)
    assert event.fields["SIGNAL"] == "memory.available"
    assert tiered.context.status.conditions == {Condition.MEMORY, Condition.BESTEFFORT_MEMORY}
    use_tier(tiered, BESTEFFORT, left_mib=310)
    await tiered.check()
    assert tiered.evicted() == ["default/batch"]


async def test_a_tier_without_a_candidate_is_reported_and_does_not_delay_the_node(make, host):
    here = make(**{**HARD, **TIERS})
    await here.put(besteffort("vital", priority=CRITICAL_PRIORITY), burstable("web"))
    use_memory(here.context, "kubepods-besteffort-podvital.slice", 300)
    use_memory(here.context, WEB, 300)
    use_tier(here, BESTEFFORT, left_mib=10)
    await here.check()
    (failed,) = here.events(Kind.AGENT_FAILED)
    assert failed.message == (
        "besteffort.memory.available is 10 MiB, below the hard threshold 50 MiB, but evicting a pod would"
        " not help: check the critical pods of the BestEffort tier"
    )
    host.set(free_mib=80)
    await here.check()
    assert here.evicted() == ["default/web"]


@pytest.mark.parametrize(
    ("tier", "evicted", "signals"),
    [
        (BURSTABLE, ["default/batch", "default/web"], []),
        (BESTEFFORT, ["default/batch"], [(BATCH, signal.SIGKILL)]),
    ],
    ids=["another tier", "its tier"],
)
async def test_a_tier_does_not_wait_for_a_terminating_pod(tiered, host, tier, evicted, signals):
    tiered.memory.set_tasks(BATCH, 1)
    tiered.memory.make_stubborn(BATCH)
    host.set(free_mib=80)
    checking = asyncio.create_task(tiered.check())
    await until(lambda: tiered.evicted() == ["default/batch"])
    use_tier(tiered, tier, left_mib=10)
    await until(lambda: tiered.evicted() == evicted and tiered.memory.signals == signals)
    use_tier(tiered, tier, left_mib=500)
    await end(checking)


async def test_pressure_that_begins_while_a_pod_terminates_does_not_end_with_it(tiered, host):
    tiered.memory.set_tasks(BATCH, 1)
    tiered.memory.make_stubborn(BATCH)
    host.set(free_mib=80)
    checking = asyncio.create_task(tiered.check())
    await until(lambda: tiered.evicted() == ["default/batch"])
    use_tier(tiered, BURSTABLE, left_mib=10)
    await until(lambda: tiered.evicted() == ["default/batch", "default/web"])
    tiered.memory.set_tasks(BATCH, 0)
    await checking
    assert Condition.BURSTABLE_MEMORY in tiered.context.status.conditions
    assert not tiered.events(Kind.PRESSURE_ENDED)


async def test_a_tier_that_is_no_longer_configured_ends_its_pressure(tiered, host):
    use_tier(tiered, BURSTABLE, left_mib=10)
    await tiered.check()
    by = replace(tiered.context.world.config, eviction_tier={})
    tiered.context.world = replace(tiered.context.world, config=by)
    await asyncio.sleep(0.001)
    await tiered.check()
    assert not tiered.context.status.conditions
    (ended,) = tiered.events(Kind.PRESSURE_ENDED)
    assert ended.message == "BurstableMemoryPressure has ended"


# Failures.


async def test_without_systemd_no_pod_is_marked(here, host):
    host.set(free_mib=80)
    here.memory.break_after(0)
    with pytest.raises(BusUnavailable):
        await here.check()
    assert not here.evicted()
    assert not here.marked()
    await here.check()
    assert here.evicted() == here.marked() == ["default/batch"]


async def test_a_pod_that_cannot_be_stopped_is_reported_and_delays_the_next(here, host):
    here.memory.refuse(BATCH, JobFailed("Access denied", result="failed"))
    host.set(free_mib=80)
    await here.check()
    await here.check()
    assert here.evicted() == ["default/batch"]
    (failed,) = here.events(Kind.STEP_FAILED)
    assert failed.pod == "default/batch"
    assert "Access denied" in failed.message


async def test_an_unwritten_mark_is_in_force(here, host, monkeypatch):
    def no_space(*_):
        raise HostError("No space left on device")

    monkeypatch.setattr(Store, "mark_evicted", no_space)
    host.set(free_mib=80)
    await here.check()
    assert here.evicted() == ["default/batch"]
    assert here.context.marks.unwritten.keys() == {"batch"}


async def test_a_failed_check_is_repeated(here, host, monkeypatch):
    monkeypatch.setattr(module, "RETRY_SEC", 0.01)
    host.set(free_mib=80)
    here.memory.break_after(0)
    running = asyncio.create_task(here.evictor.run())
    await until(lambda: here.evicted() and not here.context.status.failures)
    await end(running)
    assert len(here.events(Kind.AGENT_FAILED)) == 1


async def test_pressure_reported_by_the_kernel_is_handled_at_once(here, host):
    """An eviction is reported before the pod is stopped, and may outlast the evictor."""
    here.memory.make_stubborn(BATCH)
    running = asyncio.create_task(here.evictor.run())
    await asyncio.sleep(0.05)
    host.set(free_mib=80)
    here.evictor.wake()
    await until(here.evicted)
    await end(running)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "since the last observation"])
async def test_beside_a_kubelet_no_pod_is_evicted_or_marked(here, host, is_known):
    await start_units_of_a_kubelet(here.memory)
    here.clock.advance(GUARD_CACHE_SEC)
    if is_known:
        await reassess(here.context)
    before = await here.there()
    host.set(free_mib=50)
    if is_known:
        await here.check()
        assert here.context.status.conditions == {Condition.MEMORY}
    else:
        with pytest.raises(ForeignRoot):
            await here.check()
    assert not here.evicted()
    assert not here.marked()
    assert await here.there() == before
