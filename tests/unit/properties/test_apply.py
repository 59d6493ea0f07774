"""Applied to a service manager in memory: nothing is left to do, whatever happened on the way."""

import asyncio
import itertools
from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.errors import PodsliceError
from podslice.kernel.cgroup import CgroupFs
from podslice.model.naming import scope_name
from podslice.model.unit import TransientUnit
from podslice.reconcile.assess import Request, assess
from podslice.reconcile.world import LiveWorld
from podslice.store.store import Records, Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import USER
from tests.unit.converged import apply, delete
from tests.unit.properties.strategies import COMPUTE, configs, decisions, few, nodes, worlds

small_worlds = worlds(names=COMPUTE, max_pods=3, max_containers=2)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Unused directories, one for each example."""
    base = tmp_path_factory.mktemp("places")
    return (base / str(number) for number in itertools.count())


@st.composite
def changes(draw):
    """A node, and two configurations and sets of pods, one to come after the other."""
    node = draw(nodes)
    one, other = draw(configs), draw(configs)
    # records keep to the root below which they were written
    other = replace(other, cgroup_root=one.cgroup_root)
    return node, (one, draw(small_worlds)), (other, draw(small_worlds))


def world_at(place, client, node, config):
    return LiveWorld(
        node=node,
        config=config,
        store=Store(place / "run", cgroup_root=config.cgroup_root),
        client=client,
        manager=USER,
        cgroups=CgroupFs(mount=place / "cgroup"),
    )


def make_client():
    client = FakeSystemd(manager=USER)
    client.provide("podruntime.slice")
    return client


async def units_of(client):
    return await client.observe(["*"])


async def run_something(client, world, pods):
    """A process in the first container of every pod, as far as its slice is there."""
    state = await assess(world)
    there = {decision.pod.key: decision.slice for decision in state.desired.pods}
    for pod in pods:
        if pod.key in there:
            scope = scope_name(pod.uid, pod.containers[0].name)
            properties = {"Slice": there[pod.key], "PIDs": (4242,)}
            await client.start(TransientUnit(name=scope, properties=properties))


async def settle(world, pods, *, prune):
    """Apply, and check that nothing is left to do afterwards."""
    candidates = decisions(pods, world.node, world.config)
    report = await apply(world, Request(candidates=candidates, prune=prune))
    assert not report.remaining.steps
    state = await assess(world, Request(candidates=candidates, prune=prune))
    assert not state.plan.steps
    assert [each.pod for each in state.plan.refused] == [each.pod for each in report.refused]


@few
@given(changes(), st.booleans(), st.booleans())
def test_after_applying_there_is_nothing_to_do(places, change, running, prune):
    node, (one, before), (other, after) = change
    place, client = next(places), make_client()

    async def story():
        await settle(world_at(place, client, node, one), before, prune=False)
        if running:
            await run_something(client, world_at(place, client, node, one), before)
        await settle(world_at(place, client, node, other), after, prune=prune)

    asyncio.run(story())


@few
@given(changes(), st.integers(0, 12), st.booleans())
def test_after_a_kill_at_any_call_the_next_run_has_the_same_result(places, change, calls, prune):
    node, (one, before), (other, after) = change

    async def story(*, broken):
        place, client = next(places), make_client()
        await settle(world_at(place, client, node, one), before, prune=False)
        world = world_at(place, client, node, other)
        if broken:
            client.break_after(calls)
            try:
                await apply(world, Request(candidates=decisions(after, node, other), prune=prune))
            except PodsliceError:
                pass
            else:
                client.break_after(10**6)
        await settle(world, after, prune=prune)
        units = [replace(each, started_usec=0) for each in await units_of(client)]
        return units, world.store.load()

    assert asyncio.run(story(broken=True)) == asyncio.run(story(broken=False))


@few
@given(changes(), st.booleans())
def test_deleting_everything_leaves_nothing(places, change, running):
    node, (config, pods), _ = change
    place, client = next(places), make_client()
    # what is enforced on the slices of others is theirs, and stays
    config = replace(config, enforce_node_allocatable=frozenset())

    async def story():
        world = world_at(place, client, node, config)
        await settle(world, pods, prune=False)
        if running:
            await run_something(client, world, pods)
        report = await delete(world, None)
        assert report.exit_code == 0
        assert await client.observe(world.tree.patterns) == ()
        assert world.store.load() == Records()

    asyncio.run(story())
