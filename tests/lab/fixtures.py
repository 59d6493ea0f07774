"""Fixtures for the conftest files of bus/ and host/. The only module here that imports pytest."""

import os
from collections.abc import Iterator
from typing import NoReturn
from weakref import WeakKeyDictionary

import pytest

from tests.lab import state
from tests.lab.local import Local
from tests.lab.machine import Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir, why_unavailable
from tests.lab.recipe import DEFAULT_SUITE

IS_LOCAL = os.environ.get("PODSLICE_TEST_LOCAL") == "1"
IS_REQUIRED = os.environ.get("PODSLICE_REQUIRE_LAB") == "1"


def skip(reason: str) -> NoReturn:
    """Skip, or fail if the lab is required, because a skipped test proves nothing."""
    if IS_REQUIRED:
        pytest.fail(f"{reason} (and PODSLICE_REQUIRE_LAB=1)", pytrace=False)
    pytest.skip(reason)


def need_lab() -> None:
    """Skip, with the reason, if no machine can be created."""
    if reason := why_unavailable():
        skip(reason)


def boot_namespace(suite: str = DEFAULT_SUITE) -> Machine:
    """Return a namespace with the source tree at /src, or the machine in which the tests run."""
    return Local() if IS_LOCAL else boot_remote_namespace(suite)


def boot_remote_namespace(suite: str = DEFAULT_SUITE, *, is_unified: bool = False) -> Namespace:
    """Return a namespace with the source tree at /src."""
    need_lab()
    return Namespace(suite, bind={"/src": source_dir()}, is_unified=is_unified)


_cleaned: WeakKeyDictionary[Machine, object] = WeakKeyDictionary()
"""The last request to each machine when it was clean."""


def keep_clean(machine: Machine) -> Iterator[Machine]:
    """Provide a machine to a test or a module, without any state of podslice before and after it."""
    if _cleaned.get(machine) != machine.last_request:
        state.restore(machine)
    yield machine
    if stuck := state.restore(machine):
        pytest.fail(f"cannot be taken away: {', '.join(stuck)}", pytrace=False)
    _cleaned[machine] = machine.last_request
