"""Work in steps on an event loop: whatever else waits for the loop gets its turn in between."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from typing import TypeVar

from podslice.pausable import Steps

T = TypeVar("T")

TURN_SEC = 0.01
"""How long work goes on before others get a turn: a fifth of what an eviction may be delayed."""


class Pace:
    """Knows when it is time to let others have their turn."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Begin a turn; `now` is a monotonic clock."""
        self._now = now
        self._began = now()

    async def pause(self) -> None:
        """Let others have their turn where this one is over."""
        if self._now() - self._began >= TURN_SEC:
            await asyncio.sleep(0)
            self._began = self._now()


async def in_turns(steps: Steps[T], pace: Pace | None = None) -> T:
    """Run all steps, with turns of others in between; return their result.

    The collector of cycles rests meanwhile: it would look at everything that was read, again and
    again, in one turn, and there are no cycles in it.
    """
    pace = Pace() if pace is None else pace
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
