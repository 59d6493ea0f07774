"""Every benchmark runs; `make bench` measures.

Each one has a new machine there, and here those of one kind share it.
"""

import importlib

import pytest

from tests.bench.__main__ import MACHINES, MODULES
from tests.lab import fixtures

SHARED = {"none": "none", "namespace": "bench_namespace", "vm": "vm", "counting vm": "vm"}


@pytest.fixture(scope="module")
def none():
    """No machine."""


@pytest.fixture(scope="module")
def bench_namespace():
    fixtures.need_lab()
    with MACHINES["namespace"]() as machine:
        yield machine


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_runs(name, request):
    module = importlib.import_module(f"tests.bench.{MODULES[name]}")
    machine = request.getfixturevalue(SHARED[module.MACHINE])
    result = module.run(machine, quick=True)
    assert result.name == name == module.NAME
    assert result.title == module.TITLE
    assert result.rounds
    for table in result.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
