import asyncio
import gc

import pytest

from tests.bus.scripted_bus import descriptors, until
from tests.lab import fixtures


@pytest.fixture(scope="session")
def machine():
    """A booted systemd, shared by all tests: leave it as it was."""
    with fixtures.boot_namespace() as booted:
        yield booted


@pytest.fixture(scope="session")
def old_machine():
    """The same with the oldest systemd that counts, 252."""
    with fixtures.boot_namespace("bookworm") as booted:
        yield booted


@pytest.fixture(scope="session")
def new_machine():
    """The same with the newest systemd in Debian, which runs on cgroup v2 only."""
    with fixtures.boot_namespace("forky") as booted:
        yield booted


@pytest.fixture
def clean_machine(machine):
    """The same, with whatever podslice left in it taken away after the test."""
    yield from fixtures.keep_clean(machine)


@pytest.fixture
async def settled():
    """No test leaves a task or a descriptor behind."""
    before = descriptors()
    yield
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await until(lambda: descriptors() <= before)
