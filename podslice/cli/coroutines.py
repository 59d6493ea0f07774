"""Coroutines of verbs, which a signal cancels."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from podslice.cli import interrupts

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, which a signal cancels.

    Raises:
        interrupts.Interrupted: a signal has cancelled it.
    """

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - for mypy: this is a task
        interrupts.state.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await work
        finally:
            interrupts.state.cancel = None

    interrupts.state.number = 0  # an earlier run in this process may have been cancelled
    try:
        return asyncio.run(cancellable())
    except BaseException as error:
        if interrupts.state.number and not isinstance(error, interrupts.Interrupted):
            # also an error that followed from the cancellation
            raise interrupts.Interrupted(interrupts.state.number) from None
        raise
