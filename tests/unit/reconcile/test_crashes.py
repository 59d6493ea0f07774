"""After a crash at any call the next apply converges."""

from contextlib import suppress
from dataclasses import replace

import pytest

from podslice.errors import SystemdError
from podslice.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    besteffort,
    burstable,
    guaranteed,
    world,
)
from tests.unit.reconcile.worlds import WRITES, assert_settled, put, slices, written


class Killed(Exception):
    """The process dies."""


class Mortal(FakeSystemd):
    """Dies before the effect of a write, and stays dead until revived."""

    def __init__(self):
        super().__init__()
        self.writes_left = None

    async def _begin(self, call, *writes):
        if call in WRITES and self.writes_left is not None:
            if self.writes_left == 0:
                raise Killed
            self.writes_left -= 1
        await super()._begin(call, *writes)


class MortalStore(Store):
    """Dies before a record is written or removed."""

    def __init__(self, root, writes_left):
        super().__init__(root)
        self.writes_left = writes_left

    def save(self, pod, source=None):
        self._one_less()
        super().save(pod, source)

    def remove(self, uid):
        self._one_less()
        super().remove(uid)

    def _one_less(self):
        if self.writes_left == 0:
            raise Killed
        self.writes_left -= 1


MANY = tuple(besteffort(f"many{number}") for number in range(6))
BEFORE = (*MANY[:3], besteffort("moves"), burstable("web"), guaranteed("away"))
AFTER = (*MANY, burstable("moves"), burstable("web", "cpu=2", "memory=1Gi"), guaranteed("new"))
CHANGES = [
    pytest.param((), AFTER, id="first"),
    pytest.param(BEFORE, AFTER, id="change"),
    pytest.param(AFTER, BEFORE, id="back"),
    pytest.param(AFTER, (), id="end"),
]


async def outcome_of(tmp_path, then):
    memory = Mortal()
    await put(world(tmp_path, memory), *then)
    return await slices(memory)


async def die_and_come_back(tmp_path, was, then, *, calls=None, records=None):
    """Die during an apply, then apply again; return whether it died."""
    memory = Mortal()
    here = world(tmp_path, memory)
    await put(here, *was)
    memory.writes_left = calls
    dying = here
    if records is not None:
        dying = replace(here, store=MortalStore(here.store.root, records))
    died = True
    with suppress(Killed):
        await put(dying, *then, prune=True)
        died = False
    memory.writes_left = None
    report = await put(here, *then, prune=True)
    assert report.exit_code == 0
    await assert_settled(here, *then)
    memory.calls.clear()
    await put(here, *then, prune=True)
    assert not written(memory)
    return died, await slices(memory)


@pytest.mark.parametrize(("was", "then"), CHANGES)
async def test_after_a_crash_at_any_call_the_next_apply_converges(tmp_path, was, then):
    expected = await outcome_of(tmp_path / "expected", then)
    for calls in range(100):
        died, found = await die_and_come_back(tmp_path / str(calls), was, then, calls=calls)
        assert found == expected
        if not died:
            assert calls > 2
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize(("was", "then"), CHANGES)
async def test_after_a_crash_at_any_record_the_next_apply_converges(tmp_path, was, then):
    expected = await outcome_of(tmp_path / "expected", then)
    for records in range(100):
        died, found = await die_and_come_back(tmp_path / str(records), was, then, records=records)
        assert found == expected
        if not died:
            assert records > 2
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize(("was", "then"), CHANGES)
async def test_after_a_lost_connection_at_any_call_the_next_apply_converges(tmp_path, was, then):
    """The connection is lost once; other steps continue, and the next apply repairs."""
    expected = await outcome_of(tmp_path / "expected", then)
    for calls in range(40):
        memory = FakeSystemd()
        here = world(tmp_path / str(calls), memory)
        await put(here, *was)
        memory.calls.clear()
        memory.break_after(calls)
        with suppress(SystemdError):
            await put(here, *then, prune=True)
        broke = sum(memory.calls.values()) > calls
        memory.break_after(10_000)
        assert (await put(here, *then, prune=True)).exit_code == 0
        await assert_settled(here, *then)
        assert await slices(memory) == expected
        if not broke:
            return
    pytest.fail("it never came to an end")
