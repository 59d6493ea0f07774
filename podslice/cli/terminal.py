"""A full-screen page on the terminal, which is restored afterwards, and the keys of its user."""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

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
            # an Escape that nothing has followed is the key
            self._flushing = loop.call_later(
                _ESCAPE_SEC, lambda: self._press(self._decoder.flush())
            )

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


class Key(StrEnum):
    """A key that is not a character; others are the character that they produce."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page-up"
    PAGE_DOWN = "page-down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"


_ESCAPE_CHAR = "\x1b"
# Source: xterm, "XTerm Control Sequences": PC-style function keys; the Linux console and tmux
# send 1~ and 4~ for Home and End, rxvt 7~ and 8~
_SEQUENCES: Mapping[str, Key] = {
    "A": Key.UP,
    "B": Key.DOWN,
    "H": Key.HOME,
    "F": Key.END,
    "1~": Key.HOME,
    "7~": Key.HOME,
    "4~": Key.END,
    "8~": Key.END,
    "5~": Key.PAGE_UP,
    "6~": Key.PAGE_DOWN,
}
_CONTROLS: Mapping[str, Key] = {
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x7f": Key.BACKSPACE,
    "\b": Key.BACKSPACE,
}
# Source: ECMA-48, 5.4: parameters, intermediate bytes and the final byte; xterm sends O and one
# character in the mode of application keys
_SEQUENCE = re.compile(r"\x1b(?:\[([0-9:;<=>?]*[ -/]*[@-~])|O(.))", re.DOTALL)
_BEGINNING = re.compile(r"\x1b(?:\[[0-9:;<=>?]*[ -/]*|O)?")


class KeyDecoder:
    """Turns bytes into keys; a sequence may arrive in several parts."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def is_pending(self) -> bool:
        """Whether the last bytes are the Escape key or the beginning of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys of these bytes, and keep the beginning of a sequence."""
        text, self._rest = self._rest + self._text.decode(data), ""
        keys: list[str] = []
        while text:
            if found := _SEQUENCE.match(text):
                keys += filter(None, [_SEQUENCES.get(found[1] or found[2])])
                text = text[found.end() :]
            elif _BEGINNING.fullmatch(text):
                self._rest, text = text, ""
            else:
                keys += _key(text[0])
                text = text[1:]
        return keys

    def flush(self) -> list[str]:
        """Return what is pending as keys, when nothing has followed."""
        rest, self._rest = self._rest, ""
        return [Key.ESCAPE, *rest[1:]] if rest else []


def _key(char: str) -> list[str]:
    if char == _ESCAPE_CHAR:
        return [Key.ESCAPE]
    if char in _CONTROLS:
        return [_CONTROLS[char]]
    return [char] if char.isprintable() else []
