"""JSON → documents: the standard library's decoder, with the limits and the numbers of YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from podslice.errors import Problem, invalid, quote
from podslice.inputs.budget import Budget, BudgetItem
from podslice.inputs.manifest.yaml_builder import Document, check_number
from podslice.inputs.scalars import Number

_SPACE = re.compile(r"[ \t\r\n]*")

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)
"""A string, or a constant that Python's decoder accepts and JSON does not have."""


def read_json(text: str, budget: Budget) -> Iterator[Document]:
    """Yield each value of a text as a document; numbers stay text.

    Raises:
        json.JSONDecodeError: the text is not JSON.
        InputError: it is nested too deep, or a value is too long.
        Exhausted: the values or documents exceed the budget.
    """
    # every value but the first follows one of these characters
    budget.charge(BudgetItem.VALUES, 1 + sum(map(text.count, ",[{")))
    problems: list[Problem] = []

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        items = dict(pairs)
        if len(items) != len(pairs):
            _add_duplicates(pairs, problems)
        return items

    decoder = json.JSONDecoder(
        object_pairs_hook=mapping,
        parse_int=Number,
        parse_float=Number,
        parse_constant=_reject_constant,
    )
    at = _skip(text, 0)
    while at < len(text):
        value, at = _decode(decoder, text, at)
        if len(text) > budget.text_bytes and _has_text_above(value, budget.text_bytes):
            raise invalid(f"a value is longer than {budget.text_bytes // 2**20} MiB")
        budget.charge(BudgetItem.DOCUMENTS)
        yield Document(value=value, problems=tuple(problems))
        problems.clear()
        at = _skip(text, at)


def _decode(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    """Decode the value at a position; return it and the position after it."""
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        message = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise json.JSONDecodeError(message, text, error.pos) from error
    except ArithmeticError as error:
        constant = str(error)
        message, found = f"{constant} is not allowed", _find_constant(text, at, constant)
        raise json.JSONDecodeError(message, text, found) from error
    except RecursionError as error:
        raise invalid("nested too deep") from error


def _skip(text: str, at: int) -> int:
    """Return the position of the next character that is not white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _has_text_above(value: object, limit: int) -> bool:
    """Return whether a value contains a key or a text of more characters."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str) and len(each) > limit:
            return True
    return False


def _add_duplicates(pairs: list[tuple[str, Any]], problems: list[Problem]) -> None:
    """Add the problems of duplicate keys.

    Raises:
        InputError: there are too many problems.
    """
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            problems.append(Problem(message=f"duplicate key {quote(key)}", hint="remove one"))
            check_number(problems)
        seen.add(key)


def _reject_constant(name: str) -> NoReturn:
    """Reject `NaN` and the like; the decoder does not pass their position."""
    raise ArithmeticError(name)


def _find_constant(text: str, at: int, name: str) -> int:
    """Return the position of the first constant outside strings."""
    found = (match.start() for match in _TOKEN.finditer(text, at) if match[0] == name)
    return next(found, at)
