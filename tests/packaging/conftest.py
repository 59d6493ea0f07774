from __future__ import annotations

from contextlib import ExitStack
from functools import cache

import pytest

from tests.lab import fixtures
from tests.packaging.builds import Packages
from tests.packaging.installed import boot


@pytest.fixture(scope="session")
def packages():
    """The packages of this checkout."""
    fixtures.need_lab()
    return Packages()


@pytest.fixture(scope="session")
def installed_on():
    """Boot a release with podslice's units, groups and polkit rule, once; all tests share it."""
    with ExitStack() as machines:
        yield cache(lambda suite: machines.enter_context(boot(suite)))
