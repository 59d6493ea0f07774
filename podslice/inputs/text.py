"""Bytes → documents: mappings, lists and scalars that keep their source text.

YAML is built in `build` from the events of PyYAML's C parser, or of its Python one where there is
no other; JSON goes through the standard library. Numbers stay text (see `scalars`). What the
documents mean is not decided here.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from podslice.errors import Problem, printable
from podslice.inputs.build import Builder, Document, Refused
from podslice.inputs.limits import DOCUMENTS_MAX, NODES_MAX, PROBLEMS_MAX
from podslice.inputs.scalars import Number, shown

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_SPACE = re.compile(r"[ \t\r\n]*")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """What a file holds: its documents, and why there are no more of them."""

    documents: tuple[Document, ...] = ()
    problem: Problem | None = None


def read_documents(data: bytes, name: str) -> Texts:
    """Read every document of a text, up to the first place that can't be read.

    Args:
        data: UTF-8, with or without a byte order mark.
        name: the file's name for messages; one that ends in `.json` is taken as JSON only, and
            any other as JSON where it begins like it and is valid, else as YAML.
    """
    documents: list[Document] = []
    try:
        text = _decode(data)
        if not _read_json(text, documents, strict=name.endswith(".json")):
            _read_yaml(text, documents)
    except Refused as error:
        return Texts(documents=tuple(documents), problem=to_problem(error, name))
    return Texts(documents=tuple(documents))


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


def _read_yaml(text: str, documents: list[Document]) -> None:
    try:
        # extend() would lose what came before an error
        for document in Builder(_YAML(text)).documents():
            documents.append(document)  # noqa: PERF402
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


def _hint(message: str) -> str:
    return next((hint for part, hint in _HINTS.items() if part in message), "")


def _read_json(text: str, documents: list[Document], *, strict: bool) -> bool:
    """Read JSON values one after the other; False where the text is no JSON and may be YAML."""
    start = _skip_space(text, 0)
    if not strict and text[start : start + 1] not in ("{", "["):
        return False
    _check_size(text)
    found: list[Document] = []
    try:
        while start < len(text):
            reader = _JsonReader()
            value, end = reader.decoder.raw_decode(text, start)
            start = _skip_space(text, end)
            found.append(Document(value=value, complaints=tuple(reader.complaints)))
            if len(found) > DOCUMENTS_MAX:
                raise Refused(None, f"there are more than {DOCUMENTS_MAX} documents")
    except json.JSONDecodeError as error:
        if not strict:
            return False
        message = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        line = error.lineno if error.doc is text else None
        raise Refused(line, message, "a file with YAML ends in .yaml") from error
    except RecursionError as error:
        raise Refused(None, "it is nested too deep") from error
    documents.extend(found)
    return True


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _check_size(text: str) -> None:
    """Refuse JSON that has too many values, before they are built: each follows one of these."""
    if text.count(",") + text.count("[") + text.count("{") > NODES_MAX:
        raise Refused(None, f"there are more than {NODES_MAX:,} values", "use several files")


class _JsonReader:
    """A decoder that keeps numbers as text and notes what Python's would let pass."""

    def __init__(self) -> None:
        self.complaints: list[Refused] = []
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._mapping,
            parse_int=Number,
            parse_float=Number,
            parse_constant=_refuse_constant,
        )

    def _mapping(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        items = dict(pairs)
        if len(items) != len(pairs) and len(self.complaints) < PROBLEMS_MAX:
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    message = f"the key {shown(key)} stands twice in one mapping"
                    self.complaints.append(Refused(None, message, "remove one"))
                seen.add(key)
        return items


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"there is no {name} in it", name, 0)
