"""Drop-ins, triggers, aliases and the order of units, as a real systemd has them."""

import secrets

import pytest

from podslice.model.unit import Manager, UnitName
from podslice.systemd.bus import Bus

DIRECTORY = "/run/systemd/system"


@pytest.fixture(params=["machine", "old_machine"])
def lab(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def stem(lab):
    name = f"podslicetest{secrets.token_hex(4)}"
    yield name
    lab.run("sh", "-c", f"rm -r {DIRECTORY}/{name}*; systemctl daemon-reload")


async def read(lab, name):
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        return await bus.read_definition(UnitName(name))


async def test_files_of_a_unit(lab, stem):
    service, slice_ = f"{stem}.service", "podslicetest.slice"
    lab.put(f"{DIRECTORY}/{service}", "[Service]\nExecStart=true\nSlice=system.slice\n")
    lab.put(f"{DIRECTORY}/{service}.d/90-b.conf", f"[Service]\nSlice={slice_}\n")
    lab.put(f"{DIRECTORY}/{service}.d/50-a.conf", "[X-Podslice]\nPod=a/b\n")
    lab.put(f"{DIRECTORY}/{stem}.timer", "[Timer]\nOnCalendar=daily\n")
    lab.run("ln", "-s", service, f"{DIRECTORY}/{stem}-alias.service")
    lab.run("systemctl", "daemon-reload")
    found = await read(lab, f"{stem}-alias.service")
    assert (found.name, found.slice) == (service, slice_)
    paths = [f"{DIRECTORY}/{service}.d/{name}" for name in ("50-a.conf", "90-b.conf")]
    assert [each for each in found.drop_ins if each in paths] == paths
    assert (await read(lab, f"{stem}.timer")).triggers == (service,)
    lab.run("systemctl", "mask", "--runtime", f"{stem}-masked.service")
    assert (await read(lab, f"{stem}-masked.service")).load_state == "masked"


async def test_what_is_started_before_a_unit(lab, stem):
    for name, after in (("a", "dbus.service"), ("b", f"{stem}-a.service")):
        text = f"[Unit]\nAfter={after}\n[Service]\nExecStart=true\n"
        lab.put(f"{DIRECTORY}/{stem}-{name}.service", text)
    lab.run("systemctl", "daemon-reload")
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        found = await bus.read_predecessors(UnitName(f"{stem}-b.service"))
    assert {f"{stem}-a.service", "dbus.service", "sysinit.target"} <= found
    assert f"{stem}-b.service" not in found
