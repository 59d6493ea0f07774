"""JSON → documents, in pieces.

The standard library's decoder can't pause and has no limits. It gets pieces that it decodes within
a millisecond; the entries of a larger list or mapping are decoded here, one after the other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from podslice.errors import Problem, invalid
from podslice.inputs.budget import Budget, BudgetItem, Exhausted
from podslice.inputs.limits import DEPTH_MAX
from podslice.inputs.manifest.release import release
from podslice.inputs.manifest.yaml_builder import Document, check_number
from podslice.inputs.scalars import Number, quote
from podslice.pausable import Steps

_SPACE = re.compile(r"[ \t\r\n]*")
_PIECES = (2**10, 2**13, 2**16)
"""Sizes in characters. The next one is tried when a value is longer than a piece."""
_PER_VALUE = 100
"""Characters whose decoding takes as long as that of the shortest value."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)
"""A string, or a constant that Python's decoder accepts and JSON does not have."""

_MISSING_KEY = "expecting property name enclosed in double quotes"


class JsonReader:
    """A reader of JSON values, one after the other; numbers stay text."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._text = text
        self._budget = budget
        self._problems: list[Problem] = []
        self._unpaused = 0
        self._large: list[list[Any] | dict[str, Any]] = []
        """The large values of the current document, complete or not."""
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._mapping,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_reject_constant,
        )

    def documents(self) -> Iterator[Document | None]:
        """Yield each value as a document, and None as a pause.

        Raises:
            json.JSONDecodeError: the text is not JSON.
            InputError: it is nested too deep, or a value is too long.
            Exhausted: the values or documents exceed the budget.
        """
        # every value but the first follows one of these characters
        self._budget.charge(BudgetItem.VALUES, 1 + sum(map(self._text.count, ",[{")))
        at = self._skip(0)
        while at < len(self._text):
            try:
                value, at = yield from self._value(at, 0)
                self._budget.charge(BudgetItem.DOCUMENTS)
            except (ValueError, Exhausted):
                yield from release(self._large)
                raise
            yield Document(value=value, problems=tuple(self._problems))
            self._problems.clear()
            self._large.clear()
            at = self._skip(at)

    def _value(self, at: int, depth: int) -> Steps[tuple[Any, int]]:
        """Read a value; return it and the position after it."""
        for size in _PIECES:
            if (found := self._decode(at, size)) is not None:
                return found
        yield
        first = self._text[at : at + 1]
        if first in ("{", "[") and depth >= DEPTH_MAX:
            raise invalid(f"nested more than {DEPTH_MAX} levels deep")
        if first == "{":
            return (yield from self._large_mapping(at, depth))
        if first == "[":
            return (yield from self._large_list(at, depth))
        limit = self._budget.text_bytes
        found = self._decode(at, limit)
        if found is None:
            raise invalid(f"a value is longer than {limit // 2**20} MiB")
        return found

    def _decode(self, at: int, size: int) -> tuple[Any, int] | None:
        """Read a value of at most so many characters; return None for a longer one.

        Raises:
            json.JSONDecodeError: the text is not JSON.
            InputError: it is nested too deep.
        """
        piece = self._text[at : at + size]
        is_cut = at + size < len(self._text)
        problems = len(self._problems)
        try:
            value, length = self._decoder.raw_decode(piece)
        except json.JSONDecodeError as error:
            if is_cut:
                del self._problems[problems:]
                return None
            message = f"{error.msg[:1].lower()}{error.msg[1:]}"
            raise self._error(message, at + error.pos) from error
        except ArithmeticError as error:
            constant = str(error)
            message = f"{constant} is not allowed"
            raise self._error(message, at + _find_constant(piece, constant)) from error
        except RecursionError as error:
            raise invalid("nested too deep") from error
        if is_cut and length == size:
            return None  # a number may continue
        self._unpaused += length + _PER_VALUE
        return value, at + length

    def _large_list(self, at: int, depth: int) -> Steps[tuple[Any, int]]:
        items: list[Any] = []
        self._large.append(items)
        at = self._skip(at + 1)
        if self._text[at : at + 1] == "]":  # nothing but white space
            return items, at + 1
        while True:
            value, at = self._decode(at, _PIECES[0]) or (yield from self._value(at, depth + 1))
            items.append(value)
            yield from self._pause()
            at, is_last = self._next(at, "]")
            if is_last:
                return items, at

    def _large_mapping(self, at: int, depth: int) -> Steps[tuple[Any, int]]:
        items: dict[str, Any] = {}
        self._large.append(items)
        at = self._skip(at + 1)
        if self._text[at : at + 1] == "}":
            return items, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                raise self._error(_MISSING_KEY, at)
            key, at = yield from self._value(at, depth + 1)
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                raise self._error("expecting ':' delimiter", at)
            value, at = yield from self._value(self._skip(at + 1), depth + 1)
            if key in items:
                self._add_duplicate(key)
            items[key] = value
            yield from self._pause()
            at, is_last = self._next(at, "}")
            if is_last:
                return items, at

    def _pause(self) -> Steps[None]:
        """Pause if enough was read since the last pause."""
        if self._unpaused > _PIECES[-1]:
            self._unpaused = 0
            yield

    def _next(self, at: int, closer: str) -> tuple[int, bool]:
        """Return the position of the next entry or of the end, and whether it is the end."""
        at = self._skip(at)
        mark = self._text[at : at + 1]
        if mark not in (",", closer):
            raise self._error("expecting ',' delimiter", at)
        return (at + 1, True) if mark == closer else (self._skip(at + 1), False)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _error(self, message: str, at: int) -> json.JSONDecodeError:
        return json.JSONDecodeError(message, self._text, at)

    def _mapping(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        items = dict(pairs)
        if len(items) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self._add_duplicate(key)
                seen.add(key)
        return items

    def _add_duplicate(self, key: str) -> None:
        """Add the problem of a duplicate key.

        Raises:
            InputError: there are too many problems.
        """
        self._problems.append(Problem(message=f"duplicate key {quote(key)}", hint="remove one"))
        check_number(self._problems)


def _reject_constant(name: str) -> NoReturn:
    """Reject `NaN` and the like; the decoder does not pass their position."""
    raise ArithmeticError(name)


def _find_constant(piece: str, name: str) -> int:
    """Return the position of the first constant outside strings."""
    found = (match.start() for match in _TOKEN.finditer(piece) if match[0] == name)
    return next(found, 0)
