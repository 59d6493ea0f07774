"""JSON → documents, in pieces.

The standard library's decoder can't pause, and knows no limit. It is given pieces that it reads
within a millisecond; a list or a mapping that is larger is taken apart here, one entry after the
other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from podslice.inputs.budget import Budget, BudgetItem, Exhausted
from podslice.inputs.limits import DEPTH_MAX, TEXT_BYTES_MAX
from podslice.inputs.manifest.release import release
from podslice.inputs.manifest.yaml_builder import Document, Refused, refuse_many
from podslice.inputs.scalars import Number, shown
from podslice.pausable import Steps

_SPACE = re.compile(r"[ \t\r\n]*")
_PIECES = (2**10, 2**13, 2**16)
"""Characters that are tried. The larger one costs what the smaller one has found to be cut off."""
_PER_VALUE = 100
"""A value takes as long as so many characters, however short it is."""

_MISSING_KEY = "expecting property name enclosed in double quotes"


class NotJson(Exception):
    """The text is not JSON."""

    def __init__(self, message: str, line: int | None) -> None:
        self.message = message
        self.line = line
        super().__init__(message)


class JsonReader:
    """Reads JSON values one after the other; numbers are kept as text."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._text = text
        self._budget = budget
        self._complaints: list[Refused] = []
        self._unpaused = 0
        self._large: list[list[Any] | dict[str, Any]] = []
        """The large values of the document that is read, complete or not."""
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._mapping,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
        )

    def documents(self) -> Iterator[Document | None]:
        """Yield each value as a document, and None as a pause.

        Raises:
            NotJson: the text is something else.
            Refused: it is nested too deep, or a value is too long.
            Exhausted: there are more values or documents than may be read.
        """
        # each value but the first of a text follows one of these
        self._budget.charge(BudgetItem.VALUES, 1 + sum(map(self._text.count, ",[{")))
        at = self._skip(0)
        while at < len(self._text):
            try:
                value, at = yield from self._value(at, 0)
                self._budget.charge(BudgetItem.DOCUMENTS)
            except (NotJson, Refused, Exhausted):
                yield from release(self._large)
                raise
            yield Document(value=value, complaints=tuple(self._complaints))
            self._complaints.clear()
            self._large.clear()
            at = self._skip(at)

    def _value(self, at: int, depth: int) -> Steps[tuple[Any, int]]:
        """Read a value; return it and where the text goes on."""
        for size in _PIECES:
            if (found := self._decode(at, size)) is not None:
                return found
        yield
        first = self._text[at : at + 1]
        if first in ("{", "[") and depth >= DEPTH_MAX:
            raise Refused(None, f"it is nested more than {DEPTH_MAX} levels deep")
        if first == "{":
            return (yield from self._large_mapping(at, depth))
        if first == "[":
            return (yield from self._large_list(at, depth))
        found = self._decode(at, TEXT_BYTES_MAX)
        if found is None:
            raise Refused(None, f"a value is longer than {TEXT_BYTES_MAX // 2**20} MiB")
        return found

    def _decode(self, at: int, size: int) -> tuple[Any, int] | None:
        """Read a value that ends within so many characters; None where it does not.

        Raises:
            NotJson: it is none.
        """
        piece = self._text[at : at + size]
        is_cut = at + size < len(self._text)
        complaints = len(self._complaints)
        try:
            value, length = self._decoder.raw_decode(piece)
        except json.JSONDecodeError as error:
            if is_cut:
                del self._complaints[complaints:]
                return None
            raise self._wrong(error.msg, at + error.pos) from error
        except RecursionError as error:
            raise Refused(None, "it is nested too deep") from error
        if is_cut and length == size:
            return None  # a number may go on
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
                raise self._wrong(_MISSING_KEY, at)
            key, at = yield from self._value(at, depth + 1)
            at = self._skip(at)
            if self._text[at : at + 1] != ":":
                raise self._wrong("expecting ':' delimiter", at)
            value, at = yield from self._value(self._skip(at + 1), depth + 1)
            if key in items:
                self._complain_twice(key)
            items[key] = value
            yield from self._pause()
            at, is_last = self._next(at, "}")
            if is_last:
                return items, at

    def _pause(self) -> Steps[None]:
        """Pause where enough was read since the last time."""
        if self._unpaused > _PIECES[-1]:
            self._unpaused = 0
            yield

    def _next(self, at: int, closer: str) -> tuple[int, bool]:
        """Go to the next entry, or behind the last one."""
        at = self._skip(at)
        mark = self._text[at : at + 1]
        if mark not in (",", closer):
            raise self._wrong("expecting ',' delimiter", at)
        return (at + 1, True) if mark == closer else (self._skip(at + 1), False)

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _wrong(self, message: str, at: int) -> NotJson:
        line = self._text.count("\n", 0, at) + 1
        return NotJson(f"{message[:1].lower()}{message[1:]}", line)

    def _mapping(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        items = dict(pairs)
        if len(items) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    self._complain_twice(key)
                seen.add(key)
        return items

    def _complain_twice(self, key: str) -> None:
        message = f"the key {shown(key)} stands twice in one mapping"
        self._complain(Refused(None, message, "remove one"))

    def _complain(self, mistake: Refused) -> None:
        """Note a mistake.

        Raises:
            Refused: there are too many.
        """
        self._complaints.append(mistake)
        refuse_many(self._complaints)


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"there is no {name} in it", None)
