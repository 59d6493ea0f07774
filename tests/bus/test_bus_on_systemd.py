"""The client on real systemd: interruptions, repeated calls, descriptors, access rights."""

import asyncio
import io
import os
import sys

import pytest
from podslice.systemd.dbus.library._private.unmarshaller import Unmarshaller
from podslice.systemd.dbus.library.signature import Variant

from podslice.errors import BadProperty, BusUnavailable
from podslice.kernel.host import read_possible
from podslice.model.properties import PROPERTIES
from podslice.model.unit import Manager, TransientUnit, UnitName
from podslice.systemd.bus import Bus
from podslice.systemd.values import is_as_requested
from tests.bus.scripted_bus import NAME, SCOPE, TIMER, UNIT, descriptors, until
from tests.lab.paths import source_dir

pytestmark = pytest.mark.usefixtures("settled")


def slices(count, *, parent="podslicetest"):
    properties = {"DefaultDependencies": False, "MemoryMax": 1 << 30, "CPUWeight": 5}
    return [
        TransientUnit(name=UnitName(f"{parent}-p{n}.slice"), properties=properties)
        for n in range(count)
    ]


@pytest.fixture
async def client(machine):
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        yield client
        await client.stop(NAME)
        assert await client.observe(["podslice*"]) == ()


async def count(client):
    return len(await client.observe(["podslicetest-*"]))


@pytest.fixture(scope="session", params=["machine", "old_machine"])
def either_machine(request):
    return request.getfixturevalue(request.param)


async def test_a_repeated_start_recognizes_its_unit(either_machine):
    """After an interruption: with every property that a unit of its kind can be started with."""
    machine = either_machine
    process = machine.spawn("sleep", "1000")
    shared = {"Slice": NAME, "Description": "it", "CollectMode": "inactive-or-failed"}
    container = {
        "Delegate": True,
        "TimeoutStopUSec": 10_000_000,
        "KillMode": "mixed",
        "SendSIGHUP": True,
    }
    command = (("/bin/sh", ("sh", "-c", ": $$A; exec sleep 1000"), False),)
    kinds = {
        "podslicetest-a.scope": {**container, "PIDs": (process.pid,), "MemoryMax": 1 << 30},
        "podslicetest-a.service": {
            **container,
            "Type": "exec",
            "ExecStart": command,
            "ExecStopPost": (("/bin/true", ("true",), True),),
            "Environment": ("A=b c", 'D="$x"%'),
            "WorkingDirectory": "/tmp",
            "OOMScoreAdjust": 5,
            "RemainAfterExit": False,
            "CPUWeight": 7,
        },
        "run-podslicetest.mount": {
            "What": "tmpfs",
            "Type": "tmpfs",
            "Options": "mode=0777,size=1048576",
            "DirectoryMode": 0o700,
            "LazyUnmount": True,
        },
    }
    units = [
        TransientUnit(name=UnitName(name), properties={**shared, **more})
        for name, more in kinds.items()
    ]
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        for unit in units:
            await client.start(unit)
        for unit in units:
            assert is_as_requested(unit, await client.properties(unit.name))
            other = TransientUnit(name=unit.name, properties={**unit.properties, "Description": ""})
            assert not is_as_requested(other, await client.properties(unit.name))
        mounts = machine.get("/proc/self/mountinfo").decode()
        assert "/run/podslicetest " in mounts
        await client.stop(NAME)
        assert "/run/podslicetest " not in machine.get("/proc/self/mountinfo").decode()
        assert await client.observe(["podslice*", "run-podslice*"]) == ()
    machine.run("rmdir", "/run/podslicetest")
    process.wait()


async def test_an_unmounted_mount_is_started_again(either_machine):
    """It stays loaded, and down, while another unit refers to it."""
    machine = either_machine
    volume = TransientUnit(
        name=UnitName("run-podslicetest.mount"),
        properties={"What": "tmpfs", "Type": "tmpfs", "Slice": NAME},
    )
    later = UnitName("podslicetest-later.slice")
    after = TransientUnit(name=later, properties={"After": (volume.name,)})
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        for unit in (after, volume):
            await client.start(unit)
        machine.run("umount", "/run/podslicetest")
        async with asyncio.timeout(10):
            while any(
                unit.active_state == "active" for unit in await client.observe([volume.name])
            ):
                pass
        await client.start(volume)
        (found,) = await client.observe([volume.name])
        assert (found.active_state, found.properties["Slice"]) == ("active", NAME)
        await client.stop(NAME)
        assert await client.observe(["podslice*", "run-podslice*"]) == ()
    machine.run("rmdir", "/run/podslicetest")


async def test_descriptor_of_a_process_that_exited(client, machine):
    assert (await client.caps()).pidfds
    child = await asyncio.create_subprocess_exec("sleep", "1000")
    descriptor = os.pidfd_open(child.pid)
    child.kill()
    await child.wait()
    unit = TransientUnit(name=SCOPE, properties={"PIDFDs": (descriptor,)})
    with pytest.raises(BadProperty, match=r"^a\.scope: a process has exited"):
        await client.start(unit)
    os.close(descriptor)


async def test_an_empty_list_of_cpus_is_written_as_all_of_them_first(client, monkeypatch):
    """The kernel refuses an empty one for a control group with processes."""
    sent, write = [], Bus._write_properties

    async def record(self, name, values):
        sent.append(values)
        await write(self, name, values)

    monkeypatch.setattr(Bus, "_write_properties", record)
    await client.start_transient(TransientUnit(name=NAME, properties={"AllowedCPUs": "0"}))
    await client.set_properties(NAME, {"AllowedCPUs": ""})
    assert sent == [{"AllowedCPUs": read_possible("AllowedCPUs")}, {"AllowedCPUs": ""}]


async def test_five_hundred_at_once(client):
    units = slices(500)
    await asyncio.gather(*(client.start(unit) for unit in units))
    assert await count(client) == 500
    await asyncio.gather(*(client.set_properties(unit.name, {"CPUWeight": 6}) for unit in units))
    found = await client.observe(["podslicetest-*"])
    assert {unit.properties["CPUWeight"] for unit in found} == {6}
    await asyncio.gather(*(client.stop(unit.name) for unit in units))
    assert await count(client) == 0


async def test_five_hundred_in_batches_at_once(client):
    units = slices(500)
    batches = [units[start : start + 64] for start in range(0, 500, 64)]
    await asyncio.gather(*(client.start_batch(batch) for batch in batches))
    assert await count(client) == 500
    await asyncio.gather(*(client.stop_batch([unit.name for unit in batch]) for batch in batches))
    assert await count(client) == 0


@pytest.mark.parametrize("in_batches", [False, True])
async def test_systemd_restarts_in_the_middle(client, *, in_batches):
    units = slices(200)
    size = 20 if in_batches else 1
    batches = [units[start : start + size] for start in range(0, 200, size)]

    async def start(batch):
        await (client.start_batch(batch) if in_batches else client.start(batch[0]))

    async def stop(batch):
        names = [unit.name for unit in batch]
        await (client.stop_batch(names) if in_batches else client.stop(names[0]))

    async def restart():
        connection = await client.systemd.connected()
        where = {
            "path": "/org/freedesktop/systemd1",
            "interface": "org.freedesktop.systemd1.Manager",
        }
        with pytest.raises(BusUnavailable):  # it can't answer this one
            await connection.call("Reexecute", **where, about="systemd")

    for work, expected in ((start, 200), (stop, 0)):
        works = [work(batch) for batch in batches]
        works.insert(len(works) // 2, restart())
        await asyncio.gather(*works)
        assert await count(client) == expected


async def test_reload_in_the_middle(client, machine):
    tasks = [asyncio.create_task(client.start(unit)) for unit in slices(100)]
    await until(lambda: any(task.done() for task in tasks))
    reload = machine.spawn("systemctl", "daemon-reload")
    await asyncio.gather(*tasks)
    reload.wait()
    assert await count(client) == 100


async def test_connection_cut_in_the_middle(client):
    tasks = [asyncio.create_task(client.start(unit)) for unit in slices(100)]
    await until(lambda: any(task.done() for task in tasks))
    assert client.systemd.connection
    client.systemd.connection.abort()
    await asyncio.gather(*tasks)
    assert await count(client) == 100


@pytest.mark.parametrize("how", ["reexec", "cut"])
async def test_changes_are_reported_after_an_interruption(either_machine, how):
    changes = []
    async with (
        Bus(Manager(bus_address=either_machine.bus_address)) as other,
        Bus(Manager(bus_address=either_machine.bus_address), on_change=changes.append) as client,
    ):
        for _ in range(2):
            assert changes.count(None) == 1
            if how == "reexec":
                await asyncio.to_thread(either_machine.run, "systemctl", "daemon-reexec")
            else:
                assert client.systemd.connection
                client.systemd.connection.abort()
            await until(lambda: changes.count(None) == 2)
            await client.caps()
            assert changes.count(None) == 3
            await other.start(UNIT)
            await until(lambda: NAME in changes)
            await other.stop(NAME)
            changes[:] = [None]


async def test_a_repeated_start_recognizes_its_timer(either_machine):
    when, what = TIMER
    delays = {"TimersMonotonic": (("OnActiveSec", 10**9), ("OnBootSec", 10**10))}
    more = {"AccuracyUSec": 1000, "RemainAfterElapse": False, "Description": "it"}
    when = TransientUnit(name=when.name, properties={**delays, **more})
    async with Bus(Manager(bus_address=either_machine.bus_address)) as client:
        await client.start_timer(when, what)
        found = await client.properties(when.name)
        assert is_as_requested(when, found)
        assert is_as_requested(what, await client.properties(what.name))
        for key, value in (("TimersMonotonic", (("OnActiveSec", 1),)), ("AccuracyUSec", 1)):
            other = TransientUnit(name=when.name, properties={**when.properties, key: value})
            assert not is_as_requested(other, found)
        await client.stop(when.name)
        assert await client.list_units([when.name, what.name]) == ()


async def test_canceled_starts_leave_a_client_that_works(client):
    tasks = [asyncio.create_task(client.start(unit)) for unit in slices(100)]
    await until(lambda: any(task.done() for task in tasks))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.stop(NAME)
    assert await count(client) == 0


KILLED = """
import asyncio, sys
from podslice.model.unit import Manager
from podslice.model.unit import TransientUnit
from podslice.systemd.bus import Bus

async def main():
    async with Bus(Manager(bus_address=sys.argv[1])) as client:
        print("ready", flush=True)
        for n in range(1000):
            names = [f"podslicetest-{n}x{m}.slice" for m in range(20)]
            units = [TransientUnit(name=name, properties={"CPUWeight": 5}) for name in names]
            await client.start_batch(units)
            await client.stop_batch(names)

asyncio.run(main())
"""


@pytest.mark.parametrize("delay_msec", [3, 10, 20, 33])
async def test_killed_client_leaves_no_throw_away_units(client, machine, delay_msec):
    address = machine.bus_address
    assert address is not None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, address), cwd=source_dir(), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    await process.stdout.readline()
    await asyncio.sleep(delay_msec / 1000)  # some place in the middle, the more the better
    process.kill()
    await process.wait()
    async with asyncio.timeout(10):
        while await client.observe(["podslicebatch*"]):
            pass


async def test_descriptors_over_fifty_real_connections(machine):
    before = descriptors()
    for _ in range(50):
        async with Bus(Manager(bus_address=machine.bus_address)) as client:
            await client.caps()
    assert descriptors() == before


UNPRIVILEGED = """
import asyncio, sys
from podslice.errors import Refused
from podslice.model.unit import TransientUnit
from podslice.model.unit import SYSTEM
from podslice.systemd.bus import Bus

async def main():
    unit = TransientUnit(name="podslicetest.slice", properties={"CPUWeight": 5})
    async with Bus(SYSTEM) as client:
        assert await client.observe(["system.slice"])
        for call in (client.start(unit), client.stop("podslicetest.slice"),
                     client.set_properties("system.slice", {"CPUWeight": 5})):
            try:
                await call
            except Refused as error:
                print(error)

asyncio.run(main())
"""

USER = """
import asyncio, sys
from podslice.model.unit import TransientUnit
from podslice.systemd.bus import Bus
from podslice.kernel.proc import find_manager

async def main():
    unit = TransientUnit(name="podslicetest.slice", properties={"CPUWeight": 5})
    async with Bus(find_manager(user=True)) as client:
        await client.start(unit)
        print((await client.caps()).manager.is_user, *(u.name for u in await client.observe(["pods*"])))
        await client.stop("podslicetest.slice")
        print(*await client.observe(["pods*"]))

asyncio.run(main())
"""


SUBSCRIBED = """
import asyncio, sys
from podslice.model.unit import TransientUnit
from podslice.model.unit import SYSTEM
from podslice.systemd.bus import Bus
from podslice.kernel.proc import find_manager

async def main():
    changes = []
    unit = TransientUnit(name="podslicetest.slice", properties={"CPUWeight": 5})
    async with Bus(SYSTEM, on_change=changes.append) as system, Bus(find_manager(user=True), on_change=changes.append) as user:
        await system.caps()
        await user.start(unit)
        await user.stop(unit.name)
        async with asyncio.timeout(10):
            while changes.count(unit.name) < 2:
                await asyncio.sleep(0)
        print(changes.count(None))

asyncio.run(main())
"""


def run_as_user(machine, script):
    environment = {"PYTHONPATH": "/src", "XDG_RUNTIME_DIR": "/run/user/1000"}
    command = ("runuser", "-u", "lab", "--", "python3", "-c", script)
    return machine.run(*command, env=environment).stdout


def test_writes_without_rights_are_refused_with_a_hint(machine):
    lines = run_as_user(machine, UNPRIVILEGED).splitlines()
    assert len(lines) == 3
    assert all("access denied" in line and "run as root, or use --user" in line for line in lines)
    assert [line.partition(":")[0] for line in lines] == [NAME, NAME, "system.slice"]


def test_user_manager(machine):
    machine.run("loginctl", "enable-linger", "lab")
    try:
        machine.run("systemctl", "start", "user@1000.service")
        assert run_as_user(machine, USER) == "True podslicetest.slice\n\n"
        assert run_as_user(machine, SUBSCRIBED) == "2\n"
    finally:
        machine.run("loginctl", "disable-linger", "lab")


RANGES = [row for row in PROPERTIES.values() if row.unset is not None and row.minimum]


@pytest.mark.parametrize("row", RANGES, ids=lambda row: row.name)
async def test_ranges_are_those_of_systemd(client, row):
    """Values that the checks in front refuse are refused by systemd itself; but see the period."""
    unit = TransientUnit(name=NAME, properties={row.name: row.minimum - 1})
    if row.name == "CPUQuotaPeriodUSec":
        await client.start_transient(unit)  # taken, and clamped when it is written to the kernel
    else:
        with pytest.raises(BadProperty):
            await client.start_transient(unit)


async def test_decoder_agrees_with_dbus_next_on_every_unit(client):
    reply = await client.systemd.call("ListUnits", about="units")
    (rows,) = reply.body()
    assert reply.body() == decode_with_dbus_next(reply)
    assert len(rows) > 50
    for row in rows:
        reply = await client.systemd.all_properties(row[0], "")
        (expected,) = decode_with_dbus_next(reply)
        assert reply.body() == (expected,)
        assert reply.properties(expected) == expected
        some = set(list(expected)[::7])
        assert reply.properties(some) == {key: expected[key] for key in some}


def decode_with_dbus_next(message):
    return plain(Unmarshaller(io.BytesIO(message.frame)).unmarshall().body)


def plain(value):
    """A value of dbus-next as ours: tuples, and no Variants."""
    match value:
        case Variant():
            return plain(value.value)
        case list() | bytes():
            return tuple(map(plain, value))
        case dict():
            return {key: plain(one) for key, one in value.items()}
    return value
