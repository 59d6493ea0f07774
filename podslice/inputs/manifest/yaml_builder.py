"""YAML's events → values, in one loop with a stack of its own.

Nothing recurses, an alias is the same object again and never a copy, and every limit is checked as
the events come, so a hostile text is refused before it has grown. No tag makes an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

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

from podslice.inputs.budget import Budget, BudgetItem, Exhausted
from podslice.inputs.limits import DEPTH_MAX, POD_PROBLEMS_MAX
from podslice.inputs.manifest.release import release
from podslice.inputs.scalars import Boolean, Number, Scalar, read_plain, shown
from podslice.pausable import Steps


class Refused(Exception):
    """The text is not read any further: the line, what is wrong, and what would be right."""

    def __init__(self, line: int | None, message: str, hint: str = "") -> None:
        self.line = line
        self.message = message
        self.hint = hint
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document of a text."""

    value: object
    complaints: tuple[Refused, ...] = ()
    """What is wrong in it and did not keep the rest from being read."""


class EventSource(Protocol):
    """What is needed of PyYAML's loaders."""

    def get_event(self) -> Event | None:
        """The next event; the last is a StreamEndEvent."""


EVENTS_PER_STEP = 500
"""Events between two pauses: a millisecond or two."""

_LIST: Final = object()
"""In place of a key: the open collection is a list."""
_NEXT: Final = object()
"""In place of a key: the open collection is a mapping that waits for one."""
_MERGE: Final = object()
"""The key `<<`."""
_UNSEEN: Final = object()
_CORE = "tag:yaml.org,2002:"
# A tag only says how the text is meant. Anything else, `!!python/…` above all, is refused.
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
    """How many values it stands for; 0 while it is open."""


@dataclass(slots=True, weakref_slot=True)
class Builder:
    """Builds documents from the events of one text."""

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
    """Those of the documents that are complete."""
    _merges: bool = False
    _complaints: list[Refused] = field(default_factory=list)

    @property
    def progress(self) -> int:
        """Return a number that grows with every value."""
        return self._values + self._nodes

    def documents(self) -> Iterator[Document | None]:
        """Yield every document with something in it, and None as a pause.

        Raises:
            Refused: a limit is passed, or the text means what no manifest may mean.
            Exhausted: there are more documents or values than may be read.
        """
        self._nodes_max = self.budget.left(BudgetItem.VALUES)
        handlers: dict[type[Event], Callable[[Any], None]] = {
            ScalarEvent: self._scalar,
            MappingStartEvent: self._start_mapping,
            MappingEndEvent: self._end,
            SequenceStartEvent: self._start_list,
            SequenceEndEvent: self._end,
            AliasEvent: self._alias,
            DocumentStartEvent: self._start_document,
            StreamStartEvent: lambda _: None,
        }
        for count, event in enumerate(iter(self.source.get_event, None), 1):
            if count % EVENTS_PER_STEP == 0:
                yield None
            kind = type(event)
            if kind is DocumentEndEvent:
                self.budget.charge(BudgetItem.DOCUMENTS)
                self.budget.charge(BudgetItem.VALUES, self._nodes)
                self._values += self._nodes
                self._nodes_max, self._nodes = self._nodes_max - self._nodes, 0
                value = self._items.pop()
                if value is not None or self._complaints:
                    yield Document(value=value, complaints=tuple(self._complaints))
                yield from release(self._anchors)
            elif kind is StreamEndEvent:
                return
            else:
                try:
                    handlers[kind](event)
                except Exhausted as error:
                    error.line = event.start_mark.line + 1 if event.start_mark else None
                    raise

    def release(self) -> Steps[None]:
        """Empty what remains: a document that is not complete, and what was kept to build them."""
        opened = [items for items, *_ in self._stack]
        yield from release([self._items, *opened, self._anchors, self._plain])

    def _start_document(self, _event: DocumentStartEvent) -> None:
        self._items, self._key = [], _LIST
        self._complaints.clear()

    def _scalar(self, event: ScalarEvent) -> None:
        text = event.value
        if self._key is _NEXT and event.anchor is None and event.tag is None:
            self._open(event, _MERGE if text == "<<" and event.implicit[0] else text)
            return
        if event.tag is not None:
            value = self._tagged(event)
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
        """Take a key of the open mapping."""
        if key in self._items:
            text = "<<" if key is _MERGE else str(key)
            message = f"the key {shown(text)} stands twice in one mapping"
            self._complain(event, message, "remove one")
        self._merges = self._merges or key is _MERGE
        self._key = key

    def _add(self, event: Event, value: object) -> None:
        key = self._key
        if key is _LIST:
            self._items.append(value)
        elif key is _NEXT:
            if not isinstance(value, str | None):
                raise _at(event, "a key has to be a text", "write 'key: value'")
            self._open(event, value or "")
        else:
            self._items.setdefault(key, value)
            self._key = _NEXT

    def _start_mapping(self, event: MappingStartEvent) -> None:
        self._start(event, {}, _NEXT, _MAP_TAGS)

    def _start_list(self, event: SequenceStartEvent) -> None:
        self._start(event, [], _LIST, _LIST_TAGS)

    def _start(
        self,
        event: MappingStartEvent | SequenceStartEvent,
        items: dict[Any, Any] | list[Any],
        key: object,
        tags: frozenset[str | None],
    ) -> None:
        if self._key is _NEXT:
            raise _at(event, "a key has to be a text, not a mapping or a list")
        if event.tag not in tags:
            self._refuse_tag(event)
        if len(self._stack) >= DEPTH_MAX:
            raise _at(event, f"it is nested more than {DEPTH_MAX} levels deep")
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
            raise _at(event, f"there is no anchor for the alias {shown('*' + name)}")
        if not anchor.nodes:
            raise _at(event, f"the alias {shown('*' + name)} stands in what it stands for")
        self._grow(anchor.nodes)
        self._add(event, anchor.value)

    def _merge(self, event: Event, items: dict[Any, Any]) -> dict[Any, Any]:
        """The mapping with what `<<` names; its own keys win, then the earlier of a list.

        Source: YAML 1.1, https://yaml.org/type/merge.html.
        """
        merged = items.pop(_MERGE)
        for part in merged if isinstance(merged, list) else [merged]:
            if not isinstance(part, dict):
                self._complain(event, "'<<' takes a mapping or a list of mappings", "name an alias")
                continue
            self._grow(len(part))
            for key, value in part.items():
                items.setdefault(key, value)
        return items

    def _tagged(self, event: ScalarEvent) -> Scalar:
        read = _TAGS.get(event.tag or "")
        if read is None:
            self._refuse_tag(event)
            return None
        return read(event.value)

    def _refuse_tag(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> None:
        tag = (event.tag or "").replace(_CORE, "!!")
        message = f"the tag {shown(tag)} is not allowed"
        self._complain(event, message, "write the plain value")

    def _grow(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._nodes_max:
            raise self.budget.exhausted(BudgetItem.VALUES)

    def _complain(self, event: Event, message: str, hint: str) -> None:
        self._complaints.append(_at(event, message, hint))
        refuse_many(self._complaints)


def refuse_many(complaints: Sequence[Refused]) -> None:
    """Refuse a document with very many mistakes.

    Raises:
        Refused: there are more than are shown of one document.
    """
    if len(complaints) > POD_PROBLEMS_MAX:
        message = f"there are more than {POD_PROBLEMS_MAX} mistakes in this document"
        raise Refused(complaints[-1].line, message)


def _at(event: Event, message: str, hint: str = "") -> Refused:
    mark = event.start_mark
    return Refused(mark.line + 1 if mark else None, message, hint)
