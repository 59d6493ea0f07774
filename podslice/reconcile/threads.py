"""Work that must not delay an event loop: reading of manifests, decisions, and comparisons."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread; return its result.

    Cyclic garbage collection is disabled meanwhile: it would stop all threads while it traverses
    what the function has created, and the data has no cycles. A cancellation does not end the
    thread, which asyncio waits for when its loop is closed.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    finally:
        if collects:
            gc.enable()
