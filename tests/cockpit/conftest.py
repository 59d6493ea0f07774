from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cockpit.browser import Browser
from tests.cockpit.host import MANIFESTS, WEB, boot, browser_in
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
        booted.run("podslice", "apply")
        yield booted


@pytest.fixture(scope="session")
def browser(machine: Machine) -> Iterator[Browser]:
    """A browser that can reach the machine; each test logs in."""
    started = browser_in(machine)
    yield started
    started.close()
