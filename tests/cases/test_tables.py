"""Tables beside tests: none is without its test."""

import ast
from pathlib import Path

import pytest

from tests.cases.tables import cases, read_tables

TESTS = Path(__file__).parents[1]
TABLES = sorted(TESTS.rglob("test_*.toml"))


def names_with_tables(path):
    """Return the names of the tests of a file that take their cases from its table."""
    return {
        function.name.removeprefix("test_")
        for function in ast.parse(path.read_text()).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(ast.unparse(each) == "cases" for each in function.decorator_list)
    }


@pytest.mark.parametrize("path", TABLES, ids=lambda path: str(path.relative_to(TESTS)))
def test_every_table_has_its_test(path):
    assert read_tables(path).keys() == names_with_tables(path.with_suffix(".py"))


@cases
def test_a_row_gives_the_arguments_that_it_states(number, text):
    assert (number, text) in {(1, "one"), (2, None)}


def test_a_key_that_is_not_an_argument_is_an_error():
    def test_a_row_gives_the_arguments_that_it_states(number):
        pass

    with pytest.raises(AssertionError, match="does not use"):
        cases(test_a_row_gives_the_arguments_that_it_states)
