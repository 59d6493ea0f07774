"""Every benchmark runs; `make bench` measures.

Each one has a new machine there. Here those in a namespace share it; a virtual machine is restored in
a second, and that of `memory` must have nothing else in its memory.
"""

import importlib

import pytest

from tests.bench.__main__ import MACHINES, MODULES
from tests.lab import fixtures

# the clock that counts instructions takes minutes of a boot, and only makes shares exact
FIXTURES = {"none": "none", "namespace": "bench_namespace", "vm": "new", "counting vm": "new"}


@pytest.fixture(scope="module")
def none():
    """No machine."""


@pytest.fixture(scope="module")
def bench_namespace():
    fixtures.need_lab()
    with MACHINES["namespace"]() as machine:
        yield machine


@pytest.fixture
def new():
    fixtures.need_lab()
    with MACHINES["vm"]() as machine:
        yield machine


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_runs(name, request):
    module = importlib.import_module(f"tests.bench.{MODULES[name]}")
    machine = request.getfixturevalue(FIXTURES[module.MACHINE])
    result = module.run(machine, quick=True)
    assert result.name == name == module.NAME
    assert result.title == module.TITLE
    assert result.rounds
    for table in result.tables:
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}
