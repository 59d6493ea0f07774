"""Tests whose cases are in a table: a TOML file beside the test."""

import inspect
import tomllib
from functools import cache
from pathlib import Path

import pytest


@cache
def read_tables(path):
    return tomllib.loads(path.read_text())


def cases(test):
    """Parametrise a test by the rows of its table: that with its name, in the TOML file beside it.

    The keys of a row are arguments of the test; one that only other rows state is None. A test with
    the argument `case` has the whole row there instead. `id` names the case in the output of pytest.
    """
    path = Path(inspect.getfile(test)).with_suffix(".toml")
    rows = read_tables(path)[test.__name__.removeprefix("test_")]
    arguments = inspect.signature(test).parameters
    if "case" in arguments:
        values = [pytest.param(row, id=row.get("id")) for row in rows]
        return pytest.mark.parametrize("case", values)(test)
    stated = {key for row in rows for key in row} - {"id"}
    names = [name for name in arguments if name in stated]
    assert stated == set(names), f"{path}: {test.__name__} does not use {stated - set(names)}"
    values = [pytest.param(*map(row.get, names), id=row.get("id")) for row in rows]
    return pytest.mark.parametrize(names, values)(test)
