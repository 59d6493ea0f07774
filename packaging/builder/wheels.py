"""The wheels in the package for Debian 12."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.lab import deps
from tests.lab.image import ensure_dir, make_key

ROOT = Path(__file__).resolve().parents[2]
WHEELS_FOR = (
    *("--only-binary=:all:", "--python-version=3.11", "--implementation=cp"),
    *("--platform=manylinux2014_x86_64", "--platform=manylinux_2_17_x86_64", "--platform=any"),
)
LOCK = ROOT / "packaging/deb/bookworm/requirements.txt"
LOCK_HEAD = """\
# What the package for Debian 12 brings along: one wheel each, for CPython 3.11 on amd64.
# Written by `make lock`; packaging/deb/bookworm/copyright has their licences.
"""


def ensure_wheels() -> Path:
    """Return the directory of the locked wheels; download them once and check their hashes."""
    return ensure_dir("wheels", "bookworm", make_key(LOCK, repr(WHEELS_FOR)), _fetch_wheels)


def _fetch_wheels(new: Path) -> None:
    deps.run_tool(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
        *(*WHEELS_FOR, f"--requirement={LOCK}", f"--dest={new}"),
    )


def locked_requirements(constraints: Path) -> str:
    """Pin one wheel for each dependency of pyproject.toml on Debian 12, in the constrained versions."""
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as target:
        report = deps.run_tool(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report=-"),
            *("--ignore-installed", f"--target={target}", f"--constraint={constraints}"),
            *(*WHEELS_FOR, *dependencies()),
        )
    lines = []
    for item in json.loads(report)["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        name = re.sub(r"[-_.]+", "-", name).lower()
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{sha256}\n")
    return LOCK_HEAD + "".join(sorted(lines))


def dependencies() -> list[str]:
    """Return the dependencies of pyproject.toml."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [str(name) for name in found]
