"""The lock of all podslice processes that change something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podslice.store import Store
from podslice.store.lock import held_for

_POLL_SEC = 0.02
LOCK_TIMEOUT_SEC = 120.0
"""How long another podslice process may hold the lock."""


@asynccontextmanager
async def write_lock(store: Store) -> AsyncIterator[None]:
    """Hold the lock; the event loop continues while another process holds it.

    Raises:
        HostError: another process holds it for too long.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + LOCK_TIMEOUT_SEC
    while (lock := store.try_lock()) is None:
        if now() > deadline:
            raise held_for(LOCK_TIMEOUT_SEC, store.root)
        await asyncio.sleep(_POLL_SEC)
    with lock:
        yield
