"""The linters are tests; each is skipped where its tool is not installed."""

import ast
import importlib.util
import re
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


KERNEL_FILES = re.compile(r"(^|/)(proc|sys)/")


def calls_of_methods(path):
    """Yield the calls of a module that are of the form `x.name(…)`, with the name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node


def separator_of(call):
    """Return the separator that a call of `split` or `strip` states."""
    stated = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "sep")]
    return stated[0].value if stated and isinstance(stated[0], ast.Constant) else stated or None


def reads_the_kernel(path):
    """Return whether a module names a file in /proc or /sys, or imports what splits their text."""
    return any(
        (isinstance(node, ast.ImportFrom) and node.module == "podslice.kernel.text")
        or (isinstance(node, ast.Constant) and KERNEL_FILES.search(str(node.value)))
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_text_is_split_only_where_lines_and_fields_end():
    """Users choose the names in /proc: podslice/kernel/text.py says what goes wrong otherwise."""
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name}"
        for path in (ROOT / "podslice").rglob("*.py")
        for name, call in calls_of_methods(path)
        if name == "splitlines" or (name in {"split", "rsplit"} and separator_of(call) is None)
    ]
    assert not wrong


def test_text_of_the_kernel_is_read_and_stripped_by_one_helper():
    """`Path.read_text` turns carriage returns into ends of lines and fails where UTF-8 does."""
    wrong = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {name}"
        for path in (ROOT / "podslice").rglob("*.py")
        if reads_the_kernel(path)
        for name, call in calls_of_methods(path)
        if name == "read_text"
        or (name in {"strip", "lstrip", "rstrip"} and separator_of(call) is None)
    ]
    assert not wrong


def test_the_changelog_begins_with_the_version():
    headings = [
        line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")
    ]
    assert __version__ in headings[0]
