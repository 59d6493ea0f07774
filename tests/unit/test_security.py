"""The tests that SECURITY.md names exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
ROLES = ("any local user", "`podslice`", "`podslice-admin`", "a user with `--user`", "root")


def functions(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_named_test_exists(path, name):
    assert name in functions(path)


def test_every_role_has_a_row():
    table = TEXT.partition("## Roles")[2].partition("###")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert set(ROLES) <= set(rows)
