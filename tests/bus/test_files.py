"""Slices read from systemd's files equal what systemd returns, or are left to systemd."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest

from podslice.model.unit import INFINITY, Manager, TransientUnit, UnitName
from podslice.systemd.bus import Bus
from podslice.systemd.slice_files import parse_slice
from tests.bus.files import ACCOUNTING, files_of
from tests.lab.machine import START_SERVICE

VALUES = {
    "none": {},
    "amounts": {"CPUWeight": 71, "MemoryMin": 4096, "MemoryLow": 8192, "MemoryMax": 2**31},
    "nothing": {"MemoryLow": 0, "CPUWeight": 0, "MemorySwapMax": 0},
    "quota": {"CPUQuotaPerSecUSec": 470_000, "CPUQuotaPeriodUSec": 50_000},
    "long": {"CPUQuotaPerSecUSec": 12_340_000, "CPUQuotaPeriodUSec": 1_000_000},
    "unset": {"CPUQuotaPerSecUSec": INFINITY, "MemoryMax": INFINITY, "TasksMax": INFINITY},
    "tasks": {"TasksMax": 77, "MemoryHigh": 2**30},
    "oomd": {"ManagedOOMSwap": "kill", "ManagedOOMMemoryPressure": "auto"},
}


@pytest.fixture(params=["machine", "old_machine"])
def lab(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
async def top(lab):
    name = UnitName(f"podslicetest{secrets.token_hex(4)}.slice")
    yield name
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        await bus.stop(name)


class Counted:
    """Files that record which slices they observe."""

    def __init__(self, lab):
        self._files = files_of(lab)
        self.found = set()

    def observe(self, listed, unit_path, top):
        found = self._files.observe(listed, unit_path, top)
        self.found |= found.keys()
        return found


def unit(top, part="", **properties):
    stem = top.removesuffix(".slice")
    name = f"{stem}-{part}.slice" if part else top
    return TransientUnit(
        name=UnitName(name), properties={"DefaultDependencies": False, **ACCOUNTING, **properties}
    )


async def both(lab, top):
    """Return the slices over the bus, those from files, and the names that the files observed."""
    patterns = [top, top.replace(".slice", "-*.slice")]
    files = Counted(lab)
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        over_bus = await bus.observe(patterns)
    async with Bus(Manager(bus_address=lab.bus_address), files=files) as bus:
        read = await bus.observe(patterns)
    assert [each.memory_bytes is None for each in read] == [
        x.memory_bytes is None for x in over_bus
    ]
    return list(map(at_rest, over_bus)), list(map(at_rest, read)), files.found


def at_rest(unit):
    """Its memory may change between two looks, and the time of its start is not in its file."""
    return replace(unit, memory_bytes=None, started_usec=0)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
async def test_files_agree_with_systemd(lab, top, values):
    units = [unit(top), unit(top, "a", **values), unit(top, "a-b", **values)]
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        await bus.start_batch(units)
    over_bus, read, found_by_files = await both(lab, top)
    assert read == over_bus
    assert found_by_files == {each.name for each in units}


async def test_tasks_and_usage_are_observed(lab, top):
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        await bus.start(unit(top))
    service = f"{top.removesuffix('.slice')}.service"
    run = (*START_SERVICE, f"--unit={service}", f"--slice={top}")
    lab.run(*run, "sleep", "1000")
    over_bus, read, found_by_files = await both(lab, top)
    assert found_by_files == {top}
    assert read[0].tasks == over_bus[0].tasks == 1
    lab.run("systemctl", "stop", service)


async def test_a_slice_that_was_changed_is_asked_for(lab, top):
    names = [unit(top), unit(top, "a", CPUWeight=5), unit(top, "b", CPUWeight=5)]
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        await bus.start_batch(names)
        await bus.set_properties(names[1].name, {"CPUQuotaPerSecUSec": 123_400})
    over_bus, read, found_by_files = await both(lab, top)
    assert read == over_bus
    assert found_by_files == {top, names[2].name}


@pytest.mark.parametrize("directory", ["slice.d", "{stem}-.slice.d", "{stem}-a.slice.d"])
async def test_a_drop_in_leaves_a_slice_to_systemd(lab, top, directory):
    stem = top.removesuffix(".slice")
    path = f"/run/systemd/system/{directory.format(stem=stem)}"
    lab.put(f"{path}/50-x.conf", "[Slice]\nCPUWeight=77\n")
    lab.run("systemctl", "daemon-reload")
    try:
        async with Bus(Manager(bus_address=lab.bus_address)) as bus:
            await bus.start_batch([unit(top), unit(top, "a", CPUWeight=5)])
        over_bus, read, found_by_files = await both(lab, top)
    finally:
        lab.run("rm", "-r", path)
        lab.run("systemctl", "daemon-reload")
    assert read == over_bus
    by_name = {each.name: each for each in read}
    assert by_name[f"{stem}-a.slice"].properties["CPUWeight"] == 77
    assert f"{stem}-a.slice" not in found_by_files


async def test_an_implied_slice_is_read_over_the_bus(lab, top):
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        await bus.start(unit(top, "a", MemoryMax=2**30))
    over_bus, read, found_by_files = await both(lab, top)
    assert read == over_bus
    assert found_by_files == {f"{top.removesuffix('.slice')}-a.slice"}
    assert [each.transient for each in read if each.name == top] == [False]


async def test_values_outlive_a_reload(lab, top):
    async with Bus(Manager(bus_address=lab.bus_address)) as bus:
        await bus.start(unit(top, **VALUES["quota"]))
    lab.run("systemctl", "daemon-reload")
    over_bus, read, found_by_files = await both(lab, top)
    assert read == over_bus
    assert found_by_files == {top}


HEAD = "# a comment\n[Slice]\n" + "".join(f"{name}=yes\n" for name in ACCOUNTING)


def test_unknown_properties_are_read_over_the_bus():
    assert parse_slice(HEAD)["CPUWeight"] == INFINITY
    assert parse_slice(f"# x\n[Unit]\nWants=b\n{HEAD}CPUWeight=7\n")["CPUWeight"] == 7
    for more in (
        "IOReadBandwidthMax=/ 7",
        "StartupIOWeight=7",
        "AllowedCPUs=0",
        "MemoryMax=50%",
        "TasksMax=5.1%",
        "CPUQuotaPeriodSec=1min",
        "CPUQuota=x",
        "CPUWeight=\\",
        "words",
        "MemoryAccounting=maybe",
    ):
        assert parse_slice(f"{HEAD}{more}\n") is None, more
    assert parse_slice("# x\n[Slice]\nCPUWeight=7\n") is None, "accounting is as configured"


# as systemd 262 writes it, which ignores CPUAccounting=
FILE_OF_262 = """\
# This is a transient unit file, created programmatically via the systemd API. Do not edit.
[Slice]
MemoryAccounting=yes
IOAccounting=yes
TasksAccounting=yes
CPUWeight=50
MemoryMax=134217728
CPUQuota=25.00%
ManagedOOMSwap=kill
"""


def test_a_file_without_cpu_accounting_is_read():
    found = parse_slice(FILE_OF_262)
    assert found == parse_slice(FILE_OF_262.replace("[Slice]\n", "[Slice]\nCPUAccounting=yes\n"))
    assert (found["CPUQuotaPerSecUSec"], found["MemoryMax"]) == (250_000, 134_217_728)
