"""The wheels in the packages for Debian 12, and for other releases of Debian and Ubuntu."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.lab import deps
from tests.lab.image import ensure_dir, make_key

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "packaging/deb/bookworm/requirements.txt"
LOCK_HEAD = """\
# What the package for Debian 12 brings along: one wheel each, for CPython 3.11 on amd64.
# Written by `make lock`; packaging/deb/bookworm/copyright has their licences.
"""
GENERIC_LOCK = ROOT / "packaging/deb/generic/requirements.txt"
GENERIC_HEAD = """\
# What the package for other releases of Debian and Ubuntu brings along: a wheel for each supported
# Python and architecture, or one wheel for all. Written by `make lock`;
# packaging/deb/bookworm/copyright has their licences.
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The Pythons that the generic package supports, as its control file and its launcher say."""
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The architectures of the generic package, with their names in the tags of wheels."""


def ensure_wheels(kind: str) -> Path:
    """Return the directory of a package's locked wheels; download them once and check their hashes.

    Args:
        kind: "bookworm", or "generic-" and an architecture.
    """
    if kind == "bookworm":
        wanted = _wheels_for("3.11", "amd64")
        key = make_key(LOCK, repr(wanted))
        return ensure_dir("wheels", kind, key, lambda new: _fetch(LOCK, wanted, new))
    architecture = kind.removeprefix("generic-")
    key = make_key(GENERIC_LOCK, repr([_wheels_for(each, architecture) for each in PYTHONS]))
    return ensure_dir("wheels", kind, key, lambda new: _fetch_generic(architecture, new))


def _wheels_for(python: str, architecture: str) -> Sequence[str]:
    """Return the options with which pip takes wheels for a Python and an architecture."""
    platforms = (
        f"{policy}_{MACHINES[architecture]}" for policy in ("manylinux2014", "manylinux_2_17")
    )
    return (
        *("--only-binary=:all:", f"--python-version={python}", "--implementation=cp"),
        *(f"--platform={each}" for each in (*platforms, "any")),
    )


def _fetch(lock: Path, wanted: Sequence[str], target: Path) -> None:
    deps.run_tool(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
        *(*wanted, f"--requirement={lock}", f"--dest={target}"),
    )


def _fetch_generic(architecture: str, target: Path) -> None:
    """Download all wheels for the first Python, and those that others do not share."""
    first, *others = PYTHONS
    _fetch(GENERIC_LOCK, _wheels_for(first, architecture), target)
    lines = GENERIC_LOCK.read_text().splitlines(keepends=True)
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        compiled = Path(name) / "requirements.txt"
        compiled.write_text("".join(line for line in lines if line.count("--hash=") > 1))
        for python in others:
            _fetch(compiled, _wheels_for(python, architecture), target)


def locked_requirements(constraints: Path) -> str:
    """Pin one wheel for each dependency of pyproject.toml on Debian 12, in the constrained versions."""
    found = _solve(constraints, _wheels_for("3.11", "amd64"))
    return LOCK_HEAD + "".join(
        sorted(f"{pin} --hash=sha256:{each}\n" for pin, each in found.items())
    )


def generic_requirements(constraints: Path) -> str:
    """Pin the wheels of the generic package, in the constrained versions."""
    hashes: dict[str, set[str]] = {}
    for architecture in MACHINES:
        for python in PYTHONS:
            found = _solve(constraints, _wheels_for(python, architecture))
            for pin, sha256 in found.items():
                hashes.setdefault(pin, set()).add(sha256)
    lines = [
        " ".join([pin, *(f"--hash=sha256:{each}" for each in sorted(found))])
        for pin, found in sorted(hashes.items())
    ]
    return GENERIC_HEAD + "\n".join(lines) + "\n"


def _solve(constraints: Path, wanted: Sequence[str]) -> dict[str, str]:
    """Return the hash of the wheel for each dependency, by its name and version."""
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as target:
        report = deps.run_tool(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"),
            *("--ignore-installed", f"--target={target}", f"--constraint={constraints}"),
            *(*wanted, *dependencies()),
        )
    found = {}
    for item in json.loads(report)["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        name = re.sub(r"[-_.]+", "-", name).lower()
        found[f"{name}=={version}"] = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return found


def dependencies() -> list[str]:
    """Return the dependencies of pyproject.toml."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [str(name) for name in found]
