from __future__ import annotations

import pytest

from tests.fleet.controller import Controller, install_collection
from tests.fleet.hosts import SUITE, Keys, boot
from tests.lab import fixtures
from tests.packaging.builds import Packages

NAMES = ("build1", "web1", "db1")


@pytest.fixture(scope="session")
def collections(tmp_path_factory):
    """The directory in which the collection is installed."""
    fixtures.need_lab()
    return install_collection(tmp_path_factory.mktemp("collections"))


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    fixtures.need_lab()
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def fleet(keys):
    """Three hosts, booted once; each module begins with `controller`, which resets them."""
    with boot(NAMES, keys, Packages().get(SUITE).package) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def controller(fleet, collections, keys, tmp_path_factory):
    for host in fleet.values():
        host.reset()
    return Controller(tmp_path_factory.mktemp("controller"), collections, keys)
