"""What the client in memory does beyond the contract (see tests/bus/test_contract.py)."""

import asyncio
import signal

import pytest

from podslice.errors import BadProperty, BusUnavailable, Refused, SystemdError
from podslice.model.unit import INFINITY, TransientUnit, UnitName
from podslice.systemd.client import Client
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import USER

NAME = UnitName("a-b.slice")


def unit(**properties: int) -> TransientUnit:
    return TransientUnit(name=NAME, properties=properties)


def test_it_is_a_client() -> None:
    client: Client = FakeSystemd(systemd_version=252, manager=USER)
    assert isinstance(client, FakeSystemd)


async def test_caps_are_as_given() -> None:
    caps = await FakeSystemd(systemd_version=252, manager=USER).caps()
    assert (caps.systemd_version, caps.manager) == (252, USER)


async def test_old_systemd_does_not_know_all_properties() -> None:
    memory = FakeSystemd(systemd_version=239)
    await memory.start(unit(MemoryLow=1))
    with pytest.raises(BadProperty, match="MemoryMin"):
        await memory.set_properties(NAME, {"MemoryMin": 1})


async def test_units_stay_when_the_client_is_closed() -> None:
    memory = FakeSystemd()
    async with memory as client:
        await client.start(unit())
    async with memory as client:
        assert len(await client.observe(["a*"])) == 2


@pytest.mark.parametrize(("version", "left"), [(252, 470_000), (257, 477_100)])
async def test_reload_cuts_the_quota(version: int, left: int) -> None:
    memory = FakeSystemd(systemd_version=version)
    await memory.start(unit(CPUQuotaPerSecUSec=477_123))
    memory.reload_externally()
    (found,) = await memory.observe([NAME])
    assert found.properties["CPUQuotaPerSecUSec"] == left
    assert found.properties["MemoryMax"] == INFINITY


async def test_set_tasks() -> None:
    memory = FakeSystemd()
    await memory.start(unit())
    scope = UnitName("c.scope")
    await memory.start(TransientUnit(name=scope, properties={"Slice": NAME, "PIDs": (5,)}))
    memory.set_tasks(NAME, 3)
    assert {one.name: one.tasks for one in await memory.observe(["a*", "c*"])} == {
        "a-b.slice": 4,
        "a.slice": 4,
        "c.scope": 1,
    }
    memory.set_tasks(scope, 0)
    assert await memory.observe(["c*"]) == ()


async def test_signals_are_remembered_and_stubborn_units_end_by_one_only() -> None:
    memory = FakeSystemd()
    await memory.start(unit())
    scope = UnitName("c.scope")
    await memory.start(TransientUnit(name=scope, properties={"Slice": NAME, "PIDs": (5,)}))
    memory.make_stubborn(scope)
    stopping = asyncio.create_task(memory.stop(NAME))
    await memory.kill(NAME, signal.SIGTERM)
    assert not stopping.done()
    await memory.kill(scope, signal.SIGKILL)
    await stopping
    assert memory.signals == [(NAME, signal.SIGTERM), (scope, signal.SIGKILL)]
    assert [one.name for one in await memory.observe(["*"])] == [
        "-.slice",
        "a.slice",
        "system.slice",
    ]


async def test_processes_that_end_take_their_scope_with_them() -> None:
    memory = FakeSystemd()
    scope = UnitName("c.scope")
    await memory.start(TransientUnit(name=scope, properties={"PIDs": (5, 6)}))
    memory.end_process(5)
    assert [one.tasks for one in await memory.observe([scope])] == [1]
    memory.end_process(6)
    assert await memory.observe([scope]) == ()
    with pytest.raises(BadProperty, match="exited"):
        await memory.start(TransientUnit(name=scope, properties={"PIDs": (6,)}))


async def test_a_unit_that_failed_is_not_killed() -> None:
    memory = FakeSystemd()
    scope = UnitName("c.scope")
    await memory.start(TransientUnit(name=scope, properties={"PIDs": (5,)}))
    memory.fail(scope)
    await memory.kill(scope, signal.SIGKILL)
    assert [one.active_state for one in await memory.observe([scope])] == ["failed"]


async def test_fail_and_reset() -> None:
    memory = FakeSystemd()
    scope = UnitName("c.scope")
    await memory.start(TransientUnit(name=scope, properties={"PIDs": (5,)}))
    memory.fail(scope)
    (found,) = await memory.observe([scope])
    assert (found.active_state, found.control_group, found.tasks) == ("failed", "", 0)
    await memory.reset_failed(scope)
    assert await memory.observe([scope]) == ()


async def test_refuse_until_it_is_lifted() -> None:
    memory = FakeSystemd()
    memory.refuse(NAME, Refused("no"))
    for _ in range(2):
        with pytest.raises(Refused):
            await memory.start(unit())
    assert await memory.observe(["a*"]) == ()
    memory.refuse(NAME, None)
    await memory.start(unit())
    assert memory.calls == {"start": 3, "observe": 1}


async def test_break_after_so_many_calls_once() -> None:
    memory = FakeSystemd()
    memory.break_after(1)
    await memory.start(unit())
    with pytest.raises(BusUnavailable):
        await memory.stop(NAME)
    await memory.stop(NAME)


async def test_built_in_slices_do_not_stop() -> None:
    with pytest.raises(SystemdError, match="not applicable"):
        await FakeSystemd().stop(UnitName("system.slice"))
