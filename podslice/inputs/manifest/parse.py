"""Bytes → documents: mappings, lists and scalars that keep their source text.

YAML is built in `build` from the events of PyYAML's C parser, or of its Python one where there is
no other; JSON is read in `json_text`. Numbers stay text (see `scalars`). What the documents mean is
not decided here.
"""

from __future__ import annotations

import codecs
import re
import weakref
from collections.abc import Callable, Iterator

import yaml

from podslice.errors import Problem, printable
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.limits import DIRECTIVES_MAX, TEXT_BYTES_MAX
from podslice.inputs.manifest.json_builder import JsonReader, NotJson
from podslice.inputs.manifest.release import release
from podslice.inputs.manifest.yaml_builder import Builder, Document, Refused

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_SPACE = " \t\r\n"
_DIRECTIVE = re.compile(rb"(?:[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9])%")
"""A line that begins with `%`, in UTF-8.

Source: YAML 1.1, "Line Break Characters": CR, LF, U+0085, U+2028 and U+2029.
"""

# What PyYAML says, C parser and Python one → what would be right.
_HINTS = {
    "tab character": "indent with spaces",
    r"character '\t'": "indent with spaces",
    "mapping values are not allowed": (
        "check the indentation, and the ':' of the line before; a value with ': ' needs quotes"
    ),
    "cannot start any token": "check the indentation, or put the value in quotes",
    "<block end>": "check the indentation",
    "expected key": "check the indentation",
    "'-' indicator": "check the indentation: an entry of a list begins with '- '",
    "found unexpected end of stream": "close the quotes",
    "special characters are not allowed": "remove the control character, or write it as an escape",
    "control characters are not allowed": "remove the control character, or write it as an escape",
}


def read_documents(data: bytes, name: str, budget: Budget) -> Iterator[Document | None]:
    """Yield every document of a text up to the first place that can't be read, and None as a pause.

    Args:
        data: UTF-8, with or without a byte order mark.
        name: the file's name for messages; one that ends in `.json` is taken as JSON only, and
            any other as JSON where it begins like it and is valid, else as YAML.
        budget: what may be read.

    Raises:
        Refused: there is such a place.
        Exhausted: the budget does not suffice.
    """
    text = _decode(data)
    is_json = name.endswith(".json")
    if is_json or text.lstrip(_SPACE)[:1] in ("{", "["):
        try:
            yield from _read_json(text, budget, strict=is_json)
        except NotJson as error:
            if is_json:
                message = f"this is not JSON: {error.message}"
                hint = "a file with YAML ends in .yaml"
                raise Refused(error.line, message, hint) from error
        else:
            return
    yield from _read_yaml(text, budget)


def to_problem(error: Refused, name: str) -> Problem:
    """`web.yaml: line 17: what is wrong; what would be right`."""
    where = name if error.line is None else f"{name}: line {error.line}"
    return Problem(where=where, message=error.message, hint=error.hint)


def _decode(data: bytes) -> str:
    encoding = _MARKS.get(data[:2])
    if encoding:
        raise Refused(None, f"the text is {encoding}", "save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise Refused(line, message, "save the file as UTF-8") from error


class _Feed:
    """Gives PyYAML a text piece by piece, and no more of it than it takes to the next value.

    One event of PyYAML can't be interrupted: what stands between two values is bounded here.
    """

    def __init__(self, text: str) -> None:
        self.name = "text"
        self._data = text.encode("utf-8", "surrogatepass")
        self._given = 0
        self._since = 0
        self._directives = 0
        self._builder: Callable[[], Builder | None] = lambda: None
        """Only a reference: the builder refers to PyYAML, and that to the feed."""
        self._seen = -1

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            Refused: there are too many since the last value.
        """
        piece = self._data[self._given : self._given + size]
        builder = self._builder()
        if builder is not None and builder.progress != self._seen:
            self._seen, self._since, self._directives = builder.progress, 0, 0
        self._given += len(piece)
        self._since += len(piece)
        self._directives += sum(1 for _ in _DIRECTIVE.finditer(piece))
        if self._since > TEXT_BYTES_MAX:
            message = f"there is more than {TEXT_BYTES_MAX // 2**20} MiB without a value, or in one"
            raise Refused(None, message)
        if self._directives > DIRECTIVES_MAX:
            raise Refused(None, f"there are more than {DIRECTIVES_MAX:,} directives (%)")
        return piece

    def follow(self, builder: Builder) -> Builder:
        """Know how far a builder has come."""
        self._builder = weakref.ref(builder)
        return builder


def _read_yaml(text: str, budget: Budget) -> Iterator[Document | None]:
    try:
        yield from _build(_Feed(text), budget)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = printable(error.problem or error.context or "this is not YAML")
        at_tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
        hint = "indent with spaces" if at_tab else _hint(message)
        raise Refused(mark.line + 1 if mark else None, message, hint) from error
    except yaml.reader.ReaderError as error:
        # the C parser counts bytes, the other one characters
        before = text if _YAML is yaml.SafeLoader else text.encode().decode("latin-1")
        line = before.count("\n", 0, error.position) + 1
        reason = str(error.reason)
        raise Refused(line, reason, _hint(reason)) from error


def _build(feed: _Feed, budget: Budget) -> Iterator[Document | None]:
    builder = feed.follow(Builder(_YAML(feed), budget))
    try:
        yield from builder.documents()
    except (Exhausted, Refused, yaml.YAMLError):
        yield from builder.release()
        raise
    yield from builder.release()


def _hint(message: str) -> str:
    return next((hint for part, hint in _HINTS.items() if part in message), "")


def _read_json(text: str, budget: Budget, *, strict: bool) -> Iterator[Document | None]:
    """Yield JSON values one after the other; where it may be YAML, after all of them were read.

    Raises:
        NotJson: the text is something else.
    """
    part, found = budget.part(), list[Document]()
    try:
        for document in JsonReader(text, part).documents():
            if document is None or strict:
                yield document
            else:
                found.append(document)
    except NotJson:
        yield from release([document.value for document in found])
        raise
    budget.take(part)
    yield from found
