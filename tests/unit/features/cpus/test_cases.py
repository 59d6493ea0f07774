"""The rows of `cases/*.toml`: one function for each kind, one test for each row."""

from pathlib import Path

import pytest

from tests.cases.rows import check_row, load_rows
from tests.unit.features.cpus.rows import KINDS

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize(("kind", "row"), [row for kind in KINDS for row in load_rows(kind, CASES)])
def test_row(kind, row):
    check_row(KINDS[kind], row)
