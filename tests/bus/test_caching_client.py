"""The caching client with the signals of a real systemd."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import Manager, TransientUnit, UnitName
from podslice.systemd.bus import Bus
from podslice.systemd.caching_client import CachingClient

ROOT, POD = UnitName("podslicetest.slice"), UnitName("podslicetest-p7.slice")
PATTERNS = ("podslicetest.slice", "podslicetest-*")
PODS = [
    TransientUnit(
        name=UnitName(f"podslicetest-p{n}.slice"),
        properties={"DefaultDependencies": False, "CPUWeight": 5, "MemoryMax": 1 << 30},
    )
    for n in range(100)
]


@pytest.fixture(params=["machine", "old_machine"])
def machine_(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def other(machine_):
    """Another program's client; there are a hundred slices."""
    async with Bus(Manager(bus_address=machine_.bus_address)) as client:
        await client.start_batch(PODS)
        yield client
        await client.stop(ROOT)
        # a scope whose process ends while it comes up has failed, and keeps its slice loaded
        failed = ("systemctl", "reset-failed", "podslicetest-*")
        await asyncio.to_thread(machine_.run, *failed, check=False)
        # what was there at a reload or a reexec stays loaded after its end, until the next reload
        async with asyncio.timeout(30):
            while await client.list_units(PATTERNS):
                await asyncio.to_thread(machine_.run, "systemctl", "daemon-reload")


@pytest.fixture
async def client(machine_, other):
    def forget(name):
        remembering.forget(name)

    cgroups = CgroupFs(mount=(machine_.root or Path("/")) / "sys/fs/cgroup")
    remembering = CachingClient(
        Bus(Manager(bus_address=machine_.bus_address), on_change=forget), cgroups
    )
    async with remembering as client:
        await client.observe(PATTERNS)
        yield client


async def look(client):
    """What there is; what it uses may be older."""
    units = await client.observe(PATTERNS)
    return [replace(unit, tasks=0, memory_bytes=None) for unit in units]


async def until_same(client, other):
    async with asyncio.timeout(10):
        while await look(client) != await look(other):
            pass


async def test_changes_of_other_programs_are_observed(client, other, machine_):
    await other.stop(POD)
    await until_same(client, other)
    await other.start(PODS[7])
    await until_same(client, other)
    run = ("systemd-run", "--quiet", "--scope", f"--slice={POD}", "--unit=podslicetest-s")
    process = machine_.spawn(*run, "sleep", "1000")
    while len(await client.observe(["*-s.scope"])) != 1:
        pass
    process.kill()
    process.wait()
    await until_same(client, other)
    await asyncio.to_thread(machine_.run, "systemctl", "daemon-reexec")
    await until_same(client, other)


async def test_changes_without_a_signal_are_found(client, other, machine_):
    assert client.verify() == ()
    set_property = ("systemctl", "set-property", "--runtime", POD, "CPUWeight=700")
    await asyncio.to_thread(machine_.run, *set_property)
    (seen,) = (unit for unit in await client.observe(PATTERNS) if unit.name == POD)
    assert seen.properties["CPUWeight"] == 5
    assert client.verify() == (POD,)
    await until_same(client, other)
    assert client.verify() == ()
    assert len(await other.list_units(PATTERNS)) == 101


async def test_observing_unchanged_units_is_cheap(client, other):
    spent = {}
    for each in (client, other):
        start = time.process_time()
        for _ in range(3):
            await each.observe(PATTERNS)
        spent[each] = time.process_time() - start
    assert spent[client] < spent[other] / 5
