"""Bytes → documents: mappings, lists, and scalars that keep their source text.

YAML is read from the events of PyYAML's C parser, or of the Python one if that is not available, in
one loop with its own stack: nothing recurses, an alias is a reference and never a copy, every limit
is checked at each event, and no tag creates an object. JSON is read by the standard library's
decoder, with the limits and the numbers of YAML. Numbers stay text (see `scalars`).
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, cast

import yaml
from yaml.error import MarkedYAMLError
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from podslice.errors import InputError, Problem, invalid, printable, quote
from podslice.inputs.budget import (
    DEPTH_MAX,
    DIRECTIVES_MAX,
    POD_PROBLEMS_MAX,
    TEXT_BYTES_MAX,
    Budget,
    BudgetItem,
    Exhausted,
)
from podslice.inputs.scalars import Boolean, Number, Scalar, extend_path, read_plain

YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's C parser, or the Python one if that is not available."""

_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_SPACE = " \t\r\n"
_DIRECTIVE = re.compile(rb"(?:[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9])%")
"""A line that begins with `%`, in UTF-8.

Source: YAML 1.1, "Line Break Characters": CR, LF, U+0085, U+2028 and U+2029.
"""

# `{{` where a value, an entry or a key begins, which no YAML has outside of a text
_ACTION = re.compile(r"""[^#'"]*?(?<![^\s,\[{])\{\{""")
_LINES_OF_ACTION = 3
"""The line of an error that an action of a template causes is at most the second after it."""

# part of a message of PyYAML, C parser or Python one → a hint
_HINTS = {
    "tab character": "indent with spaces",
    r"character '\t'": "indent with spaces",
    "mapping values are not allowed": (
        "check the indentation, and the ':' of the line before; quote a value with ': '"
    ),
    "cannot start any token": "check the indentation, or put the value in quotes",
    "<block end>": "check the indentation",
    "expected key": "check the indentation",
    "'-' indicator": "check the indentation: an entry of a list begins with '- '",
    "found unexpected end of stream": "close the quotes",
    "special characters are not allowed": "remove the control character, or write it as an escape",
    "control characters are not allowed": "remove the control character, or write it as an escape",
    "invalid Unicode character escape": "write the whole character",
}


def read_documents(data: bytes, name: str, budget: Budget) -> Iterator[Document]:
    """Yield every document of a text up to the first syntax error.

    Args:
        data: UTF-8, with or without a byte order mark.
        name: the file's name. If it ends in `.json` the text must be JSON; otherwise it is read as
            JSON if it begins like JSON and is valid, and as YAML if not.
        budget: the budget of the load.

    Raises:
        InputError: there is a syntax error, or a limit is exceeded.
        Exhausted: the text exceeds the budget.
    """
    text = _decode(data)
    documents = _read(text, name, budget)
    if _ESCAPE.search(text) is None:
        yield from documents
        return
    for document in documents:
        value, problems = replace_surrogates(document.value)
        yield document._replace(value=value, invalid_texts=problems)


def _read(text: str, name: str, budget: Budget) -> Iterator[Document]:
    is_json = name.endswith(".json")
    if is_json or text.lstrip(_SPACE)[:1] in ("{", "["):
        try:
            yield from _read_json(text, budget, strict=is_json)
        except json.JSONDecodeError as error:
            if is_json:
                hint = "the names of YAML files end in .yaml"
                where = line_address(error.lineno)
                raise invalid(f"not valid JSON: {error.msg}", hint, where=where) from error
        else:
            return
    yield from _read_yaml(text, budget)


def _decode(data: bytes) -> str:
    encoding = _MARKS.get(data[:2])
    if encoding:
        raise invalid(f"the encoding is {encoding}", "save the file as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
        raise invalid(message, "save the file as UTF-8", where=line_address(line)) from error


def _read_yaml(text: str, budget: Budget) -> Iterator[Document]:
    try:
        yield from _Builder(text, budget).documents()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = printable(error.problem or error.context or "not valid YAML")
        at_tab = mark is not None and text[mark.index : mark.index + 1] == "\t"
        hint = "indent with spaces" if at_tab else _hint(message)
        if mark is not None and _is_template(text, mark.index):
            message, hint = f"{message}: this is a template", "render it with helm template first"
        where = line_address(mark.line + 1 if mark else None)
        raise invalid(message, hint, where=where) from error
    except yaml.reader.ReaderError as error:
        # the C parser counts bytes, the Python one characters
        before = text if YAML_LOADER is yaml.SafeLoader else text.encode().decode("latin-1")
        line = before.count("\n", 0, error.position) + 1
        reason = str(error.reason)
        raise invalid(reason, _hint(reason), where=line_address(line)) from error


def _is_template(text: str, index: int) -> bool:
    """Return whether an action of a template is at a place, or in the lines before it."""
    start, end = index, text.find("\n", index)
    for _ in range(_LINES_OF_ACTION):
        start = text.rfind("\n", 0, max(start, 0))
    lines = text[start + 1 : None if end < 0 else end].split("\n")
    return any(map(_ACTION.match, lines))


def _hint(message: str) -> str:
    return next((hint for part, hint in _HINTS.items() if part in message), "")


def _read_json(text: str, budget: Budget, *, strict: bool) -> Iterator[Document]:
    """Yield JSON values one after the other; if the text may be YAML, after all were read.

    Raises:
        json.JSONDecodeError: the text is not JSON.
    """
    part = budget.part()
    documents = read_json(text, part)
    yield from documents if strict else list(documents)
    budget.take(part)


_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\[uU](?:0000)?[dD][89a-fA-F]")
"""What a text of JSON or YAML has where a value may have an unpaired surrogate."""
_REPLACEMENT = "\ufffd"


def replace_surrogates(value: object) -> tuple[object, tuple[Problem, ...]]:
    """Replace unpaired surrogates in the keys and texts of a document.

    Return the document, which is changed, and the problems with the paths of the first texts.
    """
    problems: list[Problem] = []
    top: list[Any] = [value]
    stack: list[tuple[Any, str]] = [(top, "")]
    seen = {id(top)}
    while stack:
        items, path = stack.pop()
        below: list[tuple[Any, str]] = []
        for key, each in list(enumerate(items) if isinstance(items, list) else items.items()):
            is_new = isinstance(each, dict | list) and id(each) not in seen
            if is_new or _has_surrogate(key) or _has_surrogate(each):
                place = path if items is top else extend_path(path, key)
                problems += _replace(items, key, place)
                if is_new:
                    seen.add(id(each))
                    below.append((each, place))
                del problems[POD_PROBLEMS_MAX:]
        stack += reversed(below)
    return top[0], tuple(problems)


def _has_surrogate(value: object) -> bool:
    return isinstance(value, str) and _SURROGATE.search(value) is not None


def _replace(items: Any, key: Any, place: str) -> Iterator[Problem]:  # noqa: ANN401
    """Replace the surrogates of an entry and of its key, which moves to the end; yield the problems."""
    for text in filter(_has_surrogate, (key, items[key])):
        message = f"{quote(text)} has an unpaired surrogate, which is not a character"
        yield Problem(where=place, message=message, hint="write the whole character")
    if _has_surrogate(items[key]):
        items[key] = type(items[key])(_SURROGATE.sub(_REPLACEMENT, items[key]))
    if _has_surrogate(key):
        items[_SURROGATE.sub(_REPLACEMENT, key)] = items.pop(key)


_WHITE_SPACE = re.compile(r"[ \t\r\n]*")

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
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    message = f"duplicate key {quote(key)}"
                    problems.append(Problem(message=message, hint="remove one"))
                    check_number(problems)
                seen.add(key)
        return items

    decoder = json.JSONDecoder(
        object_pairs_hook=mapping,
        parse_int=Number,
        parse_float=Number,
        parse_constant=_reject_constant,
    )
    at = _skip(text, 0)
    while at < len(text):
        value, at = _decode_value(decoder, text, at)
        if len(text) > budget.text_bytes and _has_text_above(value, budget.text_bytes):
            raise invalid(f"a value is longer than {budget.text_bytes // 2**20} MiB")
        budget.charge(BudgetItem.DOCUMENTS)
        yield Document(value=value, problems=tuple(problems))
        problems.clear()
        at = _skip(text, at)


def _decode_value(decoder: json.JSONDecoder, text: str, at: int) -> tuple[Any, int]:
    """Decode the value at a position; return it and the position after it."""
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        message = f"{error.msg[:1].lower()}{error.msg[1:]}"
        raise json.JSONDecodeError(message, text, error.pos) from error
    except ArithmeticError as error:
        # the first constant outside strings: the decoder does not pass its position
        name = str(error)
        places = (match.start() for match in _TOKEN.finditer(text, at) if match[0] == name)
        message, found = f"{name} is not allowed", next(places, at)
        raise json.JSONDecodeError(message, text, found) from error
    except RecursionError as error:
        raise invalid("nested too deep") from error


def _skip(text: str, at: int) -> int:
    """Return the position of the next character that is not white space."""
    match = _WHITE_SPACE.match(text, at)
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


def _reject_constant(name: str) -> NoReturn:
    """Reject `NaN` and the like."""
    raise ArithmeticError(name)


class Document(NamedTuple):
    """One document of a text."""

    value: object
    problems: tuple[Problem, ...] = ()
    """Problems after which the rest of the text was read; their addresses are lines."""
    invalid_texts: tuple[Problem, ...] = ()
    """Problems of single texts; their addresses are paths."""


_LIST: Final = object()
"""In place of a key: the open collection is a list."""
_NEXT: Final = object()
"""In place of a key: the open collection is a mapping that expects one."""
_MERGE: Final = object()
"""The key `<<`."""
_UNSEEN: Final = object()
_CORE = "tag:yaml.org,2002:"
# These tags only choose the type of a scalar. All others, notably `!!python/…`, are rejected.
_TAGS: dict[str, Callable[[str], Scalar]] = {
    "!": str,
    f"{_CORE}str": str,
    f"{_CORE}binary": str,
    f"{_CORE}timestamp": str,
    f"{_CORE}int": Number,
    f"{_CORE}float": Number,
    f"{_CORE}bool": Boolean,
    f"{_CORE}null": lambda _: None,
}
_LIST_TAGS = frozenset({None, "!", f"{_CORE}seq"})
_MAP_TAGS = frozenset({None, "!", f"{_CORE}map"})


@dataclass(slots=True)
class _Anchor:
    value: Any = None
    nodes: int = 0
    """The number of values that it refers to; 0 while it is open."""


class _Builder:
    """A builder of documents from the events of one text.

    PyYAML reads the text from it in pieces. It cannot be interrupted while it produces an event, so
    that the bytes between two values are limited.
    """

    name = "text"
    """PyYAML has it in its messages."""

    def __init__(self, text: str, budget: Budget) -> None:
        self._data = text.encode("utf-8", "surrogatepass")
        self._given = 0
        self._since = self._directives = 0
        """Bytes and directives since the last value, which was number `_seen`."""
        self._seen = -1
        self._budget = budget
        self._nodes_max = budget.left(BudgetItem.VALUES)
        self._nodes = 0
        self._values = 0
        """The values of complete documents."""
        self._items: Any = []
        self._key: Any = _LIST
        self._stack: list[tuple[Any, Any, _Anchor | None, int]] = []
        self._anchors: dict[str, _Anchor] = {}
        self._plain: dict[str, Any] = {}
        self._merges = False
        self._problems: list[Problem] = []

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            InputError: there are too many since the last value.
        """
        piece = self._data[self._given : self._given + size]
        if self._values + self._nodes != self._seen:
            self._seen, self._since, self._directives = self._values + self._nodes, 0, 0
        self._given += len(piece)
        self._since += len(piece)
        self._directives += sum(1 for _ in _DIRECTIVE.finditer(piece))
        if self._since > TEXT_BYTES_MAX:
            limit = f"{TEXT_BYTES_MAX // 2**20} MiB"
            raise invalid(f"there is more than {limit} in one value, or without a value")
        if self._directives > DIRECTIVES_MAX:
            raise invalid(f"there are more than {DIRECTIVES_MAX:,} directives (%)")
        return piece

    def documents(self) -> Iterator[Document]:
        """Yield every document that is not empty.

        Raises:
            InputError: the text exceeds a limit, or has a construct that manifests must not have.
            MarkedYAMLError: a key is a mapping or a list.
            Exhausted: the documents or values exceed the budget.
        """
        handlers: dict[type[Event], Callable[[Any], None]] = {
            ScalarEvent: self._scalar,
            MappingStartEvent: lambda event: self._start(event, {}, _NEXT, _MAP_TAGS),
            MappingEndEvent: self._end,
            SequenceStartEvent: lambda event: self._start(event, [], _LIST, _LIST_TAGS),
            SequenceEndEvent: self._end,
            AliasEvent: self._alias,
            DocumentStartEvent: self._start_document,
            StreamStartEvent: lambda _: None,
        }
        # the only reference to PyYAML, which refers to the builder
        for event in iter(YAML_LOADER(self).get_event, None):
            kind = type(event)
            if kind is DocumentEndEvent:
                self._budget.charge(BudgetItem.DOCUMENTS)
                self._budget.charge(BudgetItem.VALUES, self._nodes)
                self._values += self._nodes
                self._nodes_max, self._nodes = self._nodes_max - self._nodes, 0
                value = self._items.pop()
                if value is not None or self._problems:
                    yield Document(value=value, problems=tuple(self._problems))
                self._anchors.clear()
            elif kind is StreamEndEvent:
                return
            else:
                try:
                    handlers[kind](event)
                except Exhausted as error:
                    error.line = event.start_mark.line + 1 if event.start_mark else None
                    raise

    def _start_document(self, _event: DocumentStartEvent) -> None:
        self._items, self._key = [], _LIST
        self._problems.clear()

    def _scalar(self, event: ScalarEvent) -> None:
        text = event.value
        if self._key is _NEXT and event.anchor is None and event.tag is None:
            self._open(event, _MERGE if text == "<<" and event.implicit[0] else text)
            return
        if event.tag is not None:
            read = _TAGS.get(event.tag)
            value = None if read is None else read(text)
            if read is None:
                self._reject_tag(event)
        elif event.implicit[0]:
            value = self._plain.get(text, _UNSEEN)
            if value is _UNSEEN:
                value = self._plain[text] = read_plain(text)
        else:
            value = text
        self._grow(1)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, 1)
        self._add(event, value)

    def _open(self, event: Event, key: object) -> None:
        """Start an entry of the open mapping."""
        if key in self._items:
            text = "<<" if key is _MERGE else str(key)
            self._add_problem(event, f"duplicate key {quote(text)}", "remove one")
        self._merges = self._merges or key is _MERGE
        self._key = key

    def _add(self, event: Event, value: object) -> None:
        key = self._key
        if key is _LIST:
            self._items.append(value)
        elif key is _NEXT:
            if not isinstance(value, str | None):
                raise InputError(_problem(event, "a key must be a string", "write 'key: value'"))
            self._open(event, value or "")
        else:
            # The first of duplicate keys counts; the others are reported.
            self._items.setdefault(key, value)
            self._key = _NEXT

    def _start(
        self,
        event: MappingStartEvent | SequenceStartEvent,
        items: dict[Any, Any] | list[Any],
        key: object,
        tags: frozenset[str | None],
    ) -> None:
        if self._key is _NEXT:
            message = "a key must be a string, not a mapping or a list"
            # the marks of the C parser and of the Python parser have no common type
            raise MarkedYAMLError(problem=message, problem_mark=cast("Any", event.start_mark))
        if event.tag not in tags:
            self._reject_tag(event)
        if len(self._stack) >= DEPTH_MAX:
            raise InputError(_problem(event, f"nested more than {DEPTH_MAX} levels deep"))
        self._grow(1)
        anchor = None
        if event.anchor is not None:
            anchor = self._anchors[event.anchor] = _Anchor(items)
        self._stack.append((self._items, self._key, anchor, self._nodes))
        self._items, self._key = items, key

    def _end(self, event: Event) -> None:
        value = self._items
        if self._merges and self._key is _NEXT and _MERGE in value:
            value = self._merge(event, value)
        self._items, self._key, anchor, before = self._stack.pop()
        if anchor is not None:
            anchor.value, anchor.nodes = value, self._nodes - before + 1
        self._add(event, value)

    def _alias(self, event: AliasEvent) -> None:
        name = event.anchor or ""
        anchor = self._anchors.get(name)
        if anchor is None:
            raise InputError(
                _problem(event, f"there is no anchor for the alias {quote('*' + name)}")
            )
        if not anchor.nodes:
            message = f"the alias {quote('*' + name)} refers to a value that contains it"
            raise InputError(_problem(event, message))
        # The value is not copied, but readers visit all of it again for each alias.
        self._grow(anchor.nodes)
        self._add(event, anchor.value)

    def _merge(self, event: Event, items: dict[Any, Any]) -> dict[Any, Any]:
        """Return the mapping merged with those of `<<`; its own keys win, then the earlier of a list.

        Source: YAML 1.1, https://yaml.org/type/merge.html.
        """
        merged = items.pop(_MERGE)
        for part in merged if isinstance(merged, list) else [merged]:
            if not isinstance(part, dict):
                message = "'<<' takes a mapping or a list of mappings"
                self._add_problem(event, message, "write an alias")
                continue
            self._grow(len(part))
            for key, value in part.items():
                items.setdefault(key, value)
        return items

    def _reject_tag(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> None:
        tag = (event.tag or "").replace(_CORE, "!!")
        message = f"the tag {quote(tag)} is not allowed"
        self._add_problem(event, message, "write the plain value")

    def _grow(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._nodes_max:
            raise self._budget.exhausted(BudgetItem.VALUES)

    def _add_problem(self, event: Event, message: str, hint: str) -> None:
        self._problems.append(_problem(event, message, hint))
        check_number(self._problems)


def check_number(problems: Sequence[Problem]) -> None:
    """Check that the problems of a document are not too many.

    Raises:
        InputError: they are more than are shown of one document.
    """
    if len(problems) > POD_PROBLEMS_MAX:
        message = f"there are more than {POD_PROBLEMS_MAX} problems in this document"
        raise invalid(message, where=problems[-1].where)


def _problem(event: Event, message: str, hint: str = "") -> Problem:
    where = line_address(event.start_mark.line + 1 if event.start_mark else None)
    return Problem(where=where, message=message, hint=hint)


def line_address(line: int | None) -> str:
    """Return `line 17`, or nothing for a line that is not known."""
    return "" if line is None else f"line {line}"
