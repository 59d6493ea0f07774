"""Mutate Python functions: each mutant differs from the source in one place of one function.

Only bodies of functions are mutated. Module level tables, default arguments, decorators,
annotations and the texts of messages are not.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Container, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}

_EFFECTS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one change, and the outermost function around it."""

    function: str
    """The qualified name of the function."""
    line: int
    change: str
    tree: ast.Module


def mutate(source: str, chosen: Container[int] | None = None) -> Iterator[Mutant]:
    """Yield every mutant of a module, or those with the chosen numbers, in the order of its lines."""
    tree = ast.parse(source)
    numbers = itertools.count()
    for path, function in _functions(tree, ()):
        for node, field, index, new, (_, change) in _changes(function):
            number = next(numbers)
            if chosen is not None and number not in chosen:
                continue
            old = getattr(node, field)
            places = [old if index is None else old[index], node, function]
            line = next(each.lineno for each in places if hasattr(each, "lineno"))
            with _Replaced(node, field, index, new):
                yield Mutant(
                    function=".".join(path),
                    line=line,
                    change=change,
                    tree=ast.fix_missing_locations(copy.deepcopy(tree)),
                )


def kinds(source: str) -> Iterator[str]:
    """Yield the kinds of the mutants of a module, in their order."""
    for _, function in _functions(ast.parse(source), ()):
        for *_, (kind, _) in _changes(function):
            yield kind


def _functions(
    scope: ast.Module | ast.ClassDef, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Function]]:
    """Yield functions and methods; those within a function belong to it."""
    for node in scope.body:
        if isinstance(node, Function):
            yield (*path, node.name), node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, (*path, node.name))


def probed(source: str, name: str) -> ast.Module:
    """Return a module whose functions first call a builtin of this name with their qualified name."""
    tree = ast.parse(source)
    for path, function in _functions(tree, ()):
        call = ast.Call(
            func=ast.Name(id=name, ctx=ast.Load()),
            args=[ast.Constant(value=".".join(path))],
            keywords=[],
        )
        first = 1 if ast.get_docstring(function, clean=False) is not None else 0
        place = function.body[min(first, len(function.body) - 1)]
        function.body.insert(first, ast.copy_location(ast.Expr(value=call), place))
    return ast.fix_missing_locations(tree)


class _Replaced:
    """Replaces a node by another one within a context."""

    def __init__(self, node: ast.AST, field: str, index: int | None, new: object) -> None:
        self._node, self._field, self._index, self._new = node, field, index, new
        self._old: object = None

    def __enter__(self) -> None:
        self._old = self._swap(self._new)

    def __exit__(self, *_: object) -> None:
        self._swap(self._old)

    def _swap(self, new: object) -> object:
        if self._index is None:
            old = getattr(self._node, self._field)
            setattr(self._node, self._field, new)
            return old
        items = getattr(self._node, self._field)
        old, items[self._index] = items[self._index], new
        return old


_Change = tuple[ast.AST, str, int | None, object, tuple[str, str]]
"""A node, its field and index, what replaces it, and the kind of the change with its description."""


def _changes(function: Function) -> Iterator[_Change]:
    yield from _changes_of_body(function)
    for statement in function.body:
        for node in _walk(statement):
            yield from _changes_of(node)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a body without annotations, nested signatures, f-strings and docstrings."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "args") and not isinstance(
            node, ast.Call
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _walk(child)


def _changes_of(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare(ops=ops):
            for index, operator in enumerate(ops):
                new = _COMPARISONS[type(operator)]
                yield (
                    node,
                    "ops",
                    index,
                    new(),
                    ("comparison", f"{type(operator).__name__} → {new.__name__}"),
                )
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATIONS:
            swapped = _OPERATIONS[type(operator)]
            yield (
                node,
                "op",
                None,
                swapped(),
                ("arithmetic", f"{type(operator).__name__} → {swapped.__name__}"),
            )
        case ast.BoolOp(op=ast.And()):
            yield node, "op", None, ast.Or(), ("and, or", "and → or")
        case ast.BoolOp(op=ast.Or()):
            yield node, "op", None, ast.And(), ("and, or", "or → and")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, "operand", None, _negate(operand), ("not", "not removed")
        case ast.UnaryOp(op=ast.USub()):
            yield node, "op", None, ast.UAdd(), ("sign", "- removed")
        case ast.Constant(value=bool() as value):
            yield node, "value", None, not value, ("truth value", f"{value} → {not value}")
        case ast.Constant(value=int() as value):
            yield node, "value", None, value + 1, ("number", f"{value} → {value + 1}")
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            yield node, "test", None, _negate(test), ("condition", "condition negated")
        case ast.comprehension(ifs=conditions):
            for index in range(len(conditions)):
                yield node, "ifs", index, ast.Constant(value=True), ("filter", "filter removed")
        case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
            yield node, "value", None, ast.Constant(value=None), ("result", "return None")
        case ast.Call():
            yield from _changes_of_call(node)
        case _:
            pass
    yield from _changes_of_body(node)


def _changes_of_call(call: ast.Call) -> Iterator[_Change]:
    if isinstance(call.func, ast.Name) and call.func.id in _CALLS:
        other = _CALLS[call.func.id]
        new = ast.Name(id=other, ctx=ast.Load())
        yield call, "func", None, new, ("function", f"{call.func.id} → {other}")
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in ("message", "hint", "why"):
            rest = [each for each in call.keywords if each is not keyword]
            yield call, "keywords", None, rest, ("argument", f"argument {keyword.arg} removed")


def _changes_of_body(node: ast.AST) -> Iterator[_Change]:
    """Remove statements that do something: calls, `yield`, `break`, `continue`, `raise`.

    Without the only use of `super`, code has no cell of its class, and cannot replace the former code.
    """
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        for index, each in enumerate(statements if isinstance(statements, list) else []):
            is_effect = isinstance(each, ast.Expr) and isinstance(each.value, _EFFECTS)
            is_effect = is_effect and "super()" not in ast.unparse(each)
            if is_effect or isinstance(each, ast.Break | ast.Continue | ast.Raise | ast.AugAssign):
                kept = ast.copy_location(ast.Pass(), each)
                yield node, field, index, kept, ("statement", f"{type(each).__name__} removed")


def _negate(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)


def _is_nothing(value: ast.expr) -> bool:
    """Return whether callers hardly distinguish a value from None."""
    return isinstance(value, ast.Constant) and value.value in (None, False)
