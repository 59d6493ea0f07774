"""Fields that Kubernetes does not have at their place: a misspelled limit would be ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from podslice.errors import quote
from podslice.inputs.budget import POD_PROBLEMS_MAX, UNKNOWN_FIELDS_MAX
from podslice.inputs.manifest.kubernetes_fields import Fields, field_types
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.scalars import extend_path, nearest
from podslice.model.config import Validate
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY

_LEVELS = 2
"""How far below a field its name is searched."""
_PLACES_MAX = 2
"""The places of a name are a hint if they are not more than these."""
ABBREVIATIONS = {"mem": MEMORY, "storage": EPHEMERAL_STORAGE}
"""Abbreviations that resemble no name."""
_AMOUNTS: Fields = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE), "")
RESOURCE_REQUIREMENTS = "ResourceRequirements"
_LIMITS, _REQUESTS = "limits", "requests"
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


class UnknownField(NamedTuple):
    """A field that its object does not have."""

    name: str
    object: _Object

    @property
    def path(self) -> str:
        """Return the path of the field in the document."""
        return extend_path(self.object.path, self.name)

    @property
    def hint(self) -> str:
        """Return where the field belongs, or the name that was probably meant; or nothing."""
        return _misspelled(self) or _belongs_below(self) or _belongs_elsewhere(self)


def check_fields(fields: object, type_: str, path: str, problems: Problems) -> None:
    """Add the problems of the unknown fields of an object and of all objects in it.

    The arguments are those of `find_unknown`. After the problems that are shown, no hint is searched.
    """
    if problems.validate is Validate.IGNORE:
        return
    found = find_unknown(fields, type_, path)
    for number, unknown in enumerate(found):
        hint = unknown.hint if number < POD_PROBLEMS_MAX else ""
        problems.unknown(unknown.path, f"unknown field {quote(unknown.name)}", hint)


def find_unknown(fields: object, type_: str, path: str) -> list[UnknownField]:
    """Return the unknown fields of an object and of all objects in it, the first ones if they are many.

    Args:
        fields: the object; anything else has no fields.
        type_: its type in `kubernetes_fields`.
        path: its place in the document.
    """
    types, found = field_types(), list[UnknownField]()
    waiting = [_Object(fields, type_, None, (path,))] if isinstance(fields, dict) else []
    while waiting and len(found) < UNKNOWN_FIELDS_MAX:
        each = waiting.pop()
        known = types[each.type]
        unknown = (name for name in each.fields if name not in known)
        left = UNKNOWN_FIELDS_MAX - len(found)
        found += [UnknownField(name, each) for name in islice(unknown, left)]
        waiting += reversed(list(_objects_in(each, known)))
    return found


def _objects_in(outer: _Object, known: Fields) -> Iterator[_Object]:
    """Yield the objects in the fields of an object; readers report values of another type."""
    for name, value in outer.fields.items():
        type_ = known.get(name)
        if not type_:
            continue
        plain = type_.strip("[]")
        if type_ == plain:
            if isinstance(value, dict):
                yield _Object(value, plain, outer, (name,))
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield _Object(entry, plain, outer, (name, index))


def _misspelled(unknown: UnknownField) -> str:
    """Return the hint for a name that resembles a field of its object."""
    right = nearest(unknown.name, field_types()[unknown.object.type])
    if right is None:
        return ""
    return f"merge it into {right}" if right in unknown.object.fields else f"write {right}"


def _belongs_below(unknown: UnknownField) -> str:
    """Return the hint for a field, or the misspelled name of one, of an object in this one."""
    names = _names_below(unknown.object.type)
    name = ABBREVIATIONS.get(unknown.name, unknown.name)
    if name not in names:
        name = nearest(name, _names_below(unknown.object.type, levels=1)) or name
    places = " or ".join(names.get(name, ()))
    if not places:
        return ""
    return f"it belongs under {places}" if name == unknown.name else f"write {name} under {places}"


def _belongs_elsewhere(unknown: UnknownField) -> str:
    """Return the hint for a field of an outer object, or of another object in the next outer one."""
    outer = beside = unknown.object.parent
    while outer is not None:
        kind = field_types()[outer.type].get(unknown.name)
        # a scalar that the outer object states, such as a name, is not what is meant
        if kind or (kind is not None and unknown.name not in outer.fields):
            return f"it belongs under {outer.path}" if outer.path else "it belongs at the top level"
        outer = outer.parent
    if beside is None or beside.type in _CHOICES:
        return ""
    places = _names_below(beside.type, levels=1).get(unknown.name, ())
    paths = " or ".join(f"{beside.path}.{each}".lstrip(".") for each in places)
    return f"it belongs under {paths}" if paths else ""


@cache
def _names_below(type_: str, levels: int = _LEVELS) -> Mapping[str, tuple[str, ...]]:
    """Return the fields of the objects in a type, each with the paths of the nearest objects with it."""
    found: dict[str, tuple[str, ...]] = {}
    level = [("", type_)]
    for _ in range(levels):
        level = [
            (
                f"{path}.{name}".lstrip(".") + ("[…]" if kind.startswith("[") else ""),
                kind.strip("[]"),
            )
            for path, outer in level
            for name, kind in _usual_fields(outer).items()
            if kind
        ]
        names: dict[str, tuple[str, ...]] = {}
        for path, inner in level:
            for name in _usual_fields(inner):
                names[name] = (*names.get(name, ()), path)
        found = {**names, **found}
    return {name: paths for name, paths in found.items() if len(paths) <= _PLACES_MAX}


def _usual_fields(type_: str) -> Fields:
    """Return the fields of a type that a hint may name; fields of requests and limits are resources."""
    if type_ in (_LIMITS, _REQUESTS):
        return _AMOUNTS
    fields = {name: kind for name, kind in field_types()[type_].items() if name not in _RARE}
    return (
        {**fields, _LIMITS: _LIMITS, _REQUESTS: _REQUESTS}
        if type_ == RESOURCE_REQUIREMENTS
        else fields
    )
