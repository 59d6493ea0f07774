"""Fixtures of the tests that watch files."""

import pytest

from podslice.kernel.inotify import Inotify
from tests.unit.told import Told


@pytest.fixture
def told():
    return Told()


@pytest.fixture
async def inotify(told):
    opened = Inotify(on_lost=told.heard_by("lost", "", 0))
    yield opened
    opened.close()
