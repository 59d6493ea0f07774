from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cockpit.browser import Browser
from tests.cockpit.host import MANIFESTS, WEB, boot, boot_copy, browser_in
from tests.lab import deps, fixtures
from tests.lab.machine import Machine
from tests.packaging.builds import Packages


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """A machine with Cockpit and the page, on which pod `web` is applied."""
    fixtures.need_lab()
    deps.ensure_commands({"chromium": "chromium"})
    with boot(Packages()) as booted:
        booted.put(f"{MANIFESTS}/web.yaml", WEB)
        booted.podslice("apply")
        yield booted


@pytest.fixture(scope="session")
def unified(machine: Machine) -> Iterator[Machine]:
    """The same with cgroup v2, on which pod `idle` is applied, too."""
    with boot_copy(machine) as booted:
        for name in ("web", "idle"):
            booted.put(f"{MANIFESTS}/{name}.yaml", WEB.replace("web", name))
        booted.podslice("apply")
        yield booted


@pytest.fixture(scope="session")
def browser(machine: Machine) -> Iterator[Browser]:
    """A browser that can reach the machine."""
    with browser_in(machine) as started:
        yield started


@pytest.fixture(scope="session")
def unified_browser(unified: Machine) -> Iterator[Browser]:
    """A browser that can reach the machine with cgroup v2."""
    with browser_in(unified) as started:
        yield started
