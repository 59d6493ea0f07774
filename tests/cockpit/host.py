"""A machine with Cockpit, podslice and its page, as their packages install them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.cockpit.browser import Browser
from tests.lab.extras import fetch
from tests.lab.machine import Machine
from tests.lab.namespace import Namespace
from tests.lab.paths import source_dir
from tests.packaging.builds import Packages, copy_packed, packing

SUITE = "trixie"
DEBS = ("cockpit-ws", "cockpit-bridge", "cockpit-system", "sudo")
ADDRESS = "https://127.0.0.1:9090"
MANIFESTS = "/etc/podslice/manifests"
PASSWORD = "a page for pods"  # noqa: S105
USER = "alice"
WEB = """\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  resources:
    requests:
      cpu: 500m
      memory: 32Mi      # kept while the host is busy
    limits:
      memory: 128Mi     # above this its processes are OOM-killed
  containers:
  - name: app
  - name: worker
"""
WEB_SLICE = "kubepods-burstable-podweb.default.slice"
INSTALL = f"""
set -e
dpkg --install --force-unsafe-io /debs/*/*.deb
: > /etc/cockpit/disallowed-users
useradd --create-home --shell /bin/sh {USER}
for user in root {USER}; do echo "$user:{PASSWORD}"; done | chpasswd
"""
START = """
set -e
systemctl daemon-reload
ip link set lo up
systemctl start cockpit.socket
"""


@contextlib.contextmanager
def boot(packages: Packages) -> Iterator[Machine]:
    """Boot a namespace, and install everything; what it has then can be copied with `boot_copy`."""
    debs = {"host": fetch(SUITE, DEBS)}
    debs |= {kind: packages.get(kind).package.parent for kind in (SUITE, "cockpit")}
    bind = {"/src": source_dir(), **{f"/debs/{name}": path for name, path in debs.items()}}
    with Namespace(SUITE, bind=bind) as machine:
        with packing(machine):
            machine.run("sh", "-c", INSTALL, env={"DEBIAN_FRONTEND": "noninteractive"})
        machine.run("sh", "-c", START)
        yield machine


@contextlib.contextmanager
def boot_copy(installed: Machine) -> Iterator[Machine]:
    """Boot a namespace with cgroup v2 and what was installed in another one.

    On a host with cgroup v1 it has no controllers: no limit and no use of memory, but that of the CPU,
    which the other one lacks where the host mounts `cpu` and `cpuacct` in two places.
    """
    with Namespace(SUITE, bind={"/src": source_dir()}, is_unified=True) as machine:
        copy_packed(installed, machine)
        machine.run("sh", "-c", START)
        yield machine


def browser_in(machine: Any) -> Browser:
    """Start a browser in the network of a namespace."""
    return Browser(("nsenter", f"--net=/proc/{machine.pid}/ns/net"))


def log_in(browser: Browser, user: str, address: str = ADDRESS) -> None:
    """Log in, and show the page in a window of usual size."""
    browser.resize(1280, 900)
    browser.open(f"{address}/podslice")
    browser.wait("document.querySelector('#login-user-input')")
    browser.type("#login-user-input", user)
    browser.type("#login-password-input", PASSWORD)
    browser.press("Enter")
    browser.wait("document.querySelector('main')?.children.length")


def status(machine: Machine) -> Any:
    """Return the JSON of `podslice status`."""
    return report(machine, "status", "--exit-zero")


def report(machine: Machine, *words: str) -> Any:
    """Return the JSON of a command of podslice, whose source at /src is that of the package."""
    return json.loads(machine.podslice(*words, "-o", "json").stdout)
