"""Update the files that pin packages of Python's registry, with their hashes.

`packaging/build.py lock` writes all of them; nothing else solves dependencies.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from builder import wheels
from tests.lab import deps

ROOT = Path(__file__).resolve().parents[2]
DEV = ROOT / "requirements-dev.txt"
TOOL = ROOT / "packaging/builder/uv.txt"
FLEET = ROOT / "tests/fleet/requirements.txt"
DEV_HEAD = """\
# The environment for development, tests and builds, on Linux with CPython 3.11 to 3.14: pyproject.toml
# with the extra "dev". Written by `make lock`; the Makefile installs it with --require-hashes.
"""
TOOL_HEAD = """\
# What writes requirements-dev.txt, and this file. Written by `make lock`.
"""
FLEET_HEAD = """\
# Ansible and its linters, which tests/fleet installs in an environment of their own. Written by
# `make lock`.
"""
FLEET_TOOLS = "ansible-core\nansible-lint\n"
PIN = re.compile(r"^([a-z0-9-]+==[^ ]+ ;.*) \\$", re.MULTILINE)


def write_locks() -> None:
    """Pin the newest versions that pyproject.toml allows."""
    with tempfile.TemporaryDirectory(prefix="podslice-build.") as name:
        uv = _install_uv(Path(name))
        tool = Path(name) / "tool.in"
        tool.write_text("uv\n")
        dev = _solve(uv, "--extra=dev", str(ROOT / "pyproject.toml"))
        DEV.write_text(DEV_HEAD + dev)
        TOOL.write_text(TOOL_HEAD + _solve(uv, str(tool)))
        tool.write_text(FLEET_TOOLS)
        FLEET.write_text(FLEET_HEAD + _solve(uv, str(tool)))
        constraints = Path(name) / "constraints.txt"
        constraints.write_text("\n".join(PIN.findall(dev)))
        wheels.LOCK.write_text(wheels.locked_requirements(constraints))
        wheels.GENERIC_LOCK.write_text(wheels.generic_requirements(constraints))


def _install_uv(directory: Path) -> Path:
    """Install the uv that its lock names into an environment of its own."""
    deps.run_tool(sys.executable, "-m", "venv", str(directory / "uv"))
    deps.run_tool(
        *(str(directory / "uv/bin/pip"), "install", "--quiet", "--no-deps", "--require-hashes"),
        f"--requirement={TOOL}",
    )
    return directory / "uv/bin/uv"


def _solve(uv: Path, *sources: str) -> str:
    """Return the pins of all supported Pythons, with the hashes of wheels, and no registry's name."""
    return deps.run_tool(
        *(str(uv), "pip", "compile", "--quiet", "--universal", "--python-version=3.11"),
        *("--only-binary=:all:", "--emit-build-options", "--generate-hashes"),
        *("--no-header", "--no-annotate", "--no-emit-index-url", *sources),
    )
