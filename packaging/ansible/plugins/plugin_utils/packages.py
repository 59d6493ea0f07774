# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The package of podslice that fits a host, by its facts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SYSTEMD = 252
"""The oldest systemd that podslice supports."""
PYTHON = (3, 11)
"""The oldest Python that podslice supports."""
GENERIC_BELOW = (3, 15)
"""The first Python that the generic deb has no libraries for."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""The architectures of the generic deb, by their names in facts."""


class Package(NamedTuple):
    """An installed package."""

    version: str
    architecture: str


class Host(NamedTuple):
    """What decides about the package."""

    family: str
    distribution: str
    release: str
    systemd: int | None
    python: tuple[int, ...] | None
    architecture: str


def choose(facts: Mapping[str, Any], version: str, lines: Sequence[str] = ()) -> dict[str, Any]:
    """Return the kind, the file and the version of the package, or the problem.

    Args:
        facts: of the host, from setup.
        version: of podslice.
        lines: NAME installed VERSION ARCHITECTURE, of python3 and podslice if they are installed;
            others are ignored.
    """
    installed = _installed(lines)
    host = _read(facts, installed.get("python3"))
    kind = _kind(host)
    if kind is None:
        problem = _problem(host)
        return dict.fromkeys(("kind", "file", "version")) | {
            "is_installed": False,
            "problem": problem,
        }
    if kind == "rpm":
        file, packed = f"podslice-{version}-1.noarch.rpm", version
    else:
        suffix = {"debian13": "", "debian12": "~deb12", "generic": "~generic"}[kind]
        architecture = "all" if kind == "debian13" else host.architecture
        packed = f"{version}{suffix}"
        file = f"podslice_{packed}_{architecture}.deb"
    present = installed.get("podslice")
    return {
        "kind": kind,
        "file": file,
        "version": packed,
        "is_installed": present is not None and present.version == packed,
        "problem": None,
    }


def _installed(lines: Sequence[str]) -> dict[str, Package]:
    found = {}
    for line in lines:
        words = line.split(" ")
        if len(words) == 4 and words[1] == "installed":
            found[words[0]] = Package(words[2], words[3])
    return found


def _read(facts: Mapping[str, Any], package: Package | None) -> Host:
    """Read what decides, of the package python3 first.

    A play may use another Python than the host's, and a 64-bit kernel may run a 32-bit system.
    """
    python = facts.get("python_version") or "" if package is None else package.version
    machine = str(facts.get("architecture", ""))
    architecture = ARCHITECTURES.get(machine, machine)
    found = re.match(r"(?:\d+:)?(\d+)\.(\d+)", str(python))
    systemd = (facts.get("systemd") or {}).get("version")
    return Host(
        family=str(facts.get("os_family", "")),
        distribution=str(facts.get("distribution", "")),
        release=str(facts.get("distribution_version", "")),
        # setup of older versions of Ansible does not report it
        systemd=None if systemd is None else int(systemd),
        python=tuple(int(each) for each in found.groups()) if found else None,
        architecture=architecture if package is None else package.architecture,
    )


def _kind(host: Host) -> str | None:
    if host.systemd is not None and host.systemd < SYSTEMD:
        return None
    if host.family == "RedHat":
        return "rpm" if host.python is None or host.python >= PYTHON else None
    return _kind_of_deb(host) if host.family == "Debian" else None


def _kind_of_deb(host: Host) -> str | None:
    major = host.release.partition(".")[0] if host.distribution == "Debian" else ""
    if major == "13":
        return "debian13"
    if major == "12" and host.architecture == "amd64":
        return "debian12"
    is_fitting = host.python is not None and PYTHON <= host.python < GENERIC_BELOW
    return "generic" if is_fitting and host.architecture in ARCHITECTURES.values() else None


def _problem(host: Host) -> str:
    python = "an unknown Python" if host.python is None else "Python {}.{}".format(*host.python)
    systemd = "an unknown systemd" if host.systemd is None else f"systemd {host.systemd}"
    return (
        f"there is no package of podslice for {host.distribution} {host.release} on "
        f"{host.architecture} with {python} and {systemd}. There are packages for Debian 13, for "
        "Debian 12 on amd64, for other releases of Debian and Ubuntu on amd64 and arm64 with Python "
        "3.11 to 3.14, and for Fedora and its derivatives with Python 3.11 or later; all require "
        f"systemd {SYSTEMD} or later. Where pip can install podslice, do so, and set podslice_install "
        "to none; otherwise upgrade the host"
    )
