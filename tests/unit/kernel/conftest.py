"""Fixtures of the tests that watch files."""

import pytest

from podslice.kernel.watch import Inotify
from tests.unit.recorder import CallRecorder


@pytest.fixture
def calls():
    return CallRecorder()


@pytest.fixture
async def inotify(calls):
    opened = Inotify(on_lost=calls.callback("lost", "", 0))
    yield opened
    opened.close()
