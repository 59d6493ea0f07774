"""Every sentence of podslice/systemd/client.py, held against a real systemd and the one in memory."""

import asyncio
import secrets
import signal
import time

import pytest

from podslice.errors import (
    BadProperty,
    BusUnavailable,
    CallTimeout,
    JobFailed,
    NoSuchUnit,
    Refused,
    UnitExists,
)
from podslice.model.codec import share_of_percent
from podslice.model.properties import MANAGED, OBSERVED, PROPERTIES
from podslice.model.unit import INFINITY, Manager, TransientUnit, UnitKind, UnitName, mount_name
from podslice.systemd.bus import Bus
from podslice.systemd.client import PIDFDS_MAX
from tests.bus.files import ACCOUNTING
from tests.bus.worlds import InMemory, Real
from tests.fake_systemd import FakeSystemd

MACHINES = {252: "old_machine", 257: "machine", 262: "new_machine"}


# systemd writes files of a slice only where its memory is accounted, so not in `new_machine`
KINDS = ("memory257", "memory252", "bus257", "bus252", "bus262", "files257", "files252")


@pytest.fixture(params=KINDS)
def world(request):
    kind, version = request.param[:-3], int(request.param[-3:])
    if kind == "memory":
        yield InMemory(version)
        return
    machine = request.getfixturevalue(MACHINES[version])
    made = Real(machine, reads_files=kind == "files")
    yield made
    made.close()


@pytest.fixture
def stem():
    return f"podslicetest{secrets.token_hex(4)}"


@pytest.fixture
def root(stem):
    return UnitName(f"{stem}.slice")


@pytest.fixture
async def client(world, stem, root):
    """A client, and the promise that nothing is left behind when our root has been stopped."""
    async with world.client() as client:
        yield client
        scopes = [unit.name for unit in await client.observe([f"{stem}*.scope"])]
        await client.stop_batch([root, *scopes])
        assert await client.observe([f"{stem}*", f"run-{stem}*", "podslicebatch*"]) == ()
    assert world.leftovers(f"{stem}") == []


def slice_(root, *parts, **properties):
    name = UnitName("-".join([root.removesuffix(".slice"), *parts]) + ".slice")
    stated = {"DefaultDependencies": False, **ACCOUNTING, **properties}
    return TransientUnit(name=name, properties=stated)


def scope(root, part, *pids, **properties):
    name = UnitName(f"{root.removesuffix('.slice')}-{part}.scope")
    return TransientUnit(name=name, properties={"Slice": root, "PIDs": pids, **properties})


def service(root, part, *argv, **properties):
    name = UnitName(f"{root.removesuffix('.slice')}-{part}.service")
    more = {"Type": "exec", "CollectMode": "inactive-or-failed", **properties}
    if argv:
        more["ExecStart"] = ((argv[0], argv, False),)
    return TransientUnit(name=name, properties={"Slice": root, **more})


def timer(root, part, delay_sec, **properties):
    more = {
        "TimersMonotonic": (("OnActiveSec", delay_sec * 1_000_000),),
        "AccuracyUSec": 1000,
        "RemainAfterElapse": False,
        **properties,
    }
    return TransientUnit(
        name=UnitName(f"{root.removesuffix('.slice')}-{part}.timer"), properties=more
    )


def mount(root, path, **properties):
    tmpfs = {"What": "tmpfs", "Type": "tmpfs", "Options": "nosuid,size=1m"}
    return TransientUnit(name=mount_name(path), properties={"Slice": root, **tmpfs, **properties})


async def names(client, root):
    """What comes behind the root's name, of everything there is below it."""
    stem = root.removesuffix(".slice")
    return [unit.name.removeprefix(stem) for unit in await client.observe([f"{stem}*"])]


async def look(client, name):
    (unit,) = await client.observe([name])
    return unit


async def until_names(client, root, expected):
    """Units whose processes have ended go a moment later."""
    async with asyncio.timeout(10):
        while await names(client, root) != expected:
            pass


# caps


async def test_caps_have_the_version(client):
    caps = await client.caps()
    assert caps.systemd_version >= 252
    assert caps.pidfds == (caps.systemd_version >= 255)
    assert not caps.manager.is_user


# observe


async def test_observe_is_sorted_and_matches_globs(client, root):
    for part in ("c", "a", "b1", "b2"):
        await client.start(slice_(root, part))
    stem = root.removesuffix(".slice")
    found = await client.observe([f"{stem}-b?.slice", f"{stem}-[a].slice", f"{stem}-b*"])
    assert [unit.name for unit in found] == [f"{stem}-{part}.slice" for part in ("a", "b1", "b2")]


async def test_observe_of_nothing_is_nothing(client, root):
    assert await client.observe([]) == ()
    assert await client.observe([root]) == ()


async def test_observe_takes_a_backslash_literally(client, root, stem, world):
    volume = mount(root, world.mount_point(f"{stem}-a"))
    await client.start(volume)
    assert volume.name == rf"run-{stem}\x2da.mount"
    for call in (client.observe, client.list_units):
        for pattern in (volume.name, rf"run-{stem}\x2d*.mount"):
            assert [unit.name for unit in await call([pattern])] == [volume.name]
        assert await call([volume.name.replace("\\", "\\\\")]) == ()
    await client.stop(volume.name)


async def test_observe_shows_requested_properties(client, root):
    settings = {
        "CPUWeight": 7,
        "CPUQuotaPerSecUSec": 480_000,
        "CPUQuotaPeriodUSec": 50_000,
        "MemoryMin": 4096,
        "MemoryLow": 8192,
        "MemoryHigh": 1 << 30,
        "MemoryMax": 1 << 31,
        "TasksMax": 99,
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


async def test_observe_shows_other_properties_as_unset(client, root):
    await client.start(slice_(root))
    found = await look(client, root)
    assert {key: found.properties[key] for key in IN_ALL_VERSIONS} == {
        key: PROPERTIES[key].unset for key in IN_ALL_VERSIONS
    }


async def test_observe_has_the_same_properties_for_every_slice(client, root):
    await client.start(slice_(root, "a", "b"))
    shown = [set(unit.properties) for unit in await client.observe(["-.slice", f"{root[:-6]}*"])]
    assert shown == [shown[0]] * 4
    assert shown[0] == OBSERVED[UnitKind.SLICE]


async def test_observe_counts_tasks_of_a_unit_and_below(client, root, world):
    await client.start(slice_(root, "a"))
    unit = scope(root, "s", world.new_process(), world.new_process())
    await client.start(unit)
    assert (await look(client, unit.name)).tasks == 2
    assert (await look(client, root)).tasks == 2
    assert (await look(client, slice_(root, "a").name)).tasks == 0


async def test_observe_counts_tasks_that_systemd_does_not_count(client, root, world):
    await client.start(slice_(root, TasksAccounting=False))
    unit = scope(root, "s", world.new_process(), TasksAccounting=False)
    await client.start(unit)
    assert [(await look(client, name)).tasks for name in (unit.name, root)] == [1, 1]


async def test_referenced_names_are_not_units(client, root):
    missing = slice_(root, "no").name
    await client.start(slice_(root, "a", After=(missing,)))
    assert await names(client, root) == ["-a.slice", ".slice"]
    with pytest.raises(NoSuchUnit, match=missing):
        await client.set_properties(missing, {"CPUWeight": 5})
    await client.start(slice_(root, "no"))
    assert await names(client, root) == ["-a.slice", "-no.slice", ".slice"]


async def test_observe_identifies_implied_slices(client, root):
    await client.start(slice_(root, "a", "b"))
    found = {unit.name: unit for unit in await client.observe([f"{root[:-6]}*"])}
    parent = found[slice_(root, "a").name]
    assert (parent.transient, parent.fragment_path) == (False, "")
    assert (parent.active_state, parent.control_group) == ("active", f"/{root}/{parent.name}")


async def test_observe_shows_when_a_slice_became_active(client, root):
    before = time.time_ns() // 1000
    await client.start(slice_(root, "a", "b"))
    names = [root, slice_(root, "a").name, slice_(root, "a", "b").name]
    # the file of a slice does not have the time; with a drop-in, the slice is read over the bus
    await client.set_properties(names[2], {"CPUWeight": 5})
    started = {name: (await look(client, name)).started_usec for name in names}
    after = time.time_ns() // 1000
    assert [before <= each <= after for each in started.values()] == [True] * 3
    await client.start(slice_(root, "a"))  # it was implied
    await client.set_properties(names[1], {"CPUWeight": 5})
    await client.reload()
    assert {name: (await look(client, name)).started_usec for name in names} == started
    inspected = [await client.inspect(name) for name in names]
    assert [each and each.observed.started_usec for each in inspected] == list(started.values())
    assert [await client.read_start(name) for name in names] == list(started.values())
    assert await client.read_start(slice_(root, "no").name) == 0


async def test_observe_identifies_slices_with_a_file(client, root, world):
    world.provide(root)
    found = await look(client, root)
    assert not found.transient
    assert found.fragment_path.endswith(f"/system/{root}")


async def test_observe_shows_built_in_slices(client):
    top, system = await client.observe(["-.slice", "system.slice"])
    assert (top.control_group, system.control_group) == ("/", "/system.slice")
    assert not top.transient


async def test_observe_shows_a_failed_scope(client, stem, world):
    name = UnitName(f"{stem}f.scope")
    world.fail_scope(name)
    assert (await look(client, name)).active_state == "failed"
    await client.reset_failed(name)
    assert await client.observe([name]) == ()


# inspect


async def test_inspect_has_the_properties_of_an_observation(client, root, world):
    await client.start(slice_(root, CPUWeight=7, MemoryHigh=1 << 30, TasksMax=99))
    held = scope(root, "s", world.new_process(), MemoryMax=1 << 30)
    await client.start(held)
    for name in (root, held.name):
        inspected = await client.inspect(name)
        assert inspected is not None
        found, seen = inspected.observed, await look(client, name)
        assert found.properties == seen.properties
        assert found.control_group == seen.control_group
        assert (found.load_state, found.active_state) == ("loaded", "active")
        assert (found.transient, found.fragment_path) == (seen.transient, seen.fragment_path)


async def test_inspect_loads_a_unit_with_its_further_settings(client, stem, world):
    name = UnitName(f"{stem}.service")
    world.provide_inactive(name)
    inspected = await client.inspect(name)
    assert inspected is not None
    found = inspected.observed
    assert (found.load_state, found.active_state) == ("loaded", "inactive")
    assert (found.transient, found.control_group) == (False, "")
    assert found.fragment_path.endswith(f"/{name}")
    names = ("MemoryMax", "Delegate", "TasksMax", "Slice", "AllowedCPUs", "IOWeight")
    set_ = {key: found.properties[key] for key in names}
    assert set_ == {
        "MemoryMax": 64 << 20,
        "Delegate": True,
        "TasksMax": 99,
        "Slice": "system.slice",
        "AllowedCPUs": "0",
        "IOWeight": 50,
    }
    assert inspected.further == {"TasksMax": "99"}


async def test_inspect_of_nothing_is_nothing(client, root):
    assert await client.inspect(slice_(root, "no").name) is None
    assert await client.inspect(UnitName(f"{root.removesuffix('.slice')}-no.service")) is None
    with pytest.raises(BadProperty):
        await client.inspect(UnitName("a@.service"))
    assert await client.observe([f"{root.removesuffix('.slice')}*"]) == ()


# list_units


async def test_list_units_agrees_with_observe(client, root, stem, world):
    await client.start(slice_(root, "a", "b", Description="pod default/web"))
    volume = mount(root, world.mount_point(stem))
    await client.start(volume)
    await client.start(scope(root, "s", world.new_process()))
    await client.start(service(root, "t", "/bin/sleep", "1000"))
    world.fail_scope(UnitName(f"{stem}f.scope"))
    patterns = (f"{stem}*", volume.name, "system.slice")
    listed = await client.list_units(patterns)
    seen = await client.observe(patterns)
    assert [unit.name for unit in listed] == [unit.name for unit in seen]
    assert len(listed) == 8
    for short, long in zip(listed, seen, strict=True):
        assert (short.description, short.load_state, short.active_state) == (
            long.description,
            long.load_state,
            long.active_state,
        )
    await client.reset_failed(UnitName(f"{stem}f.scope"))
    await client.stop(root)
    assert await client.list_units([f"{stem}*", volume.name]) == ()


async def test_list_units_of_nothing_is_nothing(client, root):
    assert await client.list_units([]) == ()
    assert await client.list_units([root]) == ()


async def test_list_units_may_include_referenced_names(client, root):
    missing = slice_(root, "no").name
    await client.start(slice_(root, "a", After=(missing,)))
    listed = {unit.name: unit.active_state for unit in await client.list_units([f"{root[:-6]}*"])}
    assert listed.pop(missing, "inactive") == "inactive"
    assert listed == {root: "active", slice_(root, "a").name: "active"}


# start


async def test_start_makes_parents_that_are_implied(client, root):
    await client.start(slice_(root, "a", "b"))
    assert await names(client, root) == ["-a-b.slice", "-a.slice", ".slice"]


async def test_start_adopts_an_implied_slice(client, root):
    await client.start(slice_(root, "a"))
    await client.start(slice_(root, MemoryMax=1 << 30))
    found = await look(client, root)
    assert found.transient
    assert found.properties["MemoryMax"] == 1 << 30
    assert await names(client, root) == ["-a.slice", ".slice"]


async def test_start_of_an_existing_unit_changes_nothing(client, root):
    await client.start(slice_(root, "a", MemoryMax=1 << 30))
    with pytest.raises(UnitExists, match=f"{root[:-6]}-a.slice"):
        await client.start(slice_(root, "a", MemoryMax=1 << 20, CPUWeight=9))
    found = await look(client, slice_(root, "a").name)
    assert found.properties["MemoryMax"] == 1 << 30
    assert found.properties["CPUWeight"] == INFINITY


async def test_start_of_a_unit_with_a_file(client, root, world):
    world.provide(root)
    with pytest.raises(UnitExists):
        await client.start(slice_(root))


async def test_start_replaces_a_failed_scope(client, stem, world):
    unit = scope(UnitName(f"{stem}.slice"), "s", world.new_process())
    world.fail_scope(unit.name)
    await client.start(unit)
    assert (await look(client, unit.name)).active_state == "active"


IN_ALL_VERSIONS = [key for key in MANAGED[UnitKind.SLICE] if PROPERTIES[key].since <= 252]
"""What systemd 252 and later has."""
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
async def test_start_refuses_values(client, root, key, value):
    with pytest.raises(BadProperty, match=root):
        await client.start(slice_(root, **{key: value}))
    assert await names(client, root) == []


@pytest.mark.parametrize(
    "key", [key for key in IN_ALL_VERSIONS if PROPERTIES[key].unset == INFINITY]
)
async def test_start_accepts_infinity_where_it_means_unset(client, root, key):
    await client.start(slice_(root, **{key: INFINITY}))
    assert (await look(client, root)).properties[key] == INFINITY


async def test_start_accepts_the_limits_of_ranges(client, root):
    settings = {"CPUWeight": 0, "MemoryLow": 0, "MemoryMax": 1, "MemorySwapMax": 0, "TasksMax": 1}
    await client.start(slice_(root, **settings))
    found = await look(client, root)
    assert {key: found.properties[key] for key in settings} == settings


@pytest.mark.parametrize("part", ["-b.slice", "b-.slice", "a--b.slice", "ä.slice", "b.socket"])
async def test_start_refuses_names(client, stem, part):
    with pytest.raises(BadProperty):
        await client.start(TransientUnit(name=UnitName(f"{stem}-{part}"), properties={}))


async def test_start_refuses_names_that_are_too_long(client, stem):
    longest = stem + "-" + "a" * (255 - len(stem) - len("-.slice"))
    await client.start(TransientUnit(name=UnitName(f"{longest}.slice"), properties={}))
    with pytest.raises(BadProperty):
        await client.start(TransientUnit(name=UnitName(f"{longest}a.slice"), properties={}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("MemoryMax", "1G"), ("MemoryMax", True), ("CPUAccounting", 1), ("Wants", "a.slice")],
)
async def test_start_with_a_value_of_another_type_is_our_mistake(client, root, key, value):
    with pytest.raises(TypeError, match=key):
        await client.start(slice_(root, **{key: value}))


@pytest.mark.parametrize("pids", [(), None])
async def test_start_of_a_scope_without_processes(client, root, pids):
    unit = scope(root, "s")
    properties = {key: value for key, value in unit.properties.items() if key != "PIDs"}
    with pytest.raises(BadProperty, match=unit.name):
        await client.start(
            TransientUnit(
                name=unit.name,
                properties=properties if pids is None else {**properties, "PIDs": pids},
            )
        )


async def test_start_of_a_scope_lies_in_its_slice(client, root, world):
    unit = scope(root, "s", world.new_process())
    await client.start(unit)
    found = await look(client, unit.name)
    assert found.control_group == f"/{root}/{unit.name}"
    assert found.properties["Slice"] == root
    assert await names(client, root) == ["-s.scope", ".slice"]


async def test_start_of_a_container_accepts_an_oom_policy(client, root, world):
    """Also of a scope: systemd.scope(5) of both versions."""
    policy = {"Delegate": True, "OOMPolicy": "kill"}
    await client.start(scope(root, "s", world.new_process(), **policy))
    await client.start(service(root, "t", "/bin/sleep", "1000", **policy))
    assert await names(client, root) == ["-s.scope", "-t.service", ".slice"]


async def test_start_of_a_scope_accepts_descriptors(client, root, world):
    descriptors = tuple(world.open_pidfd(world.new_process()) for _ in range(PIDFDS_MAX))
    unit = scope(root, "s")
    unit = TransientUnit(name=unit.name, properties={"Slice": root, "PIDFDs": descriptors})
    if not (await client.caps()).pidfds:
        with pytest.raises(BadProperty, match="PIDFDs"):
            await client.start(unit)
        return
    await client.start(unit)
    assert (await look(client, unit.name)).tasks == PIDFDS_MAX
    more = TransientUnit(name=unit.name, properties={"PIDFDs": (*descriptors, 0)})
    with pytest.raises(BadProperty, match=f"PIDFDs: a call carries at most {PIDFDS_MAX}"):
        await client.start(more)


async def test_start_of_a_scope_with_a_process_that_exited(client, root, world):
    ended = world.new_process()
    world.end_process(ended)
    with pytest.raises(BadProperty, match=rf"{root[:-6]}-s.scope: a process has exited"):
        await client.start(scope(root, "s", world.new_process(), ended))
    assert await names(client, root) == []


async def test_start_of_a_service_runs_its_command(client, root):
    properties = {
        "Delegate": True,
        "Environment": ("A=b c", 'D="$x"%'),
        "WorkingDirectory": "/tmp",
        "OOMScoreAdjust": 5,
        "TimeoutStopUSec": 1_000_000,
        "KillMode": "mixed",
        "SendSIGHUP": True,
        "ExecStopPost": (("/bin/true", ("true",), True),),
    }
    unit = service(root, "s", "/bin/sleep", "1000", Description="web", **properties)
    await client.start(unit)
    found = await look(client, unit.name)
    assert (found.description, found.active_state, found.tasks) == ("web", "active", 1)
    assert found.control_group == f"/{root}/{unit.name}"
    assert found.properties.keys() == OBSERVED[UnitKind.SERVICE]
    assert (found.properties["Slice"], found.properties["Delegate"]) == (root, True)
    with pytest.raises(UnitExists):
        await client.start(unit)


async def test_start_of_a_service_whose_command_can_not_be_run(client, root, world):
    unit = service(root, "s", "/nonexistent")
    world.make_broken(unit)
    with pytest.raises(JobFailed) as caught:
        await client.start(unit)
    assert caught.value.result == "failed"
    assert "-s.service" not in await names(client, root)


async def test_start_of_a_service_that_ends_with_its_start(client, root):
    await client.start(service(root, "s", "/bin/true", Type="oneshot"))
    assert await names(client, root) == [".slice"]


async def test_start_without_a_required_property(client, root):
    with pytest.raises(BadProperty, match=f"{root[:-6]}-s.service"):
        await client.start(service(root, "s"))
    with pytest.raises(BadProperty, match=f"run-{root[:-6]}.mount"):
        await client.start(
            TransientUnit(name=mount_name(f"/run/{root[:-6]}"), properties={"Type": "tmpfs"})
        )
    assert await names(client, root) == []


async def test_start_of_a_mount(client, root, stem, world):
    await client.start(slice_(root))
    path = world.mount_point(stem)
    unit = mount(root, path, DirectoryMode=0o700, LazyUnmount=True, Description="Volume a of b/c")
    await client.start(unit)
    found = await look(client, unit.name)
    assert (found.description, found.active_state, found.tasks) == ("Volume a of b/c", "active", 0)
    assert found.control_group == f"/{root}/{unit.name}"
    assert found.properties.keys() == OBSERVED[UnitKind.MOUNT]
    assert [found.properties[key] for key in ("What", "Type", "Slice")] == ["tmpfs", "tmpfs", root]
    assert "nosuid" in str(found.properties["Options"]).split(",")
    with pytest.raises(UnitExists):
        await client.start(unit)
    await client.stop(root)
    assert await client.observe([unit.name]) == ()


async def test_start_batch_starts_every_kind(client, root, stem, world):
    volume = mount(root, world.mount_point(stem))
    units = [scope(root, "s", world.new_process()), service(root, "t", "/bin/sleep", "1000")]
    await client.start_batch([slice_(root), *units, volume])
    found = await client.observe([f"{stem}*", volume.name])
    assert [unit.tasks for unit in found] == [1, 1, 2, 0]
    await client.stop_batch([unit.name for unit in (*units, volume)])
    assert await names(client, root) == [".slice"]
    assert await client.observe([volume.name]) == ()


async def test_start_that_is_canceled(client, root, world):
    unit = world.slow_start(slice_(root))
    starting = asyncio.create_task(client.start(unit))
    async with asyncio.timeout(10):
        while not starting.done() and not await names(client, root):
            pass  # its job is queued once systemd shows the unit
    world.cancel_start(unit)
    with pytest.raises(JobFailed) as caught:
        await starting
    assert caught.value.result == "canceled"


async def test_many_starts_at_once(client, root):
    await asyncio.gather(*(client.start(slice_(root, f"p{n}")) for n in range(100)))
    assert len(await names(client, root)) == 101


# start_timer


async def test_start_timer_loads_its_service(client, root, stem, world):
    waiting = timer(root, "t", 1000, Description="when")
    command = service(root, "t", "/bin/true", Type="oneshot", Description="what")
    await client.start_timer(waiting, command)
    world.reload()
    found = {unit.name: unit for unit in await client.observe([f"{stem}*"])}
    assert found.keys() == {waiting.name, command.name}
    shown = found[waiting.name]
    assert (shown.description, shown.active_state, shown.transient) == ("when", "active", True)
    assert (shown.control_group, shown.tasks, shown.memory_bytes) == ("", 0, None)
    assert shown.properties.keys() == OBSERVED[UnitKind.TIMER]
    shown = found[command.name]
    assert (shown.description, shown.active_state, shown.transient) == ("what", "inactive", True)
    await client.stop(waiting.name)
    assert await client.observe([f"{stem}*"]) == ()


async def test_start_timer_of_existing_units_changes_nothing(client, root):
    command = service(root, "t", "/bin/sleep", "1000")
    await client.start_timer(timer(root, "t", 1000, Description="first"), command)
    with pytest.raises(UnitExists):
        await client.start_timer(timer(root, "t", 2000, Description="second"), command)
    assert (await look(client, timer(root, "t", 0).name)).description == "first"
    await client.stop(timer(root, "t", 0).name)
    await client.start(command)
    with pytest.raises(UnitExists):
        await client.start_timer(timer(root, "t", 1000), command)
    assert await names(client, root) == ["-t.service", ".slice"]


async def test_start_timer_refuses_all_or_nothing(client, root):
    command = service(root, "t", "/bin/true")
    bare = TransientUnit(name=timer(root, "t", 1).name, properties={})
    for when, what in (
        (timer(root, "t", 1000, AccuracyUSec=0), command),
        (timer(root, "t", 1000), service(root, "t", "/bin/true", CPUWeight=10_001)),
        (timer(root, "u", 1000), command),
        (command, command),
        (bare, command),
        (timer(root, "t", 1000), service(root, "t")),
    ):
        with pytest.raises(BadProperty, match=root[:-6]):
            await client.start_timer(when, what)
        assert await names(client, root) == []


@pytest.mark.parametrize("which", MACHINES.values())
async def test_start_timer_starts_the_service_in_time(request, which, root, stem):
    machine = request.getfixturevalue(which)
    command = service(root, "t", "/bin/sh", "-c", f": > /run/{stem}", Type="oneshot")
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        await client.start_timer(timer(root, "t", 1), command)
    assert machine.run("test", "-e", f"/run/{stem}", check=False).exit_code
    async with Bus(Manager(bus_address=machine.bus_address)) as client:
        await until_names(client, root, [".slice"])
        assert machine.run("rm", f"/run/{stem}").exit_code == 0
        await client.stop(root)


# start_batch


async def test_start_batch_starts_parents_and_children(client, root):
    await client.start_batch(
        [slice_(root, "a", "b", CPUWeight=5), slice_(root, "a"), slice_(root, MemoryMax=1 << 30)]
    )
    found = {unit.name: unit for unit in await client.observe([f"{root[:-6]}*"])}
    assert len(found) == 3
    assert all(unit.transient and unit.active_state == "active" for unit in found.values())
    assert all(unit.control_group for unit in found.values())
    assert found[root].properties["MemoryMax"] == 1 << 30
    assert found[slice_(root, "a", "b").name].properties["CPUWeight"] == 5


async def test_start_batch_of_nothing(client):
    await client.start_batch([])


async def test_start_batch_adopts_an_implied_slice(client, root):
    await client.start(slice_(root, "a"))
    await client.start_batch([slice_(root, CPUWeight=5), slice_(root, "b")])
    found = await look(client, root)
    assert (found.transient, found.properties["CPUWeight"]) == (True, 5)


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_start_batch_with_an_existing_unit_starts_none(client, root, place):
    await client.start(slice_(root))
    await client.start(slice_(root, "x", MemoryMax=1 << 30))
    batch = [slice_(root, "a"), slice_(root, "b")]
    batch.insert(place, slice_(root, "x", MemoryMax=1 << 20))
    with pytest.raises(UnitExists):
        await client.start_batch(batch)
    assert await names(client, root) == ["-x.slice", ".slice"]
    assert (await look(client, slice_(root, "x").name)).properties["MemoryMax"] == 1 << 30


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_start_batch_with_a_bad_value_starts_none(client, root, place):
    await client.start(slice_(root))
    batch = [slice_(root, "a"), slice_(root, "b")]
    batch.insert(place, slice_(root, "x", MemoryMax=0))
    with pytest.raises(BadProperty):
        await client.start_batch(batch)
    assert await names(client, root) == [".slice"]


async def test_start_batch_with_a_bad_name_starts_none(client, root):
    with pytest.raises(BadProperty):
        await client.start_batch([slice_(root), slice_(root, "a", "", "b")])
    assert await names(client, root) == []


async def test_start_batch_that_is_canceled(client, root, world):
    await client.start(slice_(root))
    unit = world.slow_start(slice_(root, "a"))
    starting = asyncio.create_task(client.start_batch([slice_(root, "b"), unit]))
    async with asyncio.timeout(10):
        while not starting.done() and "-a.slice" not in await names(client, root):
            pass
    world.cancel_start(unit)
    with pytest.raises(JobFailed):
        await starting


async def test_start_batch_leaves_units_that_stop_one_by_one(client, root):
    await client.start_batch([slice_(root), slice_(root, "a"), slice_(root, "b")])
    await client.stop(slice_(root, "a").name)
    assert await names(client, root) == ["-b.slice", ".slice"]


# start_existing, reload


async def test_start_existing_starts_a_service_with_a_file(client, root, stem, world):
    name = UnitName(f"{stem}-e.service")
    await client.start(slice_(root, CPUWeight=7))
    world.write_service(name, root, "exec", "sleep 1000")
    await client.reload()
    for _ in range(2):
        await client.start_existing(name)
        found = await look(client, name)
        assert (found.active_state, found.tasks) == ("active", 1)
        assert found.control_group == f"/{root}/{name}"
    await client.reload()
    assert (await look(client, root)).properties["CPUWeight"] == 7
    await client.stop(name)
    await client.start_existing(name)
    assert (await look(client, name)).tasks == 1
    await client.stop(name)


async def test_start_existing_without_a_file(client, root, stem):
    for name in (UnitName(f"{stem}-no.service"), UnitName(f"{stem}no.scope")):
        with pytest.raises(NoSuchUnit, match=name):
            await client.start_existing(name)
    assert await names(client, root) == []


async def test_start_existing_of_what_does_not_start(client, root, stem, world):
    failing, slow = (UnitName(f"{stem}-{part}.service") for part in ("f", "s"))
    world.write_service(failing, root, "oneshot", "false")
    world.write_service(slow, root, "oneshot", "sleep 1000")
    await client.reload()
    with pytest.raises(JobFailed) as caught:
        await client.start_existing(failing)
    assert caught.value.result == "failed"
    with pytest.raises(CallTimeout):
        await client.start_existing(slow, timeout_sec=0.05)
    for name in (failing, slow):
        world.cancel_start(TransientUnit(name=name, properties={}))
        await client.reset_failed(name)


# restart, read_definition


async def test_restart_starts_a_service_again(client, root, stem, world):
    name = UnitName(f"{stem}-r.service")
    await client.start(slice_(root))
    world.write_service(name, root, "exec", "sleep 1000")
    await client.reload()
    for _ in range(2):
        await client.restart(name)
        found = await look(client, name)
        assert (found.active_state, found.tasks) == ("active", 1)
    await client.stop(name)
    with pytest.raises(NoSuchUnit):
        await client.restart(UnitName(f"{stem}-no.service"))


async def test_a_definition_has_the_files_and_the_place_of_a_unit(client, root, stem, world):
    name, absent = UnitName(f"{stem}-d.service"), UnitName(f"{stem}-no.service")
    assert (await client.read_definition(absent)).load_state == "not-found"
    await client.start(slice_(root))
    world.write_service(name, root, "exec", "sleep 1000")
    await client.reload()
    found = await client.read_definition(name)
    assert (found.name, found.load_state, found.slice) == (name, "loaded", root)
    assert found.fragment_path.endswith(f"/{name}")
    assert (found.transient, found.is_running, found.control_group) == (False, False, "")
    await client.start_existing(name)
    found = await client.read_definition(name)
    assert (found.is_running, found.control_group) == (True, f"/{root}/{name}")
    await client.stop(name)
    assert (await client.read_definition(root)).transient


# set_properties


async def test_set_properties_changes_only_the_given_ones(client, root):
    await client.start(slice_(root, MemoryMax=1 << 30, CPUWeight=5))
    await client.set_properties(root, {"CPUWeight": 6, "TasksMax": 50})
    found = (await look(client, root)).properties
    assert (found["MemoryMax"], found["CPUWeight"], found["TasksMax"]) == (1 << 30, 6, 50)


async def test_set_properties_back_to_unset(client, root):
    await client.start(slice_(root, MemoryMax=1 << 30, MemoryLow=4096, CPUWeight=5))
    await client.set_properties(
        root, {"MemoryMax": INFINITY, "MemoryLow": 0, "CPUWeight": INFINITY}
    )
    found = (await look(client, root)).properties
    assert (found["MemoryMax"], found["MemoryLow"], found["CPUWeight"]) == (INFINITY, 0, INFINITY)


async def test_set_properties_of_units_with_processes(client, root, world):
    await client.start(scope(root, "s", world.new_process()))
    await client.start(service(root, "s", "/bin/sleep", "1000"))
    settings = {"MemoryMax": 1 << 30, "CPUWeight": 6, "CPUQuotaPerSecUSec": 480_000}
    for unit in (f"{root[:-6]}-s.scope", f"{root[:-6]}-s.service"):
        await client.set_properties(UnitName(unit), settings)
        found = (await look(client, UnitName(unit))).properties
        assert {key: found[key] for key in settings} == settings
        with pytest.raises(BadProperty, match="TimeoutStopUSec"):
            await client.set_properties(UnitName(unit), {"TimeoutStopUSec": 1})


async def test_set_properties_survives_a_reload(client, root, world):
    await client.start(slice_(root, MemoryMax=1 << 30))
    settings = {"MemoryMax": 1 << 31, "CPUWeight": 3, "CPUQuotaPerSecUSec": 480_000}
    await client.set_properties(root, settings)
    world.reload()
    found = await look(client, root)
    assert {key: found.properties[key] for key in settings} == settings


async def test_oomd_properties_survive_a_reload_and_can_be_unset(client, root, world):
    policy = {
        "ManagedOOMMemoryPressure": "kill",
        "ManagedOOMMemoryPressureLimit": share_of_percent(33),
        "ManagedOOMSwap": "kill",
    }
    await client.start(slice_(root, **policy))
    world.reload()
    found = await look(client, root)
    assert {key: found.properties[key] for key in policy} == policy
    unset = {key: PROPERTIES[key].unset for key in policy}
    await client.set_properties(root, {k: v for k, v in unset.items() if v is not None})
    world.reload()
    found = await look(client, root)
    assert {key: found.properties[key] for key in policy} == unset


async def test_cpus_survive_a_reload_and_can_be_changed_and_unset(client, root, world):
    names = ("AllowedCPUs", "AllowedMemoryNodes")
    await client.start(slice_(root, AllowedCPUs="0,2-3,130", AllowedMemoryNodes="0-1"))
    world.reload()
    found = (await look(client, root)).properties
    assert [found[name] for name in names] == ["0,2-3,130", "0-1"]
    for text in ("1", ""):
        await client.set_properties(root, dict.fromkeys(names, text))
        world.reload()
        found = (await look(client, root)).properties
        assert [found[name] for name in names] == [text, text]


async def test_a_partition_survives_a_reload_and_can_be_unset(client, root, world):
    """It is not a partition where systemd lacks the property, before 261."""
    if (await client.caps()).systemd_version < PROPERTIES["CPUSetPartition"].since:
        await client.start(slice_(root))
        assert (await look(client, root)).properties["CPUSetPartition"] == "member"
        return
    await client.start(slice_(root, AllowedCPUs="0", CPUSetPartition="isolated"))
    for partition in ("isolated", "member"):
        await client.set_properties(root, {"CPUSetPartition": partition})
        world.reload()
        assert (await look(client, root)).properties["CPUSetPartition"] == partition


async def test_limits_of_devices_survive_a_reload_and_are_replaced(client, root, world):
    limits = {
        "IOWeight": 50,
        "IOReadBandwidthMax": "/ 1048576; /dev/null 2097152",
        "IOWriteIOPSMax": "/dev/zero 100",
    }
    await client.start(slice_(root, **limits))
    for change in ({}, {"IOReadBandwidthMax": "/dev/null 4096"}, {"IOWriteIOPSMax": ""}):
        limits |= change
        if change:
            await client.set_properties(root, change)
        world.reload()
        found = await look(client, root)
        assert {key: found.properties[key] for key in limits} == limits


async def test_set_properties_of_no_unit(client, root):
    with pytest.raises(NoSuchUnit, match=root):
        await client.set_properties(root, {"CPUWeight": 5})
    assert await names(client, root) == []
    await client.start(slice_(root))
    assert (await look(client, root)).properties["CPUWeight"] == INFINITY


@pytest.mark.parametrize(("key", "value"), [*BAD_VALUES, ("Slice", "system.slice")])
async def test_set_properties_refuses_all_or_nothing(client, root, key, value):
    await client.start(slice_(root, IOAccounting=False))
    with pytest.raises(BadProperty, match=root):
        await client.set_properties(root, {"IOAccounting": True, key: value})
    assert not (await look(client, root)).properties["IOAccounting"]


async def test_set_properties_of_an_implied_slice(client, root, world):
    await client.start(slice_(root, "a"))
    await client.set_properties(root, {"MemoryMax": 1 << 30})
    world.reload()
    assert (await look(client, root)).properties["MemoryMax"] == 1 << 30


async def test_set_properties_lasts_as_long_as_the_unit(client, root):
    await client.start(slice_(root, "a"))
    for name in (root, slice_(root, "a").name):  # one implied, one not
        await client.set_properties(name, {"MemoryMax": 1 << 30})
    await client.stop(root)
    await client.start(slice_(root, "a"))
    found = await client.observe([f"{root[:-6]}*"])
    assert [unit.properties["MemoryMax"] for unit in found] == [INFINITY] * 2


async def test_set_properties_of_a_unit_with_a_file(client, root, world):
    world.provide(root)
    await client.set_properties(root, {"CPUWeight": 5})
    found = await look(client, root)
    assert (found.transient, found.properties["CPUWeight"]) == (False, 5)


async def test_set_properties_of_a_built_in_slice(client):
    await client.set_properties(UnitName("system.slice"), {"CPUWeight": 101})
    found = await look(client, UnitName("system.slice"))
    assert (found.transient, found.properties["CPUWeight"]) == (False, 101)
    await client.set_properties(UnitName("system.slice"), {"CPUWeight": INFINITY})


# attach


async def test_attach_moves_processes(client, root, world):
    first, second, third = (world.new_process() for _ in range(3))
    await client.start(scope(root, "a", first, Delegate=True))
    await client.start(scope(root, "b", second))
    await client.start(service(root, "c", "/bin/sleep", "1000", Delegate=True))
    async with world.insider() as insider:
        await insider.attach(UnitName(f"{root[:-6]}-a.scope"), [second, third])
        assert (await look(insider, UnitName(f"{root[:-6]}-a.scope"))).tasks == 3
        await until_names(insider, root, ["-a.scope", "-c.service", ".slice"])  # b's was its last
        await insider.attach(UnitName(f"{root[:-6]}-c.service"), [third])
        assert (await look(insider, UnitName(f"{root[:-6]}-c.service"))).tasks == 2
        assert (await look(insider, UnitName(f"{root[:-6]}-a.scope"))).tasks == 2


async def test_attach_of_a_process_that_exited(client, root, world):
    unit = scope(root, "s", world.new_process(), Delegate=True)
    await client.start(unit)
    ended = world.new_process()
    world.end_process(ended)
    async with world.insider() as insider:
        with pytest.raises(BadProperty, match=f"^{unit.name}: a process has exited"):
            await insider.attach(unit.name, [ended])


async def test_attach_to_a_unit_that_takes_no_processes(client, root, world):
    unit = scope(root, "s", world.new_process())
    await client.start(unit)
    async with world.insider() as insider:
        for name in (unit.name, root):
            with pytest.raises(BadProperty, match=f"^{name}: .*non-delegated"):
                await insider.attach(name, [world.new_process()])
        missing = UnitName(f"{root[:-6]}-no.scope")
        with pytest.raises(NoSuchUnit, match=missing):
            await insider.attach(missing, [world.new_process()])
    assert await names(client, root) == ["-s.scope", ".slice"]


# kill


async def test_kill_reaches_everything_below(client, root, world):
    await client.start(slice_(root))
    inside = slice_(root, "a", "b")
    await client.start(inside)
    await client.start(scope(root, "s", world.new_process(), world.new_process()))
    await client.start(scope(root, "t", world.new_process(), Slice=inside.name))
    await client.start(service(root, "u", "/bin/sleep", "1000", Slice=inside.name))
    await client.kill(slice_(root, "a").name, signal.SIGTERM)
    await until_names(client, root, ["-a-b.slice", "-a.slice", "-s.scope", ".slice"])
    await client.kill(UnitName(f"{root[:-6]}-s.scope"), signal.SIGKILL)
    await until_names(client, root, ["-a-b.slice", "-a.slice", ".slice"])


async def test_kill_of_nothing(client, root, stem):
    await client.start(slice_(root))
    await client.kill(root, signal.SIGTERM)
    for kind in UnitKind:
        await client.kill(UnitName(f"{stem}no.{kind}"), signal.SIGTERM)
    assert await names(client, root) == [".slice"]


async def test_kill_ends_processes_that_ignore_a_stop(client, root, world):
    await client.start(slice_(root))
    pid = world.new_stubborn_process()
    unit = scope(root, "s", pid, TimeoutStopUSec=600_000_000)
    await client.start(unit)
    world.hold_stubborn(unit.name)
    await client.kill(unit.name, signal.SIGTERM)
    with pytest.raises(CallTimeout, match=rf"^{unit.name}: no reply within 0\.1 s"):
        await client.stop(unit.name, timeout_sec=0.1)
    stopping = asyncio.create_task(client.stop(root))
    async with asyncio.timeout(10):
        while (await look(client, unit.name)).tasks != 1:
            pass
    await client.kill(root, signal.SIGKILL)
    await stopping
    assert await names(client, root) == []


# stop


async def test_stop_stops_all_units_below(client, root, world):
    await client.start(slice_(root, "a", "b"))
    inside = slice_(root, "a").name
    await client.start(scope(root, "s", world.new_process(), Slice=inside))
    await client.start(slice_(root, "ab"))
    await client.stop(inside)
    assert await names(client, root) == ["-ab.slice", ".slice"]


async def test_stop_of_no_unit(client, root, stem):
    await client.stop(root)
    await client.stop(UnitName(f"{stem}.scope"))
    assert await names(client, root) == []


async def test_stop_keeps_implied_parents(client, root):
    await client.start(slice_(root, "a"))
    await client.stop(slice_(root, "a").name)
    assert await names(client, root) == [".slice"]


async def test_stop_then_start_is_a_fresh_unit(client, root):
    for _ in range(5):
        await client.start(slice_(root, MemoryMax=1 << 30))
        await client.stop(root)
    await client.start(slice_(root))
    assert (await look(client, root)).properties["MemoryMax"] == INFINITY


async def test_stop_forgets_a_scope_that_failed(client, stem, world):
    name = UnitName(f"{stem}f.scope")
    world.fail_scope(name)
    await client.stop(name)
    assert await client.observe([name]) == ()


# stop_batch


async def test_stop_batch_stops_all_units_below(client, root):
    units = [slice_(root, *parts) for parts in ("a", "b", "c", "cd")]
    await client.start_batch([slice_(root), *units])
    await client.stop_batch([unit.name for unit in units[:3]])
    assert await names(client, root) == ["-c-d.slice", "-c.slice", ".slice"][2:]


async def test_stop_batch_accepts_units_that_are_not_loaded(client, root, stem):
    await client.start_batch([slice_(root), slice_(root, "a")])
    missing = [slice_(root, "no").name, UnitName(f"{stem}no.scope")]
    await client.stop_batch([slice_(root, "a").name, *missing])
    await client.stop_batch([])
    assert await names(client, root) == [".slice"]


async def test_stop_batch_then_start_is_a_fresh_unit(client, root):
    units = [slice_(root, f"p{n}", MemoryMax=1 << 30) for n in range(20)]
    for _ in range(3):
        await client.start_batch(units)
        await client.stop_batch([unit.name for unit in units])
    assert await names(client, root) == [".slice"]
    await client.start(slice_(root, "p7"))
    assert (await look(client, slice_(root, "p7").name)).properties["MemoryMax"] == INFINITY


async def test_stop_batch_forgets_scopes_that_failed(client, root, stem, world):
    name = UnitName(f"{stem}f.scope")
    world.fail_scope(name)
    await client.stop_batch([name, root])
    assert await client.observe([name]) == ()


# reset_failed


async def test_reset_failed_of_a_unit_that_did_not_fail(client, root):
    await client.start(slice_(root, CPUWeight=5))
    await client.reset_failed(root)
    assert (await look(client, root)).properties["CPUWeight"] == 5


async def test_reset_failed_of_no_unit(client, root, stem):
    await client.reset_failed(root)
    await client.reset_failed(UnitName(f"{stem}.scope"))


@pytest.mark.parametrize("name", ["a--b.slice", "x.socket", ""])
async def test_bad_names_are_refused_by_every_call(client, name):
    unit_name = UnitName(name)
    for call in (
        client.set_properties(unit_name, {"CPUWeight": 5}),
        client.stop(unit_name),
        client.stop_batch([unit_name]),
        client.reset_failed(unit_name),
        client.attach(unit_name, [1]),
        client.kill(unit_name, signal.SIGTERM),
    ):
        with pytest.raises(BadProperty):
            await call


# changes


async def until_changed(changes, *expected):
    async with asyncio.timeout(10):
        while not set(expected) <= set(changes):  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(0.01)


async def test_changes_of_other_clients_are_reported(client, root, stem, world):
    await client.start(slice_(root))
    changes = []
    holding = scope(root, "s", world.new_process())
    async with world.subscribed(changes.append) as listener:
        await listener.caps()
        for unit in (slice_(root, "a"), holding, service(root, "t", "/bin/sleep", "1000")):
            changes.clear()
            await client.start(unit)
            await until_changed(changes, unit.name)
        assert root not in changes
        changes.clear()
        await client.set_properties(root, {"CPUWeight": 5})
        await client.stop(slice_(root, "a").name)
        await until_changed(changes, slice_(root, "a").name)
        assert root not in changes
        world.end_process(holding.properties["PIDs"][0])
        await until_changed(changes, holding.name)
        changes.clear()
        await client.stop(root)
        await until_changed(changes, root, UnitName(f"{stem}-t.service"))
        changes.clear()
        world.fail_scope(holding.name)
        await until_changed(changes, holding.name)
        await client.reset_failed(holding.name)


async def test_reloads_are_counted(client, world):
    before = (await client.caps()).reload_count
    world.reload()
    after = await client.caps()
    assert (before is None) == (after.systemd_version < 261)
    assert after.reload_count == (None if before is None else before + 1)


async def test_a_reload_is_reported(client, root, world):
    changes = []
    async with world.subscribed(changes.append):
        await client.start(slice_(root))
        await until_changed(changes, root)
        changes.clear()
        world.reload()
        await until_changed(changes, None)
        assert root not in changes


# the one in memory: what goes wrong on request


async def test_memory_refuses_and_counts(root):
    memory = FakeSystemd()
    memory.refuse(root, Refused("no"))
    for call in (
        memory.start(slice_(root)),
        memory.start_batch([slice_(root, "a"), slice_(root)]),
        memory.set_properties(root, {"CPUWeight": 5}),
        memory.stop_batch([root]),
    ):
        with pytest.raises(Refused):
            await call
    waiting = timer(root, "t", 1)
    memory.refuse(waiting.name, Refused("no"))
    with pytest.raises(Refused):
        await memory.start_timer(waiting, service(root, "t", "/bin/true"))
    assert memory.calls.pop("start_timer") == 1
    memory.refuse(root, None)
    await memory.start(slice_(root))
    assert memory.calls == {"start": 2, "start_batch": 1, "set_properties": 1, "stop_batch": 1}


async def test_memory_breaks_once(root):
    changes = []
    memory = FakeSystemd(on_change=changes.append)
    memory.break_after(1)
    await memory.start(slice_(root))
    changes.clear()
    with pytest.raises(BusUnavailable):
        await memory.observe([root])
    assert changes == [None]
    assert len(await memory.observe([root])) == 1
    assert changes == [None, None]
    assert len(await memory.observe([root])) == 1
    assert changes == [None, None]
