"""`inspect` over the bus: what it reads, and which settings it reports."""

from __future__ import annotations

import pytest
from podslice.systemd.dbus.library.signature import Variant

from podslice.model.unit import INFINITY, UnitName
from tests.bus.scripted_bus import ScriptedBus

WEB = UnitName("web.service")
BATCH = UnitName("batch.slice")
FILE = {
    "LoadState": Variant("s", "loaded"),
    "ActiveState": Variant("s", "inactive"),
    "FragmentPath": Variant("s", "/etc/systemd/system/web.service"),
    "Transient": Variant("b", False),
    "Perpetual": Variant("b", False),
    "Description": Variant("s", "The web shop"),
    "ControlGroup": Variant("s", ""),
    "Slice": Variant("s", "system.slice"),
    "CPUWeight": Variant("t", 50),
    "MemoryMax": Variant("t", INFINITY),
    "TasksMax": Variant("t", 4915),
}
FURTHER = {
    "StartupIOWeight": Variant("t", 50),
    "StartupCPUWeight": Variant("t", INFINITY),
    "StartupAllowedMemoryNodes": Variant("ay", b"\x0f\x01"),
    "StartupAllowedCPUs": Variant("ay", b""),
    "IODeviceWeight": Variant("a(st)", [["/dev/sda", 50]]),
    "ManagedOOMPreference": Variant("s", "avoid"),
    "ManagedOOMSwap": Variant("s", "auto"),
    "StartupMemoryZSwapMax": Variant("t", 0),
    "MemoryZSwapWriteback": Variant("b", False),
    "OOMScoreAdjust": Variant("i", -900),
    "DevicePolicy": Variant("s", "closed"),
}


@pytest.fixture
async def bus(tmp_path):
    async with ScriptedBus(tmp_path / "bus") as bus:
        yield bus


async def inspect(bus, name, properties):
    async def script(caller, call):
        if call.member == "GetAll":
            caller.reply(call, "a{sv}", properties)
        else:
            assert call.body()[1] == "DefaultTasksMax"
            caller.reply(call, "v", Variant("t", 4915))

    bus.script = script
    async with bus.client() as client:
        return await bus.settle(client.inspect(name))


async def test_an_inactive_service_has_its_settings(bus):
    found = await inspect(bus, WEB, {**FILE, **FURTHER})
    assert found is not None
    assert found.observed.properties["CPUWeight"] == 50
    assert found.observed.properties["Slice"] == "system.slice"
    assert (found.observed.active_state, found.observed.control_group) == ("inactive", "")
    assert found.observed.fragment_path == "/etc/systemd/system/web.service"
    assert found.further == {
        "StartupAllowedMemoryNodes": "0-3,8",
        "IODeviceWeight": "",
        "StartupIOWeight": "50",
        "ManagedOOMPreference": "avoid",
        "StartupMemoryZSwapMax": "0",
        "MemoryZSwapWriteback": "no",
        "OOMScoreAdjust": "-900",
    }


async def test_the_limit_of_tasks_is_set_where_it_differs_from_the_default(bus):
    default = await inspect(bus, WEB, FILE)
    changed = await inspect(bus, WEB, {**FILE, "TasksMax": Variant("t", 100)})
    of_slice = await inspect(bus, BATCH, {**FILE, "DevicePolicy": Variant("s", "closed")})
    unlimited = {**FILE, "TasksMax": Variant("t", INFINITY)}
    units = (default, changed, of_slice, *[await inspect(bus, n, unlimited) for n in (WEB, BATCH)])
    found = [each and each.further for each in units]
    assert found == [
        {},
        {"TasksMax": "100"},
        {"DevicePolicy": "closed", "TasksMax": "4915"},
        {"TasksMax": "infinity"},
        {},
    ]


@pytest.mark.parametrize(
    "states",
    [
        {"LoadState": "not-found", "FragmentPath": ""},
        # systemd has an inactive slice for every name
        {"LoadState": "loaded", "FragmentPath": ""},
    ],
)
async def test_a_name_without_a_unit_is_none(bus, states):
    properties = FILE | {key: Variant("s", value) for key, value in states.items()}
    assert await inspect(bus, WEB, properties) is None


async def test_a_masked_unit_has_no_settings(bus):
    found = await inspect(bus, WEB, {**FILE, "LoadState": Variant("s", "masked")})
    assert found is not None
    assert found.observed.load_state == "masked"
    assert not found.observed.properties
    assert not found.further
