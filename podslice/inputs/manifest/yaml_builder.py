"""YAML events → values, in one loop with its own stack.

Nothing recurses, an alias is a reference and never a copy, and every limit is checked at each event,
so a hostile text is rejected before it grows. No tag creates an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, cast

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

from podslice.errors import InputError, Problem, invalid, quote
from podslice.inputs.budget import Budget, BudgetItem, Exhausted
from podslice.inputs.limits import DEPTH_MAX, POD_PROBLEMS_MAX
from podslice.inputs.scalars import Boolean, Number, Scalar, read_plain


class Document(NamedTuple):
    """One document of a text."""

    value: object
    problems: tuple[Problem, ...] = ()
    """Problems after which the rest of the text was read; their addresses are lines."""
    invalid_texts: tuple[Problem, ...] = ()
    """Problems of single texts; their addresses are paths."""


class EventSource(Protocol):
    """The interface of PyYAML's loaders that is used here."""

    def get_event(self) -> Event | None:
        """Return the next event; the last is a StreamEndEvent."""


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


@dataclass(slots=True, weakref_slot=True)
class Builder:
    """A builder of documents from the events of one text."""

    source: EventSource
    budget: Budget = field(default_factory=Budget)
    _items: Any = field(default_factory=list)
    _key: Any = _LIST
    _stack: list[tuple[Any, Any, _Anchor | None, int]] = field(default_factory=list)
    _anchors: dict[str, _Anchor] = field(default_factory=dict)
    _plain: dict[str, Any] = field(default_factory=dict)
    _nodes: int = 0
    _nodes_max: int = 0
    _values: int = 0
    """The values of complete documents."""
    _merges: bool = False
    _problems: list[Problem] = field(default_factory=list)

    @property
    def progress(self) -> int:
        """Return a number that grows with every value."""
        return self._values + self._nodes

    def documents(self) -> Iterator[Document]:
        """Yield every document that is not empty.

        Raises:
            InputError: the text exceeds a limit, or has a construct that manifests must not have.
            MarkedYAMLError: a key is a mapping or a list.
            Exhausted: the documents or values exceed the budget.
        """
        self._nodes_max = self.budget.left(BudgetItem.VALUES)
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
        for event in iter(self.source.get_event, None):
            kind = type(event)
            if kind is DocumentEndEvent:
                self.budget.charge(BudgetItem.DOCUMENTS)
                self.budget.charge(BudgetItem.VALUES, self._nodes)
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
            raise self.budget.exhausted(BudgetItem.VALUES)

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
