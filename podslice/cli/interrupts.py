"""SIGINT and SIGTERM end every verb with one line on what was done.

The first signal cancels a coroutine, so that it can tidy up; where none runs, and at the second
signal, the verb ends at once. What it has done is complete enough for the next `apply`: the record
of a pod is written before its slice is started or changed.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from podslice.errors import printable

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
        return f"{_WORDS[signal.Signals(self.number)]}: {state.describe()}"


@dataclass(slots=True)
class State:
    """What the verb has done, and how to cancel it."""

    describe: Callable[[], str] = lambda: NOTHING
    cancel: Callable[[], object] | None = None
    number: int = 0
    """The signal that has cancelled it."""


state = State()
"""The state of the verb of this process."""


def install() -> None:
    """Take over both signals, unless the caller has them ignored."""
    state.describe, state.cancel, state.number = lambda: NOTHING, None, 0
    for number in _WORDS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _on_signal)


def describe_with(describe: Callable[[], str]) -> None:
    """State what was done if the verb is interrupted from here on."""
    state.describe = describe


def begin(what: str) -> None:
    """State what may have been done if the verb is interrupted from here on."""
    describe_with(lambda: printable(what))


@contextmanager
def at_once() -> Iterator[None]:
    """Let a signal interrupt this part of a coroutine at once: it blocks the event loop."""
    before, state.cancel = state.cancel, None
    try:
        yield
    finally:
        state.cancel = before


def _on_signal(number: int, _: object) -> None:
    logging.disable()  # asyncio logs what fails after a cancellation
    if state.cancel is None or state.number:
        raise Interrupted(number)
    state.number = number
    state.cancel()
