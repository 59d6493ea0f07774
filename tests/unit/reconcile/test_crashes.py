"""After a crash at any call the next apply converges."""

from contextlib import suppress
from dataclasses import replace

import pytest

from podslice.errors import SystemdError
from podslice.policy.ownership import uid_of
from podslice.store.store import Store
from tests.fake_systemd import FakeSystemd
from tests.unit.builders import (
    besteffort,
    burstable,
    guaranteed,
    world,
)
from tests.unit.reconcile.worlds import WRITES, assert_settled, put, slices, written


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Let a few pods have several batches, which the records are written between."""
    monkeypatch.setattr("podslice.reconcile.act.BATCH_MAX", 5)


class Killed(Exception):
    """The process dies."""


class Life:
    """The writes that a process still makes; it stays dead after the last."""

    def __init__(self, *, calls=None, records=None):
        self.left = {"calls": calls, "records": records}
        self.is_over = False

    def spend(self, what):
        left = self.left[what]
        if self.is_over or left == 0:
            self.is_over = True
            raise Killed
        if left is not None:
            self.left[what] = left - 1


class Mortal(FakeSystemd):
    """Dies before the effect of a write."""

    def __init__(self):
        super().__init__()
        self.life = Life()

    async def _begin(self, call, *writes):
        if call in WRITES:
            self.life.spend("calls")
        await super()._begin(call, *writes)


class MortalStore(Store):
    """Dies before a record is written or removed."""

    def __init__(self, root, life):
        super().__init__(root)
        self.life = life

    def save(self, pod, source=None):
        self.life.spend("records")
        super().save(pod, source)

    def remove(self, uid):
        self.life.spend("records")
        super().remove(uid)


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
    memory.life = Life(calls=calls, records=records)
    with suppress(Killed):
        await put(replace(here, store=MortalStore(here.store.root, memory.life)), *then, prune=True)
    died = memory.life.is_over
    memory.life = Life()
    assert {uid_of(name) for name in await slices(memory)} - {None} <= {
        pod.uid for pod in here.store.load().pods
    }
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
