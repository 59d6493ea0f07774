"""Rounds of an agent that applies pod levels on the slices of a kubelet."""

import asyncio

import pytest

from podslice.agent.context import Counters, EventLog, NodeStatus
from podslice.errors import BadProperty, HostError, InputError, NoSuchUnit, Problem
from podslice.features.kubelet.levels import LevelRecord, LevelSlices, PodLevels
from podslice.features.kubelet.model import LeftReason
from podslice.kernel.cgroup import CgroupFs
from podslice.model.event import Kind
from tests.unit.agent.fakes import Clock, Events
from tests.unit.features.kubelet.followed import APPLIED, BEFORE, WEB, Kubelet


class Follower:
    """A kubelet, and the pod levels of an agent."""

    def __init__(self, directory):
        self.kubelet = Kubelet()
        self.record = LevelRecord(directory / "run")
        self.cgroups = CgroupFs(mount=directory)
        self.clock = Clock()
        self.begin()

    def begin(self):
        """Start the agent."""
        self.events = Events()
        self.counters = Counters()
        log = EventLog(self.events)
        self.status = NodeStatus(log, lambda: None)
        self.levels = PodLevels(
            LevelSlices(self.kubelet.memory, self.cgroups),
            self.kubelet.read,
            self.record,
            events=log,
            status=self.status,
            counters=self.counters,
            now=self.clock,
        )

    @property
    def left(self):
        return [each.reason for each in self.levels.plan.left]


@pytest.fixture
async def follower(tmp_path):
    made = Follower(tmp_path)
    made.kubelet.put("web", memory="64Mi")
    await made.kubelet.start("web")
    return made


async def test_a_pod_level_is_applied_once(follower):
    assert await follower.levels.run_round()
    assert await follower.kubelet.values() == {**BEFORE, **APPLIED}
    assert follower.record.read() == {WEB: APPLIED}
    (event,) = follower.events.of(Kind.LEVEL_APPLIED)
    assert event.message == "default/web: MemoryLow=64Mi, MemoryMax=64Mi set"
    assert (event.pod, event.unit) == ("default/web", WEB)
    assert await follower.levels.run_round()
    assert follower.kubelet.memory.calls["set_properties"] == 1
    assert follower.counters.drift_repaired == 0
    assert follower.levels.plan.pods == {WEB: "default/web"}


async def test_slices_concern_the_agent_that_may_be_of_pods(follower):
    # the root is not known yet
    assert follower.levels.concerns("custom-kubepods-poda.slice")
    await follower.levels.run_round()
    names = (WEB, "kubepods.slice", "custom-kubepods-poda.slice", "kubepods-poda.mount")
    assert [follower.levels.concerns(name) for name in names] == [True, True, False, False]


async def test_the_next_agent_removes_what_another_has_set(follower):
    await follower.levels.run_round()
    follower.begin()
    await follower.levels.remove()
    assert await follower.kubelet.values() == BEFORE
    assert follower.record.read() == {}
    (event,) = follower.events.of(Kind.LEVEL_REMOVED)
    assert event.message == (
        "default/web: MemoryLow=unset, MemoryMax=unset set back to the kubelet's values"
    )
    reads = follower.kubelet.reads
    await follower.levels.remove()
    assert follower.kubelet.reads == reads


async def test_values_remain_while_the_kubelet_cannot_be_reached(follower):
    await follower.levels.run_round()
    follower.kubelet.refuse("connection refused")
    assert not await follower.levels.run_round()
    assert [str(each) for each in follower.status.failures] == ["connection refused"]
    assert follower.counters.reconcile_errors == 1
    assert await follower.kubelet.values() == {**BEFORE, **APPLIED}
    follower.kubelet.error = InputError(
        [Problem(where="a", message="b"), Problem(where="c", message="d")]
    )
    assert not await follower.levels.run_round()
    assert [str(each) for each in follower.status.failures] == ["a: b; c: d"]
    follower.kubelet.error = None
    assert await follower.levels.run_round()
    assert not follower.status.failures


async def test_a_removal_without_the_kubelet_is_reported(follower):
    await follower.levels.run_round()
    follower.begin()
    follower.kubelet.refuse("connection refused")
    await follower.levels.remove()
    assert follower.events.texts(Kind.AGENT_FAILED) == ["connection refused"]
    assert follower.record.read() == {WEB: APPLIED}


async def test_values_are_recorded_before_they_are_set(follower, monkeypatch):
    """A kill follows the first call."""
    set_properties = follower.kubelet.memory.set_properties

    async def set_and_end(name, properties):
        await set_properties(name, properties)
        raise asyncio.CancelledError

    monkeypatch.setattr(follower.kubelet.memory, "set_properties", set_and_end)
    with pytest.raises(asyncio.CancelledError):
        await follower.levels.run_round()
    monkeypatch.undo()
    assert await follower.kubelet.values() == {**BEFORE, **APPLIED}
    follower.begin()
    await follower.levels.remove()
    assert await follower.kubelet.values() == BEFORE
    assert follower.record.read() == {}


async def test_a_kubelet_that_lists_no_pods_yet_does_not_affect_the_record(follower):
    await follower.levels.run_round()
    pods, follower.kubelet.pods = follower.kubelet.pods, {}
    assert await follower.levels.run_round()
    assert follower.record.read() == {WEB: APPLIED}
    assert follower.levels.plan.pods == {WEB: "default/web"}
    follower.begin()
    assert await follower.levels.run_round()
    assert follower.record.read() == {WEB: APPLIED}
    assert follower.levels.plan.pods == {}  # not known to this agent
    follower.kubelet.pods = pods
    await follower.levels.run_round()
    await follower.levels.remove()
    assert await follower.kubelet.values() == BEFORE


async def test_what_is_left_alone_is_reported_once(follower):
    follower.kubelet.upgrade((1, 34))
    follower.kubelet.put("later", memory="1Mi")
    for _ in range(2):
        assert await follower.levels.run_round()
    assert follower.left == [LeftReason.KUBELET_APPLIES] * 2
    events = follower.events.of(Kind.LEVEL_LEFT)
    assert [each.pod for each in events] == ["default/web", "default/later"]
    assert events[0].message == (
        "default/web: the pod level is not applied: the kubelet applies spec.resources itself"
    )
    assert events[0].fields == {"REASON": "kubelet-applies"}
    follower.kubelet.upgrade((1, 33))
    assert await follower.levels.run_round()
    # the kubelet will create the slice: not worth an event
    assert follower.left == [LeftReason.NO_SLICE]
    assert len(follower.events.of(Kind.LEVEL_LEFT)) == 2


async def test_another_value_is_left_alone(follower):
    await follower.kubelet.memory.set_properties(WEB, {"MemoryMax": 4096})
    assert await follower.levels.run_round()
    assert (await follower.kubelet.values())["MemoryMax"] == 4096
    (text,) = follower.events.texts(Kind.LEVEL_LEFT)
    assert text == (
        "default/web: MemoryMax is not applied: MemoryMax is 4Ki, which follows neither from the"
        " containers nor from the pod level"
    )


async def test_a_kubelet_that_sets_its_values_again_and_again_wins(follower):
    await follower.levels.run_round()
    reset = {"MemoryMax": BEFORE["MemoryMax"]}
    for number in range(1, 5):
        await follower.kubelet.memory.set_properties(WEB, reset)
        assert await follower.levels.run_round()
        assert follower.counters.drift_repaired == number
    for _ in range(3):
        await follower.kubelet.memory.set_properties(WEB, reset)
        assert await follower.levels.run_round()
        assert follower.left == [LeftReason.CONTESTED]
    assert (await follower.kubelet.values())["MemoryMax"] == reset["MemoryMax"]
    # the other value remains, and is removed with all
    assert follower.record.read() == {WEB: {"MemoryLow": APPLIED["MemoryLow"]}}
    assert len(follower.events.of(Kind.LEVEL_LEFT)) == 1
    # a slice that the kubelet creates again has no history
    await follower.kubelet.memory.stop(WEB)
    await follower.levels.run_round()
    await follower.kubelet.start("web")
    await follower.levels.run_round()
    assert await follower.kubelet.values() == {**BEFORE, **APPLIED}


async def test_repairs_that_are_rare_go_on(follower):
    await follower.levels.run_round()
    for _ in range(8):
        follower.clock.advance(16)
        await follower.kubelet.memory.set_properties(WEB, {"MemoryMax": BEFORE["MemoryMax"]})
        assert await follower.levels.run_round()
    assert await follower.kubelet.values() == {**BEFORE, **APPLIED}
    assert follower.counters.drift_repaired == 8


async def test_what_systemd_refuses_is_tried_again(follower):
    follower.kubelet.memory.refuse(WEB, BadProperty("MemoryMax: out of range"))
    assert not await follower.levels.run_round()
    assert follower.left == [LeftReason.FAILED]
    assert follower.record.read() == {}
    follower.kubelet.memory.refuse(WEB, None)
    assert await follower.levels.run_round()
    assert follower.record.read() == {WEB: APPLIED}
    # the values from before remain recorded
    await follower.kubelet.memory.set_properties(WEB, {"MemoryMax": BEFORE["MemoryMax"]})
    follower.kubelet.memory.refuse(WEB, BadProperty("MemoryMax: out of range"))
    assert not await follower.levels.run_round()
    assert follower.record.read() == {WEB: APPLIED}


async def test_what_systemd_does_not_remove_remains_recorded(follower):
    await follower.levels.run_round()
    follower.kubelet.memory.refuse(WEB, BadProperty("MemoryMax: out of range"))
    await follower.levels.remove()
    assert follower.record.read() == {WEB: APPLIED}
    assert follower.levels.plan.pods == {WEB: "default/web"}
    follower.kubelet.memory.refuse(WEB, None)
    await follower.levels.remove()
    assert await follower.kubelet.values() == BEFORE
    assert follower.record.read() == {}


async def test_a_contested_slice_loses_its_other_values_as_well(follower):
    await follower.levels.run_round()
    for _ in range(5):
        await follower.kubelet.memory.set_properties(WEB, {"MemoryMax": BEFORE["MemoryMax"]})
        await follower.levels.run_round()
    assert follower.left == [LeftReason.CONTESTED]
    await follower.levels.remove()
    assert await follower.kubelet.values() == BEFORE


async def test_what_an_interrupted_round_has_set_is_removed(follower, monkeypatch):
    set_properties = follower.kubelet.memory.set_properties

    async def set_and_stop(name, properties):
        await set_properties(name, properties)
        raise asyncio.CancelledError

    monkeypatch.setattr(follower.kubelet.memory, "set_properties", set_and_stop)
    with pytest.raises(asyncio.CancelledError):
        await follower.levels.run_round()
    assert await follower.kubelet.values() == {**BEFORE, **APPLIED}
    monkeypatch.undo()
    await follower.levels.remove()
    assert await follower.kubelet.values() == BEFORE


async def test_a_slice_may_be_removed_meanwhile(follower):
    follower.kubelet.memory.refuse(WEB, NoSuchUnit(WEB))
    assert await follower.levels.run_round()
    assert follower.left == [LeftReason.NO_SLICE]
    assert follower.record.read() == {}


async def test_without_systemd_the_round_fails(follower):
    follower.kubelet.memory.break_after(0)
    assert not await follower.levels.run_round()
    assert follower.status.failures


async def test_a_record_that_cannot_be_written_is_a_failure(follower, monkeypatch):
    def save(_):
        raise HostError("run: no space left on device")

    monkeypatch.setattr(follower.record, "save", save)
    assert not await follower.levels.run_round()
    assert [str(each) for each in follower.status.failures] == ["run: no space left on device"]
    assert await follower.kubelet.values() == BEFORE  # a value without a record would remain
    monkeypatch.undo()
    assert await follower.levels.run_round()
    assert not follower.status.failures
