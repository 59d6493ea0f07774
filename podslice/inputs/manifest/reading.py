"""Objects of manifests → plain values, by the table of fields, with every problem of their types.

An invalid field counts as not stated, so that the rest of the object is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from podslice.errors import InputError, Problem, Severity, quote, warning
from podslice.inputs.budget import POD_PROBLEMS_MAX, PROBLEMS_MAX
from podslice.inputs.manifest.fields import Field, Type, Use, type_of
from podslice.inputs.scalars import Amount, Boolean, describe, extend_path, read_stated_amount
from podslice.model.config import Validate
from podslice.model.grammar import PORT, PORT_NAME

_REMOVE = "remove it, or ignore it with --set validate=warn"


@dataclass(slots=True)
class Problems:
    """The problems of one object, as they are found."""

    where: str
    """Its file, with the number of the document if there are several."""
    found: list[Problem] = field(default_factory=list)
    validate: Validate = Validate.STRICT
    """What an unknown name is."""

    def error(self, path: str, message: str, hint: str = "") -> None:
        """Add an error, which rejects the pod."""
        self.found.append(Problem(where=self.at(path), message=message, hint=hint))

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """Add a warning."""
        self.found.append(warning(self.at(path), message, hint))

    def add(self, path: str, *problems: Problem | None) -> None:
        """Add problems whose addresses are below a path; None stands for a valid value."""
        self.found += [each.within(self.at(path)) for each in problems if each is not None]

    def check(self, path: str, value: str | None, choices: Sequence[str]) -> bool:
        """Return whether a value is one of the choices or not stated; add an error if it is not."""
        if value is None or value in choices:
            return True
        self.error(path, f"unknown value {quote(value)}", f"write one of {', '.join(choices)}")
        return False

    def has_error(self, *paths: str) -> bool:
        """Return whether one of the paths has an error."""
        places = {self.at(path) for path in paths}
        return any(each.where in places and each.severity is Severity.ERROR for each in self.found)

    def unknown(self, path: str, message: str, hint: str = "") -> None:
        """Add the problem of a name that is not known, as the configuration has it."""
        if self.validate is Validate.STRICT:
            self.error(path, message, hint or _REMOVE)
        elif self.validate is Validate.WARN:
            self.warn(path, message, hint or "it is ignored")

    def at(self, path: str) -> str:
        """Return the address of a path in the object."""
        return f"{self.where}: {path}" if path else self.where

    def bounded(self) -> tuple[Problem, ...]:
        """Return the first problems, and one that states the number of the others."""
        rest = len(self.found) - POD_PROBLEMS_MAX
        if rest <= 0:
            return tuple(self.found)
        last = Problem(where=self.where, message=f"there are {rest} more problems in it")
        return (*self.found[:POD_PROBLEMS_MAX], last)


Fields = dict[str, Any]
"""The fields of an object that are read, by name, each with its value or None.

An object is a mapping again; an entry of a list of objects is None if it is invalid.
"""


class Refused(NamedTuple):
    """A field that an object states, and that no service keeps."""

    path: str
    field: str
    """Its row in the table: `Probe.grpc`."""


class Reading(NamedTuple):
    """An object as it was read; the addresses of problems are paths."""

    fields: Fields
    problems: tuple[Problem, ...] = ()
    """Problems of the fields that the policy uses, in the order of the table."""
    texts: tuple[Problem, ...] = ()
    """Problems of texts and ports, in the order of the object."""
    further: tuple[Problem, ...] = ()
    """Problems of the other fields, in the order of the table."""
    refused: tuple[Refused, ...] = ()


def read(
    type_: str, value: object, path: str, *, checks: bool = False, is_whole: bool = False
) -> Reading:
    """Read an object.

    Args:
        type_: its type in the table.
        value: what the manifest has at the path.
        path: where the addresses of the problems begin.
        checks: whether texts and ports are checked, as an API server does.
        is_whole: whether all fields are read, and not only those that the policy uses.
    """
    if not isinstance(value, dict):
        problem = Problem(where=path, message=f"must be a mapping, not {describe(value)}")
        return Reading(fields=unstated(type_), problems=(problem,))
    walk = _Walk(path=path, checks=checks, is_whole=is_whole)
    fields = walk.read_object(type_of(type_), value, ())
    if not walk.found:
        return Reading(fields=fields, refused=tuple(walk.refused))
    return Reading(
        fields=fields,
        problems=tuple(walk.of_kind(_Kind.POLICY)),
        texts=tuple(walk.of_kind(_Kind.TEXT)),
        further=tuple(walk.of_kind(_Kind.FURTHER)),
        refused=tuple(walk.refused),
    )


class _Kind(IntEnum):
    """A list of problems."""

    POLICY = 0
    TEXT = 1
    FURTHER = 2


_Place = tuple[Any, ...]
"""The place of the outer value, a key or an index, and its position there; empty at the top."""


@dataclass(slots=True)
class _Walk:
    """The reading of one object, whose types are not recursive."""

    path: str
    checks: bool
    is_whole: bool
    found: list[tuple[_Kind, _Place, str, str]] = field(default_factory=list)
    """The kind, the place, the message and the hint of each problem."""
    refused: list[Refused] = field(default_factory=list)

    def read_object(self, type_: Type, value: Mapping[str, Any], place: _Place) -> Fields:
        """Return the fields of an object."""
        fields = type_.unstated.copy()
        rows = type_.checked if self.checks else type_.for_policy
        if self.is_whole:
            rows = type_.fields
        for name, each in value.items():
            row = rows.get(name)
            if row is None or each is None:
                continue
            if row.use is Use.KEPT or row.is_checked:
                read = self._read_several if row.bracket else self._read_one
                fields[name] = read(row, each, (place, name, row.position))
            if row.use is Use.REFUSED and self.is_whole and is_stated(each):
                path = self._path((place, name, 0))
                self.refused.append(Refused(path=path, field=f"{type_.name}.{name}"))
        for row in type_.required if self.checks else ():
            if value.get(row.name) is None and row.scalar and row.scalar.grammar:
                form = row.scalar.grammar.form
                self._add(_Kind.TEXT, (place, row.name, row.position), "is missing", form)
        return fields

    def _read_several(self, row: Field, value: object, place: _Place) -> object:
        """Return a list without invalid scalars, or a mapping; None if it is neither."""
        structure = _Kind.POLICY if row.is_for_policy else _Kind.FURTHER
        if not isinstance(value, list if row.bracket == "[" else dict):
            needed = "a list" if row.bracket == "[" else "a mapping"
            hint = "begin every entry with '- '" if isinstance(value, dict) else ""
            self._add(structure, place, f"must be {needed}, not {describe(value)}", hint)
            return None
        if len(value) > row.longest:
            kind = _Kind.TEXT if self.checks and not row.is_for_policy else structure
            self._add(kind, place, f"has {len(value)} entries", f"the maximum is {row.longest}")
            return None
        if isinstance(value, dict):
            return {
                key: None if each is None else self._read_one(row, each, (place, key, 0))
                for key, each in value.items()
            }
        entries = []
        for index, each in enumerate(value):
            if len(self.found) > PROBLEMS_MAX:
                break
            entry = self._read_one(row, each, (place, index, index), is_entry=True)
            if entry is not None or row.type:
                entries.append(entry)
        return entries

    def _read_one(
        self, row: Field, value: object, place: _Place, *, is_entry: bool = False
    ) -> object:
        """Return an object or a scalar; None if it is invalid."""
        scalar = row.scalar
        if scalar is None:
            if isinstance(value, dict):
                return self.read_object(type_of(row.type), value, place)
            kind = _Kind.POLICY if row.is_for_policy else _Kind.FURTHER
            self._add(kind, place, f"must be a mapping, not {describe(value)}")
            return None
        rule = None if row.is_for_policy or not self.checks else scalar.grammar
        try:
            found = scalar.read(value)
        except InputError as error:
            kind = _Kind.POLICY if row.is_for_policy else _Kind.TEXT if rule else _Kind.FURTHER
            self._add(kind, place, error.problems[0].message, error.problems[0].hint)
            # An invalid amount differs from null, of which readers warn.
            return Amount(None, value) if scalar.read is read_stated_amount else None
        if rule is not None and (found not in ("", 0) or row.is_required or is_entry):
            rule = PORT_NAME if rule is PORT and isinstance(found, str) else rule
            if not rule.matches(str(found)):
                shown = quote(found) if isinstance(found, str) else found
                self._add(_Kind.TEXT, place, f"{shown} is not {rule.name}", rule.form)
        return found

    def _add(self, kind: _Kind, place: _Place, message: str, hint: str = "") -> None:
        if self.is_whole or kind is not _Kind.FURTHER:
            self.found.append((kind, place, message, hint))

    def of_kind(self, kind: _Kind) -> Iterator[Problem]:
        """Yield the problems of one kind."""
        found = [each for each in self.found if each[0] is kind]
        if kind is not _Kind.TEXT:
            found.sort(key=lambda each: [position for _, position in _steps(each[1])])
        for _, place, message, hint in found:
            yield Problem(where=self._path(place), message=message, hint=hint)

    def _path(self, place: _Place) -> str:
        return extend_path(self.path, *(step for step, _ in _steps(place)))


def _steps(place: _Place) -> list[tuple[str | int, int]]:
    """Return the keys and indices that lead to a place, with their positions."""
    steps = []
    while place:
        place, step, position = place
        steps.append((step, position))
    return steps[::-1]


def is_stated(value: object) -> bool:
    """Return whether a value differs from the default of most fields: nothing, or false."""
    if isinstance(value, Boolean):
        return value.lower() not in ("false", "no", "off")
    return value not in (None, "", 0, False, [], {})


def unstated(type_: str) -> Fields:
    """Return the fields of an object of a type that states nothing."""
    return type_of(type_).unstated.copy()


def entries_of(values: Iterable[Fields | None] | None, path: str) -> Iterator[tuple[Fields, str]]:
    """Yield the valid objects of a list, each with its path."""
    for index, each in enumerate(values or ()):
        if each is not None:
            yield each, f"{path}[{index}]"
