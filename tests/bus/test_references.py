"""Services that name a slice with `Slice=`, before it exists, with it, and after its end."""

import asyncio

import pytest

from podslice.model.unit import Manager, TransientUnit, UnitName
from podslice.systemd.bus import Bus

ROOT, POD = UnitName("podslicetest.slice"), UnitName("podslicetest-podweb.slice")
NAME = "podslicetest-web.service"
FILE = f"/etc/systemd/system/{NAME}"
UNIT = f"[Service]\nSlice={POD}\nExecStart=sleep 1000\n"


@pytest.fixture(params=["old_machine", "machine", "new_machine"])
def host(request):
    machine = request.getfixturevalue(request.param)
    yield machine
    machine.run("rm", "-f", FILE)
    machine.run("systemctl", "stop", NAME, ROOT, check=False)
    machine.run("systemctl", "daemon-reload")


async def systemctl(host, *argv):
    return await asyncio.to_thread(host.run, "systemctl", *argv, check=False)


async def start(host):
    return (await systemctl(host, "start", NAME)).stderr.strip()


async def test_a_service_that_names_a_removed_slice(host):
    """As podslice(1) has it. At a daemon-reload systemd reads which unit files there are."""
    fails = host.systemd_version < 262
    slice_ = TransientUnit(name=POD, properties={"DefaultDependencies": False, "CPUWeight": 7})
    host.put(FILE, UNIT)
    await systemctl(host, "daemon-reload")
    assert await start(host) == ""  # it was never there: systemd makes it
    await systemctl(host, "stop", ROOT)
    async with Bus(Manager(bus_address=host.bus_address)) as client:
        await client.start(slice_)
        await systemctl(host, "daemon-reload")
        assert await start(host) == ""
        await client.stop(ROOT)
        refused = f"Failed to start {NAME}: Unit {POD} not found."
        assert await start(host) == (refused if fails else "")
        # the pod is applied again
        await client.start(slice_)
        assert await start(host) == ""
        (unit,) = await client.observe([POD])
        assert unit.properties["CPUWeight"] == 7
        await client.stop(ROOT)
        # or systemd finds the file removed: then there is no limit
        await systemctl(host, "daemon-reload")
        assert await start(host) == ""
        (unit,) = await client.observe([POD])
        assert unit.properties["CPUWeight"] != 7
