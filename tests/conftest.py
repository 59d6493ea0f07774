"""The option that rewrites golden texts, the place of small files, and collection without garbage."""

import gc
import os
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
ROOM_BYTES = 256 << 20
"""Far more than the files of tests without a machine need at one time."""
WITHOUT_MACHINES = ("tests/unit", "tests/cases", "tests/test_")


def pytest_configure(config):
    """Keep tens of thousands of small files in memory, which is faster; files of machines are large."""
    state = os.statvfs(MEMORY) if os.access(MEMORY, os.W_OK) else None
    is_fit = (
        state is not None
        and not state.f_flag & os.ST_NOEXEC
        and state.f_bavail * state.f_frsize >= ROOM_BYTES
    )
    if is_fit and all(each.startswith(WITHOUT_MACHINES) for each in config.args):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Leave modules and thousands of tests, which last until the end, out of garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser):
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="Rewrite the golden texts of cases; read the difference before you keep it.",
    )


@pytest.fixture
def update_cases(request):
    return request.config.getoption("--update-cases", default=False)
