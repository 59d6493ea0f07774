"""Changes by verbs are not drift; external changes before and after them are."""

import asyncio
from contextlib import contextmanager
from dataclasses import replace

import pytest

from podslice.model.event import Kind
from podslice.reconcile import manual_changes
from podslice.reconcile.assess import Request, readmit
from podslice.store.store import Store
from tests.unit.agent.reconciled import POD_STEPS, WEB, Node
from tests.unit.builders import burstable, decisions
from tests.unit.converged import apply, delete

BURSTABLE = "kubepods-burstable.slice"
KINDS = (Kind.DRIFT_REPAIRED, *POD_STEPS, Kind.POD_READMITTED)


@pytest.fixture
async def two(tmp_path):
    """A settled node with two pods, whose agent is this process."""
    here = Node(tmp_path)
    here.put("web", {"cpu": "500m", "memory": "256Mi"})
    here.put("batch")
    await here.settle()
    here.context.publish()
    return here


class Operator:
    """Another process of podslice, as its verbs work."""

    def __init__(self, node):
        self.store = Store(node.context.world.store.root)
        # its own connection: it does not share the cache of the agent
        self.world = replace(node.context.world, store=self.store, client=node.memory)

    @contextmanager
    def change(self, verb="apply", *, pods=(), units=()):
        change = manual_changes.record(self.store, verb, pods=pods, units=units)
        yield
        manual_changes.finish(self.store, change)

    def on_plan(self, made):
        self.made = manual_changes.record(
            self.store,
            "verb",
            pods=["default/web"],
            units=[step.name for step in made.steps],
        )

    async def delete(self, *keys):
        with self.store.lock():
            await delete(self.world, keys, on_plan=self.on_plan)
            manual_changes.finish(self.store, self.made)

    async def apply(self, *pods):
        candidates = decisions(*pods, on=self.world.node, by=self.world.config)
        with self.store.lock():
            await apply(self.world, Request(candidates=candidates), on_plan=self.on_plan)
            manual_changes.finish(self.store, self.made)


@pytest.fixture
def operator(two):
    return Operator(two)


async def test_a_deleted_pod_of_a_manifest_is_started_again_and_is_not_drift(two, operator):
    await operator.delete("default/web")
    assert WEB not in await two.slices()
    await two.run_round()
    assert two.reported(*KINDS) == [("pod-applied", "default/web")]
    assert two.context.counters.drift_repaired == 0
    assert operator.store.manual_changes.load() == ()


async def test_other_values_applied_by_hand_are_replaced_and_are_not_drift(two, operator):
    await operator.apply(burstable("web", "cpu=1,memory=64Mi", uid="web"))
    assert (await two.slices())[WEB]["MemoryLow"] == 2**26
    await two.run_round()
    assert (await two.slices())[WEB]["MemoryLow"] == 2**28
    assert two.reported(*KINDS) == [("pod-changed", "default/web")]


async def test_a_round_during_the_change_waits_for_its_end(two, operator):
    """The agent finds the slice missing before the verb has finished."""
    with operator.store.lock(), operator.change("delete", pods=["default/web"], units=[WEB]):
        await two.memory.stop(WEB)
        taking = asyncio.create_task(two.run_round())
        await asyncio.sleep(0.05)
        assert not two.reported(*KINDS)
    await taking
    assert two.reported(*KINDS) == [("pod-applied", "default/web")]


async def test_a_change_without_a_round_in_between_is_read_by_the_next(two, operator):
    """An external change after that is drift, of the pod and of the tier."""
    with operator.change(pods=["default/web"], units=[WEB, BURSTABLE]):
        pass
    await two.run_round()
    assert not two.reported(*KINDS)
    for unit in (WEB, BURSTABLE):
        await two.memory.set_properties(unit, {"CPUWeight": 77})
        two.client.forget(unit)
    await two.run_round()
    assert sorted(event.unit for event in two.context.events.journal.of(*KINDS)) == [WEB, BURSTABLE]
    assert two.context.counters.drift_repaired == 2


async def test_a_change_that_is_under_way_hides_no_external_one_later(two, operator):
    """Its record is in force once, after its end."""
    with operator.change(pods=["default/web"], units=[WEB]):
        await two.run_round()
        assert operator.store.manual_changes.load()
    await two.run_round()
    await two.memory.stop(WEB)
    await two.run_round()
    assert two.reported(*KINDS) == [("drift-repaired", "default/web")]


async def test_other_units_are_not_excused(two, operator):
    with operator.change(pods=["default/batch"], units=["kubepods-besteffort.slice"]):
        await two.memory.stop(WEB)
    await two.run_round()
    assert two.reported(*KINDS) == [("drift-repaired", "default/web")]


async def test_a_pod_without_units_in_the_record_is_meant_as_a_whole(two, operator):
    """`phase POD init` knows the units only later."""
    with operator.change("phase", pods=["default/web"]):
        await two.memory.set_properties(WEB, {"CPUWeight": 77})
    await two.run_round()
    assert two.reported(*KINDS) == [("pod-changed", "default/web")]


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_readmission_is_reported_by_the_verb_only(two, operator, is_over):
    await two.evict("web", WEB)
    await two.settle()
    change = manual_changes.record(operator.store, "readmit", pods=["default/web"], units=[])
    readmit(operator.store, {"default/web"})
    if is_over:
        manual_changes.finish(operator.store, change)
    await two.run_round()
    assert two.reported(*KINDS) == [("pod-applied", "default/web")]
    manual_changes.finish(operator.store, change)
    await two.evict("web", WEB)
    await two.settle()
    readmit(operator.store, {"default/web"})
    await two.run_round()
    expected = [("pod-readmitted", "default/web"), ("pod-applied", "default/web")]
    assert two.reported(*KINDS) == expected
