"""Fields that Kubernetes does not have at their place: a misspelled limit would be ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from podslice.errors import quote
from podslice.inputs.budget import POD_PROBLEMS_MAX, UNKNOWN_FIELDS_MAX
from podslice.inputs.manifest.fields import RESOURCE_REQUIREMENTS, type_of
from podslice.inputs.manifest.reading import Problems
from podslice.inputs.scalars import extend_path, nearest
from podslice.model.config import Validate
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY

_LEVELS = 2
"""How far below a field its name is searched."""
_PLACES_MAX = 2
"""The places of a name are a hint if they are not more than these."""
ABBREVIATIONS = {"mem": MEMORY, "storage": EPHEMERAL_STORAGE}
"""Abbreviations that resemble no name."""
_AMOUNTS = ("limits", "requests")
"""Fields that a hint treats as types, whose fields are resources."""
_RARE = frozenset({"claims", "ephemeralContainers", "initContainers"})
"""Fields whose objects have the names of more usual ones."""
_CHOICES = frozenset({"EnvVarSource", "Volume", "VolumeProjection"})
"""Types of which one field is stated, so that no field belongs to another one beside it."""


class _Object(NamedTuple):
    """A mapping of a manifest, with its type and its place."""

    fields: Mapping[str, Any]
    type: str
    parent: _Object | None
    steps: tuple[str | int, ...]
    """The path below the parent."""

    @property
    def path(self) -> str:
        """Return the path in the document."""
        return extend_path(self.parent.path, *self.steps) if self.parent else str(self.steps[0])


def check_fields(fields: object, type_: str, path: str, problems: Problems) -> None:
    """Add the problems of the unknown fields of an object and of all objects in it.

    If they are many, the first ones are reported, and no hint is searched after the problems that are
    shown.

    Args:
        fields: the object; anything else has no fields.
        type_: its type in the table of fields.
        path: its place in the document.
        problems: receives them.
    """
    if problems.validate is Validate.IGNORE:
        return
    left = UNKNOWN_FIELDS_MAX
    waiting = [_Object(fields, type_, None, (path,))] if isinstance(fields, dict) else []
    while waiting and left:
        each = waiting.pop()
        known = type_of(each.type).fields
        for name in islice((name for name in each.fields if name not in known), left):
            shown = left > UNKNOWN_FIELDS_MAX - POD_PROBLEMS_MAX
            hint = _find_hint(name, each) if shown else ""
            problems.unknown(extend_path(each.path, name), f"unknown field {quote(name)}", hint)
            left -= 1
        # Reversed, since the last one is taken first: problems are in the order of the document.
        waiting += reversed(list(_objects_in(each)))


def _objects_in(outer: _Object) -> Iterator[_Object]:
    """Yield the objects in the fields of an object; readers report values of another type."""
    known = type_of(outer.type).fields
    for name, value in outer.fields.items():
        row = known.get(name)
        if row is None or not row.type:
            continue
        if not row.bracket and isinstance(value, dict):
            yield _Object(value, row.type, outer, (name,))
        elif row.bracket and isinstance(value, list):
            for index, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield _Object(entry, row.type, outer, (name, index))


def _find_hint(name: str, outer: _Object) -> str:
    """Return the name that was probably meant, or where the field belongs; or nothing."""
    right = nearest(name, type_of(outer.type).fields)
    if right is not None:
        return f"merge it into {right}" if right in outer.fields else f"write {right}"
    return _belongs_below(name, outer) or _belongs_elsewhere(name, outer)


def _belongs_below(stated: str, outer: _Object) -> str:
    """Return the hint for a field, or the misspelled name of one, of an object in this one."""
    names = _names_below(outer.type)
    name = ABBREVIATIONS.get(stated, stated)
    if name not in names:
        name = nearest(name, _names_below(outer.type, levels=1)) or name
    places = " or ".join(names.get(name, ()))
    if not places:
        return ""
    return f"it belongs under {places}" if name == stated else f"write {name} under {places}"


def _belongs_elsewhere(name: str, beside: _Object) -> str:
    """Return the hint for a field of an outer object, or of another object in the next outer one."""
    outer = parent = beside.parent
    while outer is not None:
        row = type_of(outer.type).fields.get(name)
        # a scalar that the outer object states, such as a name, is not what is meant
        if row is not None and (row.type or name not in outer.fields):
            return f"it belongs under {outer.path}" if outer.path else "it belongs at the top level"
        outer = outer.parent
    if parent is None or parent.type in _CHOICES:
        return ""
    places = _names_below(parent.type, levels=1).get(name, ())
    paths = " or ".join(f"{parent.path}.{each}".lstrip(".") for each in places)
    return f"it belongs under {paths}" if paths else ""


@cache
def _names_below(type_: str, levels: int = _LEVELS) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of the objects in a type, each with the paths of the nearest objects with it."""
    found: dict[str, tuple[str, ...]] = {}
    level = [("", type_)]
    for _ in range(levels):
        level = [
            (f"{path}.{name}{mark}".lstrip("."), inner)
            for path, outer in level
            for name, (inner, mark) in _usual_fields(outer).items()
            if inner
        ]
        names: dict[str, tuple[str, ...]] = {}
        for path, inner in level:
            for name in _usual_fields(inner):
                names[name] = (*names.get(name, ()), path)
        found = {**names, **found}
    return {name: paths for name, paths in found.items() if len(paths) <= _PLACES_MAX}


def _usual_fields(type_: str) -> dict[str, tuple[str, str]]:
    """Return the fields that a hint may name, each with its type and the mark of a list."""
    if type_ in _AMOUNTS:
        return dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE), ("", ""))
    rows = {name: row for name, row in sorted(type_of(type_).fields.items()) if name not in _RARE}
    fields = {name: (row.type, "[…]" if row.bracket else "") for name, row in rows.items()}
    return fields | {each: (each, "") for each in _AMOUNTS if type_ == RESOURCE_REQUIREMENTS}
