"""Every benchmark that needs a machine runs; `make bench` measures.

That of the boot runs in tests/packaging/test_install.py, which boots a machine with the package.
"""

import importlib

import pytest

from tests.bench.__main__ import MODULES
from tests.lab import fixtures

ELSEWHERE = ("planning", "boot")


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ELSEWHERE])
def test_a_benchmark_runs(name):
    fixtures.need_lab()
    module = importlib.import_module(f"tests.bench.{MODULES[name]}")
    result = module.run(quick=True)
    assert result.name == name == module.NAME
    assert result.title == module.TITLE
    assert result.rounds
    for table in result.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
