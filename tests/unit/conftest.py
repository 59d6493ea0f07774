"""Guards: a unit test has no effect on anything but its own files, and leaves nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys

import pytest

# the same examples in every run, however slow the machine; without hypothesis its tests are skipped
with contextlib.suppress(ImportError):
    from hypothesis import settings

    settings.register_profile("podslice", derandomize=True, deadline=None, database=None)
    settings.register_profile("thorough", max_examples=4000, deadline=None, database=None)
    settings.load_profile("podslice")

FORBIDDEN = {
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.kill",
    "os.killpg",
    "signal.pthread_kill",
}
"""Events of Python's auditing that reach beyond the process; asyncio itself needs none of them."""


class Effect(BaseException):
    """A unit test tried to act on the world. Nothing that catches Exception swallows it."""


class _Guard:
    """An audit hook can't be removed, so there is one, which is only awake during a test."""

    awake = False

    def __call__(self, event, arguments):
        if self.awake and event in FORBIDDEN:
            raise Effect(f"{event}{arguments!r}")


GUARD = _Guard()
sys.addaudithook(GUARD)


@pytest.fixture(autouse=True)
def no_effects(request):
    """Let a test fail that talks to others or starts something; `allow_effects` is the way out."""
    GUARD.awake = "allow_effects" not in request.fixturenames
    yield
    GUARD.awake = False


@pytest.fixture
def allow_effects():
    """Ask for this where a test is about processes or sockets, and say why there."""


@pytest.fixture
async def nothing_left():
    """Let an async test fail that leaves a task behind."""
    yield
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"the test left tasks behind: {left}"


@pytest.fixture(autouse=True)
def settled(request):
    """Guard async tests; the others get no event loop."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("nothing_left")
