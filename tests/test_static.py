"""The linters are tests; each is skipped where its tool is not installed."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from podslice import __version__

ROOT = Path(__file__).resolve().parents[1]


def run_tool(module, *arguments):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


def test_ruff_finds_nothing():
    run_tool("ruff", "check", "podslice", "tests", "packaging")


def test_ruff_would_format_nothing():
    run_tool("ruff", "format", "--check", "podslice", "tests", "packaging")


def test_mypy_finds_nothing():
    run_tool("mypy")


def test_no_module_is_a_pile():
    sizes = {
        path.relative_to(ROOT): len(path.read_text().splitlines())
        for path in (ROOT / "podslice").rglob("*.py")
    }
    assert not {path: size for path, size in sizes.items() if size > 400}


def test_the_changelog_begins_with_the_version():
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert __version__ in headings[0]
