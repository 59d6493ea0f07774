"""SIGINT and SIGTERM end every verb with one line on what was done.

The first signal cancels a coroutine, so that it can tidy up; where none runs, and at the second
signal, the verb ends at once. What it has done is complete enough for the next `apply`: the record
of a pod is written before its slice is started or changed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from podslice.errors import printable

T = TypeVar("T")

NOTHING = "nothing was changed"
_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Interrupted(SystemExit):
    """A verb was interrupted; asyncio and typer let this exception pass."""

    def __init__(self, number: int) -> None:
        """`number` is the signal."""
        super().__init__(128 + number)
        self.number = number
        self.exit_code = 128 + number

    def __str__(self) -> str:
        """Return the line on what was done."""
        return f"{_WORDS[signal.Signals(self.number)]}: {_state.describe()}"


@dataclass(slots=True)
class _State:
    """What the verb has done, and how to cancel it."""

    describe: Callable[[], str] = lambda: NOTHING
    cancel: Callable[[], object] | None = None
    number: int = 0
    """The signal that has cancelled it."""


_state = _State()


def install() -> None:
    """Take over both signals, unless the caller has them ignored."""
    _state.describe, _state.cancel, _state.number = lambda: NOTHING, None, 0
    for number in _WORDS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _on_signal)


def describe_with(describe: Callable[[], str]) -> None:
    """State what was done if the verb is interrupted from here on."""
    _state.describe = describe


def begin(what: str) -> None:
    """State what may have been done if the verb is interrupted from here on."""
    describe_with(lambda: printable(what))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, which a signal cancels.

    Raises:
        Interrupted: a signal has cancelled it.
    """

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101 - for mypy: this is a task
        _state.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await work
        finally:
            _state.cancel = None

    _state.number = 0  # an earlier run in this process may have been cancelled
    try:
        return asyncio.run(cancellable())
    except BaseException as error:
        if _state.number and not isinstance(error, Interrupted):
            # also an error that followed from the cancellation
            raise Interrupted(_state.number) from None
        raise


@contextmanager
def at_once() -> Iterator[None]:
    """Let a signal interrupt this part of a coroutine at once: it blocks the event loop."""
    before, _state.cancel = _state.cancel, None
    try:
        yield
    finally:
        _state.cancel = before


def _on_signal(number: int, _: object) -> None:
    logging.disable()  # asyncio logs what fails after a cancellation
    if _state.cancel is None or _state.number:
        raise Interrupted(number)
    _state.number = number
    _state.cancel()
