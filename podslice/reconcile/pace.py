"""Run long work in steps on an event loop, with turns of other tasks in between."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import TypeVar

from podslice.pausable import Steps

T = TypeVar("T")

TURN_SEC = 0.01
"""The length of a turn: a fifth of the delay that eviction tolerates."""


class Pace:
    """Measures turns."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begin a turn; `now` is a monotonic clock."""
        self._now = now
        self._began = now()

    async def pause(self) -> None:
        """Yield to other tasks once this turn is over."""
        if self._now() - self._began >= TURN_SEC:
            await asyncio.sleep(0)
            self._began = self._now()


async def next_turn() -> None:
    """Yield to other tasks before work that may take a turn by itself."""
    await asyncio.sleep(0)


async def in_turns(steps: Steps[T], pace: Pace | None = None) -> T:
    """Run all steps, with turns of other tasks in between; return their result.

    Cyclic garbage collection is disabled meanwhile: it would traverse everything that was read,
    repeatedly and within one turn, although the data has no cycles.
    """
    if pace is None:
        await next_turn()
        pace = Pace()
    collects = gc.isenabled()
    gc.disable()
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await pace.pause()
    finally:
        if collects:
            gc.enable()
