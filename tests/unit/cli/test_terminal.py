"""The full-screen mode on a real terminal: its keys, its lines, and its end."""

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from contextlib import contextmanager

import pytest

from podslice.cli.terminal import Key, Screen, is_interactive

ENTERED = "\x1b[?1049h\x1b[?7l\x1b[?25l"
LEFT = "\x1b[?25h\x1b[?7h\x1b[?1049l"


class Terminal:
    """A terminal: what a user types and sees."""

    def __init__(self, master, slave):
        self.master = master
        self.slave = slave

    @property
    def modes(self):
        return termios.tcgetattr(self.slave)

    def type(self, text):
        os.write(self.master, text.encode())

    def resize(self, height, width):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("4H", height, width, 0, 0))

    def read(self):
        """Read until the page is left: the kernel passes output on later than it was written."""
        data = b""
        while not data.endswith(LEFT.encode()):
            data += os.read(self.master, 1 << 16)
        return data.decode()

    @contextmanager
    def attached(self):
        """Put the standard streams on the terminal."""
        with (
            pytest.MonkeyPatch.context() as patched,
            os.fdopen(os.dup(self.slave), encoding="utf-8") as keyboard,
            os.fdopen(os.dup(self.slave), "w", encoding="utf-8") as screen,
        ):
            patched.setattr(sys, "stdin", keyboard)
            patched.setattr(sys, "stdout", screen)
            yield


@pytest.fixture
def terminal():
    """A terminal without output so far."""
    master, slave = pty.openpty()
    yield Terminal(master, slave)
    os.close(slave)
    os.close(master)


class Failure(Exception):
    """An error while the page is shown."""


def in_full_screen(terminal, work):
    """Run a coroutine function with a screen, and the queue of keys and requests to draw."""

    async def session():
        events = asyncio.Queue()
        screen = Screen(events.put_nowait, lambda: events.put_nowait("resized"))
        with screen.full_screen():
            return await work(screen, events)

    with terminal.attached():
        return asyncio.run(session())


def test_the_terminal_is_restored_at_every_end(terminal):
    before = terminal.modes

    async def fail(*_):
        assert terminal.modes != before
        raise Failure

    with pytest.raises(Failure):
        in_full_screen(terminal, fail)
    assert terminal.modes == before
    assert terminal.read() == ENTERED + LEFT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_request_the_end(terminal, number):
    async def wait(screen, _):
        signal.raise_signal(number)
        return await screen.ended_by

    assert in_full_screen(terminal, wait) == number


def test_keys_arrive_also_in_parts_and_escape_alone(terminal):
    async def press(_, keys):
        terminal.type("q\x1b[")
        found = [await keys.get()]
        terminal.type("A\x1b")
        return [*found, await keys.get(), await keys.get()]

    # where the second part arrives late, the first is Escape and a character
    assert in_full_screen(terminal, press) in (["q", Key.UP, Key.ESCAPE], ["q", Key.ESCAPE, "["])


def test_the_first_requested_end_counts(terminal):
    async def end(screen, _):
        screen.end(signal.SIGHUP)
        screen.end(signal.SIGTERM)
        return await screen.ended_by

    assert in_full_screen(terminal, end) == signal.SIGHUP


def test_a_resized_terminal_is_drawn_again(terminal):
    async def resize(screen, events):
        terminal.resize(5, 40)
        signal.raise_signal(signal.SIGWINCH)  # as the kernel does for the foreground
        return await events.get(), screen.size

    assert in_full_screen(terminal, resize) == ("resized", (40, 5))


def test_lines_are_drawn_up_to_the_height_and_one_is_highlighted(terminal):
    terminal.resize(2, 6)

    async def draw(screen, _):
        screen.draw(["日本", "two", "three"], marked=0)

    in_full_screen(terminal, draw)
    drawn = terminal.read().removeprefix(ENTERED).removesuffix(LEFT)
    assert drawn.replace("\r\r\n", "\r\n") == "\x1b[H\x1b[K\x1b[7m日本  \x1b[m\r\n\x1b[Ktwo"


def test_a_dumb_terminal_has_no_pages(terminal, monkeypatch):
    with terminal.attached():
        monkeypatch.setenv("TERM", "xterm")
        assert is_interactive()
        monkeypatch.setenv("TERM", "dumb")
        assert not is_interactive()
