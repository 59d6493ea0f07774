"""A machine with Cockpit, podslice and its page, as their packages install them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.cockpit.browser import Browser
from tests.lab.machine import Machine
from tests.packaging.builds import Packages
from tests.packaging.extras import boot_with

SUITE = "trixie"
DEBS = ("cockpit-ws", "cockpit-bridge", "cockpit-system", "sudo")
ADDRESS = "https://127.0.0.1:9090"
MANIFESTS = "/etc/podslice/manifests"
PASSWORD = "a page for pods"  # noqa: S105
ADMIN, USER = "admin", "alice"
"""The first may become root with sudo, the second not."""
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
SET_UP = f"""
set -e
dpkg --install --force-unsafe-io /root/*.deb
: > /etc/cockpit/disallowed-users
for user in {ADMIN} {USER}; do useradd --create-home --shell /bin/sh $user; done
usermod --append --groups sudo {ADMIN}
for user in root {ADMIN} {USER}; do echo "$user:{PASSWORD}"; done | chpasswd
ip link set lo up
systemctl start cockpit.socket
"""


@contextlib.contextmanager
def boot(packages: Packages) -> Iterator[Machine]:
    """Boot a namespace, and install everything."""
    debs = [packages.get(kind).package for kind in (SUITE, "cockpit")]
    with boot_with(SUITE, *DEBS) as machine:
        for deb in debs:
            machine.put(f"/root/{deb.name}", deb.read_bytes())
        machine.run("sh", "-c", SET_UP, env={"DEBIAN_FRONTEND": "noninteractive"}, timeout_sec=300)
        yield machine


def browser_in(machine: Any) -> Browser:
    """Start a browser in the network of a namespace."""
    return Browser(("nsenter", f"--net=/proc/{machine.pid}/ns/net"))


def log_in(browser: Browser, user: str, address: str = ADDRESS) -> None:
    """Log in, and show the page in a window of usual size."""
    browser.renew()
    browser.resize(1280, 900)
    browser.open(f"{address}/podslice")
    browser.wait("document.querySelector('#login-user-input')")
    browser.type("#login-user-input", user)
    browser.type("#login-password-input", PASSWORD)
    browser.press("Enter")
    browser.wait("document.querySelector('main')?.children.length")
    browser.user = user


def status(machine: Machine, *arguments: str) -> Any:
    """Return the JSON of `podslice status`."""
    output = machine.run("podslice", "status", "--exit-zero", "-o", "json", *arguments).stdout
    return json.loads(output)
