"""A full-screen page on the terminal, which is restored afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from podslice.cli.keyboard import KeyDecoder
from podslice.cli.views.text_width import ljust

# Source: xterm, "XTerm Control Sequences", private modes 1049, 7 and 25
_ENTER = "\x1b[?1049h\x1b[?7l\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?7h\x1b[?1049l"
_ESCAPE_SEC = 0.05
"""The time in which the rest of a sequence follows its Escape, as it does also over a network."""
_HOME, _END_OF_LINE, _END_OF_PAGE = "\x1b[H", "\x1b[K", "\x1b[J"
_REVERSE, _PLAIN = "\x1b[7m", "\x1b[m"


def is_interactive() -> bool:
    """Return whether input and output are a terminal that supports full-screen pages."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


class Screen:
    """The terminal in full-screen mode; the event loop calls `on_key` and `on_resize`."""

    def __init__(self, on_key: Callable[[str], None], on_resize: Callable[[], None]) -> None:
        self.on_key = on_key
        self.on_resize = on_resize
        self._decoder = KeyDecoder()
        self._flushing: asyncio.TimerHandle | None = None
        self.ended_by: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Set to the signal that requests the end."""

    @property
    def size(self) -> os.terminal_size:
        """Columns and lines; 80 × 24 if unknown, as on a serial console."""
        width, height = os.get_terminal_size(sys.stdout.fileno())
        return os.terminal_size((width or 80, height or 24))

    def draw(self, lines: Sequence[str], *, marked: int | None = None) -> None:
        """Draw as many lines as fit; the line `marked`, which has no colors, is highlighted.

        Lines are not broken: the terminal cuts what is too wide, as after it became narrower.
        """
        width, height = self.size
        shown = list(lines[:height])
        if marked is not None and marked < len(shown):
            shown[marked] = f"{_REVERSE}{ljust(shown[marked], width)}{_PLAIN}"
        # erased before it is written: at the right margin the last character would be erased, too
        page = "\r\n".join(f"{_END_OF_LINE}{line}" for line in shown)
        rest = f"\r\n{_END_OF_PAGE}" if len(shown) < height else ""
        _write(f"{_HOME}{page}{rest}")

    @contextmanager
    def full_screen(self) -> Iterator[None]:
        """Switch to full-screen mode, and restore the terminal at the end."""
        loop = asyncio.get_running_loop()
        keyboard = sys.stdin.fileno()
        before = _enter(keyboard)
        loop.add_reader(keyboard, self._read, keyboard)
        loop.add_signal_handler(signal.SIGWINCH, self.on_resize)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend, keyboard, before)
        loop.add_signal_handler(signal.SIGCONT, self._resume, keyboard)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.end, number)
        try:
            yield
        finally:
            loop.remove_reader(keyboard)
            _leave(keyboard, before)

    def _read(self, keyboard: int) -> None:
        try:
            data = os.read(keyboard, 1024)
        except OSError:
            data = b""
        if not data:  # the terminal was closed
            self.end(signal.SIGHUP)
        if self._flushing is not None:
            self._flushing.cancel()
        self._press(self._decoder.feed(data))
        if self._decoder.is_pending:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(_ESCAPE_SEC, self._flush)

    def _flush(self) -> None:
        """Take an Escape that nothing has followed as the key."""
        self._press(self._decoder.flush())

    def _press(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.on_key(key)

    def end(self, number: int) -> None:
        """Request the end, as this signal would."""
        if not self.ended_by.done():
            self.ended_by.set_result(number)

    def _suspend(self, keyboard: int, before: list[Any]) -> None:
        """Suspend the process on Ctrl-Z."""
        _leave(keyboard, before)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self, keyboard: int) -> None:
        """Draw again after any stop, as the shell has changed the terminal's modes."""
        _enter(keyboard)
        self.on_resize()


def _enter(keyboard: int) -> list[Any]:
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    _write(_ENTER)
    return before


def _leave(keyboard: int, before: list[Any]) -> None:
    _write(_LEAVE)
    try:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
    except termios.error:
        return  # the terminal was closed


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
