import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from podslice.errors import BadProperty
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import ListedUnit, ObservedUnit, TransientUnit, UnitName, Value
from podslice.systemd.caching_client import CachingClient
from podslice.systemd.client import Client
from tests.fake_systemd import FakeSystemd

ROOT, POD, OTHER = UnitName("a.slice"), UnitName("a-b.slice"), UnitName("a-c.slice")
SCOPE = UnitName("x.scope")
MOUNT = UnitName(r"run-a\x2db.mount")
TMPFS: dict[str, Value] = {"What": "tmpfs", "Slice": POD}
ALL = ("a.slice", "a-*.slice", "*.scope", "run-*.mount")
TIMER = TransientUnit(
    name=UnitName("t.timer"), properties={"TimersMonotonic": (("OnActiveSec", 1),)}
)
SERVICE = TransientUnit(
    name=UnitName("t.service"), properties={"ExecStart": (("/bin/true", ("true",), False),)}
)


@pytest.fixture
def memory() -> FakeSystemd:
    return FakeSystemd()


@pytest.fixture
def cgroups(tmp_path: Path) -> CgroupFs:
    (tmp_path / "cgroup.controllers").touch()
    return CgroupFs(mount=tmp_path)


@pytest.fixture
async def client(memory: FakeSystemd, cgroups: CgroupFs) -> CachingClient:
    """Has seen a pod with a volume, and another pod."""
    for name in (POD, OTHER):
        await memory.start(slice_(name))
    await memory.start(TransientUnit(name=MOUNT, properties=TMPFS))
    remembering = CachingClient(memory, cgroups)
    await remembering.observe(ALL)
    await remembering.caps()
    memory.calls.clear()
    return remembering


def slice_(name: UnitName, **properties: Value) -> TransientUnit:
    return TransientUnit(name=name, properties=properties)


def weights(units: tuple[ObservedUnit, ...]) -> dict[str, Value]:
    return {unit.name: unit.properties["CPUWeight"] for unit in units if unit.name.endswith("e")}


def put_limit(cgroups: CgroupFs, control_group: str, text: str) -> None:
    directory = cgroups.mount / control_group.lstrip("/")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "memory.max").write_text(f"{text}\n")


async def test_observing_unchanged_units_is_one_call(
    client: CachingClient, memory: FakeSystemd
) -> None:
    expected = await memory.observe(ALL)
    memory.calls.clear()
    for _ in range(3):
        assert await client.observe(ALL) == expected
        await client.caps()
    assert [unit.name for unit in expected] == [POD, OTHER, ROOT, MOUNT]
    assert memory.calls == {"list_units": 3}


async def test_signals_replace_one_list(client: CachingClient, memory: FakeSystemd) -> None:
    expected = await memory.observe(ALL)
    memory.calls.clear()
    client.trust_signals()
    assert await client.observe(ALL) == expected
    assert memory.calls == {}
    assert await client.observe(ALL) == expected
    assert memory.calls == {"list_units": 1}


@pytest.mark.parametrize("name", [POD, "new.slice", None])
async def test_units_are_listed_after_a_signal(
    client: CachingClient, memory: FakeSystemd, name: UnitName | None
) -> None:
    memory.calls.clear()
    client.forget(name)
    client.trust_signals()
    assert await client.observe(ALL) == await memory.observe(ALL)
    assert memory.calls["list_units"] == 1


async def test_units_of_other_patterns_are_listed(
    client: CachingClient, memory: FakeSystemd
) -> None:
    memory.calls.clear()
    client.trust_signals()
    assert [unit.name for unit in await client.observe(["a*"])]
    assert memory.calls["list_units"] == 1
    client.trust_signals()
    assert await client.observe(ALL) == await memory.observe(ALL)
    assert memory.calls["list_units"] == 2, "the last list was of other units"


async def test_no_patterns_make_no_call(client: CachingClient) -> None:
    assert await client.observe([]) == ()


async def test_only_forgotten_units_are_read(client: CachingClient, memory: FakeSystemd) -> None:
    for name in (POD, OTHER):
        await memory.set_properties(name, {"CPUWeight": 7})
    before = weights(await client.observe(ALL))
    assert 7 not in before.values()
    client.forget(POD)
    assert weights(await client.observe(ALL)) == {**before, POD: 7}
    client.forget(None)
    assert weights(await client.observe(ALL)) == {**before, POD: 7, OTHER: 7}
    await client.caps()
    assert memory.calls == {"set_properties": 2, "list_units": 3, "observe": 2, "caps": 1}


@pytest.mark.parametrize("state", ["failed", "gone", "new"])
async def test_a_unit_that_is_listed_otherwise_is_read(
    client: CachingClient, memory: FakeSystemd, state: str
) -> None:
    if state == "failed":
        memory.fail(POD)
    elif state == "gone":
        await memory.stop(POD)
    else:
        await memory.start(slice_(UnitName("a-d.slice")))
    assert await client.observe(ALL) == await memory.observe(ALL)


async def test_an_unloaded_unit_is_not_cached(client: CachingClient, memory: FakeSystemd) -> None:
    for patterns in (ALL, (POD,)):
        await memory.stop(POD)
        await client.observe(patterns)
        await memory.start(slice_(POD, CPUWeight=5))
        assert weights(await client.observe(ALL))[POD] == 5
        await memory.set_properties(POD, {"CPUWeight": 6})
        client.forget(POD)
        assert weights(await client.observe(ALL))[POD] == 6


async def test_a_unit_that_is_named_is_read_in_any_case(
    client: CachingClient, memory: FakeSystemd
) -> None:
    await memory.set_properties(POD, {"CPUWeight": 7})
    assert weights(await client.observe([POD])) == {POD: 7}
    assert weights(await client.observe(ALL))[POD] == 7
    assert memory.calls == {"set_properties": 1, "observe": 1, "list_units": 1}


async def test_many_units_are_read_by_their_patterns(
    memory: FakeSystemd, cgroups: CgroupFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    observe = memory.observe

    async def noted(patterns: tuple[str, ...]) -> tuple[ObservedUnit, ...]:
        asked.append(len(patterns))
        return await observe(patterns)

    monkeypatch.setattr(memory, "observe", noted)
    client = CachingClient(memory, cgroups)
    await memory.start_batch([slice_(UnitName(f"a-p{n}.slice")) for n in range(100)])
    assert len(await client.observe(ALL)) == 101
    assert len(await client.observe(ALL)) == 101
    for n in range(50):
        client.forget(UnitName(f"a-p{n}.slice"))
    assert len(await client.observe(ALL)) == 101
    assert asked == [len(ALL), 50]


class Referring(FakeSystemd):
    """Lists a name that others only refer to, as systemd does."""

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        listed = await super().list_units(patterns)
        return (*listed, ListedUnit(name=OTHER, active_state="inactive"))


async def test_a_referenced_name_is_not_a_unit_and_is_read_once(
    cgroups: CgroupFs,
) -> None:
    memory = Referring()
    await memory.start(slice_(POD))
    client = CachingClient(memory, cgroups)
    for _ in range(3):
        assert [unit.name for unit in await client.observe(ALL)] == [POD, ROOT]
    assert memory.calls["observe"] == 1


async def test_a_unit_that_is_forgotten_during_a_read_is_not_cached(
    memory: FakeSystemd, cgroups: CgroupFs
) -> None:
    """The answer may be older than the change."""
    client = CachingClient(memory, cgroups)
    await memory.start_batch([slice_(POD), slice_(OTHER)])
    for forgotten, reads in ((POD, 1), (None, 1), (SCOPE, 0)):
        client.forget(None)
        looking = asyncio.create_task(client.observe(ALL))
        while not memory.calls["observe"]:  # noqa: ASYNC110 - no event is set
            await asyncio.sleep(0)
        client.forget(forgotten)
        await looking
        memory.calls.clear()
        await client.observe(ALL)
        await client.observe(ALL)
        assert memory.calls["observe"] == reads
        memory.calls.clear()


async def test_units_that_are_forgotten_during_several_reads_are_not_cached(
    memory: FakeSystemd, cgroups: CgroupFs
) -> None:
    client = CachingClient(memory, cgroups)
    await memory.start_batch([slice_(POD), slice_(OTHER)])
    observations = [asyncio.create_task(client.observe(["a-*.slice"]))]
    while not memory.calls["observe"]:  # noqa: ASYNC110 - no event is set
        await asyncio.sleep(0)
    observations.append(asyncio.create_task(client.observe([OTHER])))
    await asyncio.sleep(0)
    client.forget(POD)
    client.forget(OTHER)
    await asyncio.gather(*observations)
    assert (client.units, client.forgotten) == ({}, set())


async def test_capabilities_are_read_again_after_a_reconnection(
    client: CachingClient, memory: FakeSystemd
) -> None:
    client.forget(None)
    asking = asyncio.create_task(client.caps())
    while not memory.calls["caps"]:  # noqa: ASYNC110 - no event is set
        await asyncio.sleep(0)
    client.forget(None)
    await asking
    for _ in range(2):
        assert (await client.caps()).systemd_version == 257
    assert memory.calls["caps"] == 2


WRITES: list[tuple[UnitName, Callable[[Client], Awaitable[None]]]] = [
    (ROOT, lambda client: client.start(slice_(ROOT))),
    (ROOT, lambda client: client.start_batch([slice_(ROOT)])),
    (POD, lambda client: client.set_properties(POD, {"CPUWeight": 7})),
    (SCOPE, lambda client: client.attach(SCOPE, [6])),
    (SCOPE, lambda client: client.kill(SCOPE, signal.SIGTERM)),
    (SCOPE, lambda client: client.stop(SCOPE)),
    (SCOPE, lambda client: client.stop_batch([POD, SCOPE])),
    (SCOPE, lambda client: client.reset_failed(SCOPE)),
    (TIMER.name, lambda client: client.start_timer(TIMER, SERVICE)),
    (SERVICE.name, lambda client: client.start_timer(TIMER, SERVICE)),
]


@pytest.mark.parametrize(("name", "write"), WRITES)
async def test_changed_units_are_forgotten(
    client: CachingClient,
    memory: FakeSystemd,
    name: UnitName,
    write: Callable[[Client], Awaitable[None]],
) -> None:
    scope = {"PIDs": (4, 5), "Delegate": True, "Slice": POD}
    await memory.start(TransientUnit(name=SCOPE, properties=scope))
    await memory.start_timer(TIMER, SERVICE)
    await client.observe(("*",))
    await memory.stop(TIMER.name)
    before = set(client.units)
    await write(client)
    assert name in before
    assert name not in client.units
    assert OTHER in client.units


async def test_a_unit_is_read_again_after_a_failed_change(
    client: CachingClient, memory: FakeSystemd
) -> None:
    await memory.set_properties(POD, {"CPUWeight": 7})
    memory.refuse(POD, BadProperty("no"))
    with pytest.raises(BadProperty):
        await client.set_properties(POD, {"CPUWeight": 8})
    assert weights(await client.observe(ALL))[POD] == 7


async def test_verify_finds_changes_without_a_signal(
    memory: FakeSystemd, client: CachingClient, cgroups: CgroupFs
) -> None:
    assert client.verify() == ()
    for group in ("/a.slice", "/a.slice/a-b.slice", "/a.slice/a-c.slice"):
        put_limit(cgroups, group, "4096")
    client.forget(None)
    await client.observe(ALL)
    assert client.verify() == ()
    put_limit(cgroups, "/a.slice/a-b.slice", "8192")
    await memory.set_properties(POD, {"CPUWeight": 7})
    assert client.verify() == (POD,)
    assert client.verify() == ()
    assert weights(await client.observe(ALL))[POD] == 7
    assert client.verify() == ()


async def test_verify_finds_values_that_were_set_during_a_read(
    client: CachingClient, memory: FakeSystemd, cgroups: CgroupFs, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_limit(cgroups, "/a.slice/a-b.slice", "max")
    observe = memory.observe

    async def set_meanwhile(patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        units = await observe(patterns)
        put_limit(cgroups, "/a.slice/a-b.slice", "4096")
        return units

    monkeypatch.setattr(memory, "observe", set_meanwhile)
    client.forget(POD)
    await client.observe(ALL)
    assert client.verify([POD]) == (POD,)


async def test_verify_leaves_out_removed_units(
    memory: FakeSystemd, client: CachingClient, cgroups: CgroupFs
) -> None:
    put_limit(cgroups, "/a.slice/a-b.slice", "4096")
    client.forget(POD)
    await client.observe(ALL)
    (cgroups.mount / "a.slice/a-b.slice/memory.max").unlink()
    memory.calls.clear()
    assert client.verify() == ()
    await client.observe(ALL)
    assert memory.calls == {"list_units": 1, "observe": 1}


async def test_it_is_a_client_as_the_one_in_it(memory: FakeSystemd, cgroups: CgroupFs) -> None:
    client: Client = CachingClient(memory, cgroups)
    async with client as entered:
        assert entered is client
        assert await entered.list_units(["-*"]) == await memory.list_units(["-*"])
