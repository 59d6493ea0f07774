"""Mutants differ from the source in one place, and in nothing that is not executed."""

import ast

import pytest

from tests.mutation.operators import mutate
from tests.mutation.runner import functions_of


def mutants(body, head="def f(a, b):"):
    return {
        ast.unparse(each.tree).split("\n", 1)[1].strip() for each in mutate(f"{head}\n    {body}\n")
    }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a < b", {"a <= b"}),
        ("a < b <= 1", {"a <= b <= 1", "a < b < 1", "a < b <= 2"}),
        ("a += 1", {"a -= 1", "a += 2", "pass"}),
        ("a = b and not b", {"a = b or not b", "a = b and (not not b)"}),
        ("a = -b", {"a = +b"}),
        ("a = True", {"a = False"}),
        ("return a", {"return None"}),
        ("a = b if a else 0", {"a = b if not a else 0", "a = b if a else 1"}),
        ("a = [b for b in a if b]", {"a = [b for b in a if True]"}),
        ("a = min(a, b)", {"a = max(a, b)"}),
        ("a = b(a, c=b)", {"a = b(a)"}),
        ("a = b(message=b)", set()),
        ("a: int | None = b", set()),
        ("a = 'text'", set()),
        ("a = f'{a + 1}'", set()),
    ],
)
def test_each_mutant_differs_in_one_place(body, expected):
    assert mutants(body) == expected


def test_a_statement_that_does_something_is_removed():
    source = "def f(a):\n    a.pop()\n    for b in a:\n        break\n"
    changes = [(each.line, each.change) for each in mutate(source)]
    assert changes == [(2, "Expr removed"), (4, "Break removed")]


def test_signatures_and_module_level_are_left_alone():
    assert mutants("pass", head="def f(a: int = 1 + 1, *, b=not 1):") == set()
    assert not [*mutate("A = 1 < 2\n\nclass B:\n    C = 3\n")]


def test_lambdas_which_may_share_a_line_are_not_probed():
    defined = {}
    exec(compile("a, b = lambda: 1, lambda: 2\ndef f(): pass\n", "lambdas.py", "exec"), defined)  # noqa: S102
    assert functions_of({"lambdas.py"}) == {("lambdas.py", "f"): [defined["f"]]}
