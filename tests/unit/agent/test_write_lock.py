import asyncio

import pytest

from podslice.agent import reconciler as module
from podslice.agent.reconciler import write_lock
from podslice.errors import HostError
from podslice.store.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "run")


async def test_waiting_for_the_lock_does_not_block_the_event_loop(store):
    other, turns = Store(store.root), []

    async def take():
        async with write_lock(store):
            turns.append("ours")

    with other.lock():
        waiting = asyncio.create_task(take())
        for _ in range(5):
            await asyncio.sleep(0.005)
            turns.append("loop")
    await waiting
    assert turns == ["loop"] * 5 + ["ours"]
    with other.lock():
        pass  # it was released


async def test_a_lock_that_is_not_released_is_an_error_with_a_hint(store, monkeypatch):
    monkeypatch.setattr(module, "LOCK_TIMEOUT_SEC", 0.05)
    with Store(store.root).lock(), pytest.raises(HostError, match="fuser -v"):
        async with write_lock(store):
            pass
