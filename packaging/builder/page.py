"""The page for Cockpit: its sources and the pinned packages of npm, bundled by packaging/cockpit/build.js."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.lab import deps
from tests.lab.image import ensure_dir, make_key

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "packaging/cockpit"
LOCK = SOURCE / "package-lock.json"
PINS = (SOURCE / "package.json", LOCK)
FILES = ("index.html", "manifest.json", "podslice.css", "podslice.js")
"""The files of the page, which are in /usr/share/cockpit/podslice."""
_NPM = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


class Library(NamedTuple):
    """A package of npm that is part of the bundle."""

    name: str
    version: str
    licence: str
    sha512: str
    """In base64."""


def build_page(target: Path, version: str) -> None:
    """Write the page into a directory, which is created."""
    deps.ensure_commands({"npm": "npm", "node": "nodejs"})
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        work = Path(name) / "cockpit"
        shutil.copytree(SOURCE, work, ignore=shutil.ignore_patterns("node_modules"))
        (work / "node_modules").symlink_to(_ensure_modules() / "node_modules")
        target.mkdir(parents=True)
        deps.run_tool("node", str(work / "build.js"), str(target), version)


def _ensure_modules() -> Path:
    """Return the directory of the pinned packages; npm compares them with their hashes."""
    return ensure_dir("npm", "cockpit", make_key(*PINS), _install)


def _install(new: Path) -> None:
    for path in PINS:
        shutil.copyfile(path, new / path.name)
    deps.run_tool(*_NPM, f"--prefix={new}", f"--cache={new / 'cache'}")
    shutil.rmtree(new / "cache", ignore_errors=True)


def libraries() -> Iterator[Library]:
    """Yield the packages of npm in the bundle."""
    packages = json.loads(LOCK.read_text())["packages"]
    for path, found in packages.items():
        if path and not found.get("dev"):
            yield Library(
                name=path.removeprefix("node_modules/"),
                version=found["version"],
                licence=found["license"],
                sha512=found["integrity"].removeprefix("sha512-"),
            )
