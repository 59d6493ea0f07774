"""Every sentence of podslice/systemd/client.py, held against a real systemd and the one in memory."""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

import pytest

from podslice.errors import BadProperty, BusUnavailable, JobFailed, NoSuchUnit, Refused, UnitExists
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import INFINITY, ObservedUnit, TransientUnit, UnitKind, UnitName, Value
from podslice.systemd.bus import Bus
from podslice.systemd.client import Client
from podslice.systemd.memory import Memory
from tests.lab.machine import Machine, Process

UNIT_DIR = "/run/systemd/system"
LEFT_BEHIND = ("/run/systemd/transient", "/run/systemd/system.control", "/etc/systemd/system")


class World(Protocol):
    """A service manager, with what tests need beside the client."""

    def client(self) -> Client: ...

    def new_process(self) -> int:
        """A process that sleeps, as the manager counts."""

    def fail_scope(self, name: UnitName) -> None:
        """Leave a scope in the failed state."""

    def provide(self, name: UnitName) -> None:
        """Have a slice with a file, started by somebody else."""

    def reload(self) -> None:
        """Let the manager read its files again."""

    def slow_start(self, unit: TransientUnit) -> TransientUnit:
        """The unit, such that its start does not end by itself, but can be canceled."""

    def cancel_start(self, unit: TransientUnit) -> None:
        """Cancel it."""

    def leftovers(self, stem: str) -> list[str]:
        """Files about units whose names begin so."""

    def close(self) -> None:
        """End what the test has begun."""


class InMemory:
    """The one that is under test as a stand-in for the other."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._pids = itertools.count(100)

    def client(self) -> Client:
        return self._memory

    def new_process(self) -> int:
        return next(self._pids)

    def fail_scope(self, name: UnitName) -> None:
        self._memory.provide(name)
        self._memory.fail(name)

    def provide(self, name: UnitName) -> None:
        self._memory.provide(name)

    def reload(self) -> None:
        self._memory.reload()

    def slow_start(self, unit: TransientUnit) -> TransientUnit:
        self._memory.refuse(unit.name, JobFailed("canceled", result="canceled"))
        return unit

    def cancel_start(self, unit: TransientUnit) -> None:
        self._memory.refuse(unit.name, None)

    def leftovers(self, stem: str) -> list[str]:
        return []

    def close(self) -> None:
        pass


class Real:
    """systemd of a lab machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._processes: list[Process] = []
        self._files: list[str] = []

    def client(self) -> Client:
        return Bus(address=self._machine.bus_address, timeout_sec=10)

    def new_process(self) -> int:
        self._processes.append(self._machine.spawn("sleep", "1000"))
        return self._processes[-1].pid

    def fail_scope(self, name: UnitName) -> None:
        ignores = "trap '' TERM; echo up; while :; do sleep 1; done"
        process = self._machine.spawn(
            *("systemd-run", "--scope", f"--unit={name}", "-p", "TimeoutStopSec=50ms"),
            *("sh", "-c", ignores),
        )
        self._processes.append(process)
        while self._machine.run("systemctl", "is-active", name, check=False).exit_code:
            pass
        self._machine.run("systemctl", "stop", name)

    def provide(self, name: UnitName) -> None:
        self._put(name, "[Unit]\nDescription=provided\n")
        self._machine.run("systemctl", "start", name)

    def reload(self) -> None:
        self._machine.run("systemctl", "daemon-reload")

    def slow_start(self, unit: TransientUnit) -> TransientUnit:
        slow = f"{unit.name.removesuffix('.slice')}slow.service"
        self._put(slow, "[Service]\nType=oneshot\nExecStart=sleep 1000\n")
        waits = {"Wants": (slow,), "After": (slow,)}
        return TransientUnit(name=unit.name, properties={**unit.properties, **waits})

    def cancel_start(self, unit: TransientUnit) -> None:
        self._machine.run("systemctl", "stop", unit.name)

    def leftovers(self, stem: str) -> list[str]:
        names = ("-name", f"{stem}*", "-o", "-name", "podslicebatch*")
        found = self._machine.run("find", *LEFT_BEHIND, *names, check=False).stdout.split()
        return [path for path in found if not path.endswith(tuple(self._drop_ins()))]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for file in self._files:
            self._machine.run("systemctl", "stop", file)
            self._machine.run("rm", f"{UNIT_DIR}/{file}")
        for drop_ins in self._drop_ins():
            self._machine.run("rm", "-rf", drop_ins)
        if self._files:
            self.reload()

    def _drop_ins(self) -> list[str]:
        """What set_properties leaves of units with a file, rightly, for the rest of the boot."""
        return [f"/run/systemd/system.control/{file}.d" for file in self._files]

    def _put(self, name: str, text: str) -> None:
        self._machine.put(f"{UNIT_DIR}/{name}", text)
        self._files.append(name)
        self.reload()


@pytest.fixture(params=["memory", "bus"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    is_real = request.param == "bus"
    made: World = Real(request.getfixturevalue("machine")) if is_real else InMemory()
    yield made
    made.close()


@pytest.fixture
def stem() -> str:
    return f"podslicetest{secrets.token_hex(4)}"


@pytest.fixture
def root(stem: str) -> UnitName:
    return UnitName(f"{stem}.slice")


@pytest.fixture
async def client(world: World, stem: str, root: UnitName) -> AsyncIterator[Client]:
    """A client, and the promise that nothing is left behind when our root has been stopped."""
    async with world.client() as client:
        yield client
        scopes = [unit.name for unit in await client.observe([f"{stem}*.scope"])]
        await client.stop_batch([root, *scopes])
        assert await client.observe([f"{stem}*", "podslicebatch*"]) == ()
    assert world.leftovers(f"{stem}") == []


def slice_(root: UnitName, *parts: str, **properties: Value) -> TransientUnit:
    name = UnitName("-".join([root.removesuffix(".slice"), *parts]) + ".slice")
    return TransientUnit(name=name, properties={"DefaultDependencies": False, **properties})


def scope(root: UnitName, part: str, *pids: int, **properties: Value) -> TransientUnit:
    name = UnitName(f"{root.removesuffix('.slice')}-{part}.scope")
    return TransientUnit(name=name, properties={"Slice": root, "PIDs": pids, **properties})


async def names(client: Client, root: UnitName) -> list[str]:
    """What comes behind the root's name, of everything there is below it."""
    stem = root.removesuffix(".slice")
    return [unit.name.removeprefix(stem) for unit in await client.observe([f"{stem}*"])]


async def look(client: Client, name: UnitName) -> ObservedUnit:
    (unit,) = await client.observe([name])
    return unit


# caps


async def test_caps_tells_the_version(client: Client) -> None:
    caps = await client.caps()
    assert caps.systemd_version >= 252
    assert not caps.user


# observe


async def test_observe_is_sorted_and_matches_globs(client: Client, root: UnitName) -> None:
    for part in ("c", "a", "b1", "b2"):
        await client.start(slice_(root, part))
    stem = root.removesuffix(".slice")
    found = await client.observe([f"{stem}-b?.slice", f"{stem}-[a].slice", f"{stem}-b*"])
    assert [unit.name for unit in found] == [f"{stem}-{part}.slice" for part in ("a", "b1", "b2")]


async def test_observe_of_nothing_is_nothing(client: Client, root: UnitName) -> None:
    assert await client.observe([]) == ()
    assert await client.observe([root]) == ()


async def test_observe_shows_what_was_asked_for(client: Client, root: UnitName) -> None:
    settings: dict[str, Value] = {
        "CPUWeight": 7,
        "CPUQuotaPerSecUSec": 480_000,
        "CPUQuotaPeriodUSec": 50_000,
        "MemoryMin": 4096,
        "MemoryLow": 8192,
        "MemoryHigh": 1 << 30,
        "MemoryMax": 1 << 31,
        "TasksMax": 99,
        "CPUAccounting": True,
        "IOAccounting": True,
    }
    unit = slice_(root, "a", Description="pod default/web", **settings)
    await client.start(unit)
    found = await look(client, unit.name)
    assert {key: found.properties[key] for key in settings} == settings
    assert found.description == "pod default/web"
    assert (found.load_state, found.active_state) == ("loaded", "active")
    assert found.control_group == f"/{root}/{unit.name}"
    assert found.properties["Slice"] == root
    assert (found.transient, found.fragment_path, found.tasks) == (True, "", 0)


async def test_observe_shows_what_is_not_set_as_unset(client: Client, root: UnitName) -> None:
    await client.start(slice_(root))
    found = await look(client, root)
    assert {key: found.properties[key] for key in MANAGED[UnitKind.SLICE]} == {
        key: PROPERTIES[key].unset for key in MANAGED[UnitKind.SLICE]
    }


async def test_observe_has_the_same_properties_for_every_slice(
    client: Client, root: UnitName
) -> None:
    await client.start(slice_(root, "a", "b"))
    shown = [set(unit.properties) for unit in await client.observe(["-.slice", f"{root[:-6]}*"])]
    assert shown == [shown[0]] * 4
    assert shown[0] == {
        row.name for row in PROPERTIES.values() if row.section != "Unit" and row.name != "PIDs"
    }


async def test_observe_counts_tasks_of_a_unit_and_below(
    client: Client, root: UnitName, world: World
) -> None:
    await client.start(slice_(root, "a"))
    unit = scope(root, "s", world.new_process(), world.new_process())
    await client.start(unit)
    assert (await look(client, unit.name)).tasks == 2
    assert (await look(client, root)).tasks == 2
    assert (await look(client, slice_(root, "a").name)).tasks == 0


async def test_observe_counts_tasks_that_systemd_does_not_count(
    client: Client, root: UnitName, world: World
) -> None:
    await client.start(slice_(root, TasksAccounting=False))
    unit = scope(root, "s", world.new_process(), TasksAccounting=False)
    await client.start(unit)
    assert [(await look(client, name)).tasks for name in (unit.name, root)] == [1, 1]


async def test_names_that_others_refer_to_are_no_units(client: Client, root: UnitName) -> None:
    missing = slice_(root, "no").name
    await client.start(slice_(root, "a", After=(missing,)))
    assert await names(client, root) == ["-a.slice", ".slice"]
    with pytest.raises(NoSuchUnit, match=missing):
        await client.set_properties(missing, {"CPUWeight": 5})
    await client.start(slice_(root, "no"))
    assert await names(client, root) == ["-a.slice", "-no.slice", ".slice"]


async def test_observe_tells_implied_slices(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a", "b"))
    found = {unit.name: unit for unit in await client.observe([f"{root[:-6]}*"])}
    parent = found[slice_(root, "a").name]
    assert (parent.transient, parent.fragment_path) == (False, "")
    assert (parent.active_state, parent.control_group) == ("active", f"/{root}/{parent.name}")


async def test_observe_tells_slices_with_a_file(
    client: Client, root: UnitName, world: World
) -> None:
    world.provide(root)
    found = await look(client, root)
    assert not found.transient
    assert found.fragment_path.endswith(f"/system/{root}")


async def test_observe_shows_built_in_slices(client: Client) -> None:
    top, system = await client.observe(["-.slice", "system.slice"])
    assert (top.control_group, system.control_group) == ("/", "/system.slice")
    assert not top.transient


async def test_observe_shows_a_failed_scope(client: Client, stem: str, world: World) -> None:
    name = UnitName(f"{stem}f.scope")
    world.fail_scope(name)
    assert (await look(client, name)).active_state == "failed"
    await client.reset_failed(name)
    assert await client.observe([name]) == ()


# start


async def test_start_makes_parents_that_are_implied(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a", "b"))
    assert await names(client, root) == ["-a-b.slice", "-a.slice", ".slice"]


async def test_start_adopts_an_implied_slice(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a"))
    await client.start(slice_(root, MemoryMax=1 << 30))
    found = await look(client, root)
    assert found.transient
    assert found.properties["MemoryMax"] == 1 << 30
    assert await names(client, root) == ["-a.slice", ".slice"]


async def test_start_of_an_existing_unit_changes_nothing(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a", MemoryMax=1 << 30))
    with pytest.raises(UnitExists, match=f"{root[:-6]}-a.slice"):
        await client.start(slice_(root, "a", MemoryMax=1 << 20, CPUWeight=9))
    found = await look(client, slice_(root, "a").name)
    assert found.properties["MemoryMax"] == 1 << 30
    assert found.properties["CPUWeight"] == INFINITY


async def test_start_of_a_unit_with_a_file(client: Client, root: UnitName, world: World) -> None:
    world.provide(root)
    with pytest.raises(UnitExists):
        await client.start(slice_(root))


async def test_start_takes_the_place_of_a_failed_scope(
    client: Client, stem: str, world: World
) -> None:
    unit = scope(UnitName(f"{stem}.slice"), "s", world.new_process())
    world.fail_scope(unit.name)
    await client.start(unit)
    assert (await look(client, unit.name)).active_state == "active"


BAD_VALUES = [
    ("CPUWeight", 10_001),
    ("CPUQuotaPerSecUSec", 0),
    ("CPUQuotaPeriodUSec", 999),
    ("CPUQuotaPeriodUSec", 1_000_001),
    ("MemoryMax", 0),
    ("MemoryHigh", 0),
    ("TasksMax", 0),
    ("MemoryMax", -1),
    ("MemoryMax", 1 << 64),
    ("NoSuchThing", 1),
    ("PIDs", (1,)),
]


@pytest.mark.parametrize(("key", "value"), BAD_VALUES)
async def test_start_refuses_values(client: Client, root: UnitName, key: str, value: Value) -> None:
    with pytest.raises(BadProperty, match=root):
        await client.start(slice_(root, **{key: value}))
    assert await names(client, root) == []


@pytest.mark.parametrize("key", [key for key in MANAGED[UnitKind.SLICE] if PROPERTIES[key].unset])
async def test_start_takes_infinity_where_it_means_unset(
    client: Client, root: UnitName, key: str
) -> None:
    await client.start(slice_(root, **{key: INFINITY}))
    assert (await look(client, root)).properties[key] == INFINITY


async def test_start_takes_the_ends_of_the_ranges(client: Client, root: UnitName) -> None:
    settings = {"CPUWeight": 0, "MemoryLow": 0, "MemoryMax": 1, "TasksMax": 1}
    await client.start(slice_(root, **settings))
    found = await look(client, root)
    assert {key: found.properties[key] for key in settings} == settings


@pytest.mark.parametrize("part", ["-b.slice", "b-.slice", "a--b.slice", "ä.slice", "b.service"])
async def test_start_refuses_names(client: Client, stem: str, part: str) -> None:
    with pytest.raises(BadProperty):
        await client.start(TransientUnit(name=UnitName(f"{stem}-{part}"), properties={}))


async def test_start_refuses_names_that_are_too_long(client: Client, stem: str) -> None:
    longest = stem + "-" + "a" * (255 - len(stem) - len("-.slice"))
    await client.start(TransientUnit(name=UnitName(f"{longest}.slice"), properties={}))
    with pytest.raises(BadProperty):
        await client.start(TransientUnit(name=UnitName(f"{longest}a.slice"), properties={}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("MemoryMax", "1G"), ("MemoryMax", True), ("CPUAccounting", 1), ("Wants", "a.slice")],
)
async def test_start_with_a_value_of_another_type_is_our_mistake(
    client: Client, root: UnitName, key: str, value: Value
) -> None:
    with pytest.raises(TypeError, match=key):
        await client.start(slice_(root, **{key: value}))


@pytest.mark.parametrize("pids", [(), None])
async def test_start_of_a_scope_without_processes(
    client: Client, root: UnitName, pids: tuple[int, ...] | None
) -> None:
    unit = scope(root, "s")
    properties = {key: value for key, value in unit.properties.items() if key != "PIDs"}
    with pytest.raises(BadProperty, match=unit.name):
        await client.start(
            TransientUnit(
                name=unit.name,
                properties=properties if pids is None else {**properties, "PIDs": pids},
            )
        )


async def test_start_of_a_scope_lies_in_its_slice(
    client: Client, root: UnitName, world: World
) -> None:
    unit = scope(root, "s", world.new_process())
    await client.start(unit)
    found = await look(client, unit.name)
    assert found.control_group == f"/{root}/{unit.name}"
    assert found.properties["Slice"] == root
    assert await names(client, root) == ["-s.scope", ".slice"]


async def test_start_that_is_canceled(client: Client, root: UnitName, world: World) -> None:
    unit = world.slow_start(slice_(root))
    starting = asyncio.create_task(client.start(unit))
    async with asyncio.timeout(10):
        while not starting.done() and not await names(client, root):
            pass  # its job is queued once systemd shows the unit
    world.cancel_start(unit)
    with pytest.raises(JobFailed) as caught:
        await starting
    assert caught.value.result == "canceled"


async def test_many_starts_at_once(client: Client, root: UnitName) -> None:
    await asyncio.gather(*(client.start(slice_(root, f"p{n}")) for n in range(100)))
    assert len(await names(client, root)) == 101


# start_batch


async def test_start_batch_starts_parents_and_children(client: Client, root: UnitName) -> None:
    await client.start_batch(
        [slice_(root, "a", "b", CPUWeight=5), slice_(root, "a"), slice_(root, MemoryMax=1 << 30)]
    )
    found = {unit.name: unit for unit in await client.observe([f"{root[:-6]}*"])}
    assert len(found) == 3
    assert all(unit.transient and unit.active_state == "active" for unit in found.values())
    assert all(unit.control_group for unit in found.values())
    assert found[root].properties["MemoryMax"] == 1 << 30
    assert found[slice_(root, "a", "b").name].properties["CPUWeight"] == 5


async def test_start_batch_of_nothing(client: Client) -> None:
    await client.start_batch([])


async def test_start_batch_adopts_an_implied_slice(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a"))
    await client.start_batch([slice_(root, CPUWeight=5), slice_(root, "b")])
    found = await look(client, root)
    assert (found.transient, found.properties["CPUWeight"]) == (True, 5)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_start_batch_with_an_existing_unit_starts_none(
    client: Client, root: UnitName, place: int
) -> None:
    await client.start(slice_(root))
    await client.start(slice_(root, "x", MemoryMax=1 << 30))
    batch = [slice_(root, "a"), slice_(root, "b")]
    batch.insert(place, slice_(root, "x", MemoryMax=1 << 20))
    with pytest.raises(UnitExists):
        await client.start_batch(batch)
    assert await names(client, root) == ["-x.slice", ".slice"]
    assert (await look(client, slice_(root, "x").name)).properties["MemoryMax"] == 1 << 30


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_start_batch_with_a_bad_value_starts_none(
    client: Client, root: UnitName, place: int
) -> None:
    await client.start(slice_(root))
    batch = [slice_(root, "a"), slice_(root, "b")]
    batch.insert(place, slice_(root, "x", MemoryMax=0))
    with pytest.raises(BadProperty):
        await client.start_batch(batch)
    assert await names(client, root) == [".slice"]


async def test_start_batch_with_a_bad_name_starts_none(client: Client, root: UnitName) -> None:
    with pytest.raises(BadProperty):
        await client.start_batch([slice_(root), slice_(root, "a", "", "b")])
    assert await names(client, root) == []


async def test_start_batch_that_is_canceled(client: Client, root: UnitName, world: World) -> None:
    await client.start(slice_(root))
    unit = world.slow_start(slice_(root, "a"))
    starting = asyncio.create_task(client.start_batch([slice_(root, "b"), unit]))
    async with asyncio.timeout(10):
        while not starting.done() and "-a.slice" not in await names(client, root):
            pass
    world.cancel_start(unit)
    with pytest.raises(JobFailed):
        await starting


async def test_start_batch_leaves_units_that_stop_one_by_one(
    client: Client, root: UnitName
) -> None:
    await client.start_batch([slice_(root), slice_(root, "a"), slice_(root, "b")])
    await client.stop(slice_(root, "a").name)
    assert await names(client, root) == ["-b.slice", ".slice"]


# set_properties


async def test_set_properties_changes_what_is_named_only(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, MemoryMax=1 << 30, CPUWeight=5))
    await client.set_properties(root, {"CPUWeight": 6, "TasksMax": 50})
    found = (await look(client, root)).properties
    assert (found["MemoryMax"], found["CPUWeight"], found["TasksMax"]) == (1 << 30, 6, 50)


async def test_set_properties_back_to_unset(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, MemoryMax=1 << 30, MemoryLow=4096, CPUWeight=5))
    await client.set_properties(
        root, {"MemoryMax": INFINITY, "MemoryLow": 0, "CPUWeight": INFINITY}
    )
    found = (await look(client, root)).properties
    assert (found["MemoryMax"], found["MemoryLow"], found["CPUWeight"]) == (INFINITY, 0, INFINITY)


async def test_set_properties_survives_a_reload(
    client: Client, root: UnitName, world: World
) -> None:
    await client.start(slice_(root, MemoryMax=1 << 30))
    settings = {"MemoryMax": 1 << 31, "CPUWeight": 3, "CPUQuotaPerSecUSec": 480_000}
    await client.set_properties(root, settings)
    world.reload()
    found = await look(client, root)
    assert {key: found.properties[key] for key in settings} == settings


async def test_set_properties_of_no_unit(client: Client, root: UnitName) -> None:
    with pytest.raises(NoSuchUnit, match=root):
        await client.set_properties(root, {"CPUWeight": 5})
    assert await names(client, root) == []
    await client.start(slice_(root))
    assert (await look(client, root)).properties["CPUWeight"] == INFINITY


@pytest.mark.parametrize(("key", "value"), [*BAD_VALUES, ("Slice", "system.slice")])
async def test_set_properties_refuses_all_or_nothing(
    client: Client, root: UnitName, key: str, value: Value
) -> None:
    await client.start(slice_(root))
    with pytest.raises(BadProperty, match=root):
        await client.set_properties(root, {"IOAccounting": True, key: value})
    assert not (await look(client, root)).properties["IOAccounting"]


async def test_set_properties_of_an_implied_slice(
    client: Client, root: UnitName, world: World
) -> None:
    await client.start(slice_(root, "a"))
    await client.set_properties(root, {"MemoryMax": 1 << 30})
    world.reload()
    assert (await look(client, root)).properties["MemoryMax"] == 1 << 30


async def test_set_properties_goes_with_the_unit(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a"))
    for name in (root, slice_(root, "a").name):  # one implied, one not
        await client.set_properties(name, {"MemoryMax": 1 << 30})
    await client.stop(root)
    await client.start(slice_(root, "a"))
    found = await client.observe([f"{root[:-6]}*"])
    assert [unit.properties["MemoryMax"] for unit in found] == [INFINITY] * 2


async def test_set_properties_of_a_unit_with_a_file(
    client: Client, root: UnitName, world: World
) -> None:
    world.provide(root)
    await client.set_properties(root, {"CPUWeight": 5})
    found = await look(client, root)
    assert (found.transient, found.properties["CPUWeight"]) == (False, 5)


async def test_set_properties_of_a_built_in_slice(client: Client) -> None:
    await client.set_properties(UnitName("system.slice"), {"CPUWeight": 101})
    found = await look(client, UnitName("system.slice"))
    assert (found.transient, found.properties["CPUWeight"]) == (False, 101)
    await client.set_properties(UnitName("system.slice"), {"CPUWeight": INFINITY})


# stop


async def test_stop_takes_everything_below_with_it(
    client: Client, root: UnitName, world: World
) -> None:
    await client.start(slice_(root, "a", "b"))
    inside = slice_(root, "a").name
    await client.start(scope(root, "s", world.new_process(), Slice=inside))
    await client.start(slice_(root, "ab"))
    await client.stop(inside)
    assert await names(client, root) == ["-ab.slice", ".slice"]


async def test_stop_of_no_unit(client: Client, root: UnitName, stem: str) -> None:
    await client.stop(root)
    await client.stop(UnitName(f"{stem}.scope"))
    assert await names(client, root) == []


async def test_stop_keeps_implied_parents(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, "a"))
    await client.stop(slice_(root, "a").name)
    assert await names(client, root) == [".slice"]


async def test_stop_then_start_is_a_fresh_unit(client: Client, root: UnitName) -> None:
    for _ in range(5):
        await client.start(slice_(root, MemoryMax=1 << 30))
        await client.stop(root)
    await client.start(slice_(root))
    assert (await look(client, root)).properties["MemoryMax"] == INFINITY


async def test_stop_forgets_a_scope_that_failed(client: Client, stem: str, world: World) -> None:
    name = UnitName(f"{stem}f.scope")
    world.fail_scope(name)
    await client.stop(name)
    assert await client.observe([name]) == ()


# stop_batch


async def test_stop_batch_stops_all_and_what_is_below(client: Client, root: UnitName) -> None:
    units = [slice_(root, *parts) for parts in ("a", "b", "c", "cd")]
    await client.start_batch([slice_(root), *units])
    await client.stop_batch([unit.name for unit in units[:3]])
    assert await names(client, root) == ["-c-d.slice", "-c.slice", ".slice"][2:]


async def test_stop_batch_takes_units_that_are_not_there(
    client: Client, root: UnitName, stem: str
) -> None:
    await client.start_batch([slice_(root), slice_(root, "a")])
    missing = [slice_(root, "no").name, UnitName(f"{stem}no.scope")]
    await client.stop_batch([slice_(root, "a").name, *missing])
    await client.stop_batch([])
    assert await names(client, root) == [".slice"]


async def test_stop_batch_then_start_is_a_fresh_unit(client: Client, root: UnitName) -> None:
    units = [slice_(root, f"p{n}", MemoryMax=1 << 30) for n in range(20)]
    for _ in range(3):
        await client.start_batch(units)
        await client.stop_batch([unit.name for unit in units])
    assert await names(client, root) == [".slice"]
    await client.start(slice_(root, "p7"))
    assert (await look(client, slice_(root, "p7").name)).properties["MemoryMax"] == INFINITY


async def test_stop_batch_forgets_scopes_that_failed(
    client: Client, root: UnitName, stem: str, world: World
) -> None:
    name = UnitName(f"{stem}f.scope")
    world.fail_scope(name)
    await client.stop_batch([name, root])
    assert await client.observe([name]) == ()


# reset_failed


async def test_reset_failed_of_a_unit_that_did_not_fail(client: Client, root: UnitName) -> None:
    await client.start(slice_(root, CPUWeight=5))
    await client.reset_failed(root)
    assert (await look(client, root)).properties["CPUWeight"] == 5


async def test_reset_failed_of_no_unit(client: Client, root: UnitName, stem: str) -> None:
    await client.reset_failed(root)
    await client.reset_failed(UnitName(f"{stem}.scope"))


@pytest.mark.parametrize("name", ["a--b.slice", "x.service", ""])
async def test_bad_names_are_refused_by_every_call(client: Client, name: str) -> None:
    unit_name = UnitName(name)
    for call in (
        client.set_properties(unit_name, {"CPUWeight": 5}),
        client.stop(unit_name),
        client.stop_batch([unit_name]),
        client.reset_failed(unit_name),
    ):
        with pytest.raises(BadProperty):
            await call


# the one in memory: what goes wrong on request


async def test_memory_refuses_and_counts(root: UnitName) -> None:
    memory = Memory()
    memory.refuse(root, Refused("no"))
    for call in (
        memory.start(slice_(root)),
        memory.start_batch([slice_(root, "a"), slice_(root)]),
        memory.set_properties(root, {"CPUWeight": 5}),
        memory.stop_batch([root]),
    ):
        with pytest.raises(Refused):
            await call
    memory.refuse(root, None)
    await memory.start(slice_(root))
    assert memory.calls == {"start": 2, "start_batch": 1, "set_properties": 1, "stop_batch": 1}


async def test_memory_breaks_once(root: UnitName) -> None:
    memory = Memory()
    memory.break_after(1)
    await memory.start(slice_(root))
    with pytest.raises(BusUnavailable):
        await memory.observe([root])
    assert len(await memory.observe([root])) == 1
