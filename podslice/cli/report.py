"""JSON from the values that a verb reports, and the schema of it.

A report is a frozen dataclass whose fields are the keys of the document, in this order; keys of amounts
end in the unit. A field with a default is left out while it has it. docs/json has the schema of each
report, from the same types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from podslice.errors import Problem, Severity, bounded
from podslice.model.config import Origin, Source
from podslice.model.feature import Feature, VerbRow, load
from podslice.model.quantity import parse_quantity
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PIDS,
    Amounts,
    is_hugepages,
    whole,
)
from podslice.model.unit import INFINITY, PropertyValue, Value

VERSION = 1
"""The version of the documents: it changes when a key gets another meaning or is removed."""
Document = dict[str, Any]


def _amount(value: int) -> int | Literal["infinity"]:
    return "infinity" if value == INFINITY else value


Amount = Annotated[int, PlainSerializer(_amount)]
"""An amount that can be infinite, for which JSON has no number."""


def _setting(value: Value) -> int | str | bool | list[Any]:
    if value == INFINITY and not isinstance(value, bool):
        return "infinity"
    return list(value) if isinstance(value, tuple) else value


Setting = Annotated[Value, PlainSerializer(_setting)]
"""The value of a property of a unit, which can be infinite."""
OptionalSetting = Annotated[
    Value | None, PlainSerializer(lambda value: None if value is None else _setting(value))
]
"""The same; None if it is not set."""

From = Annotated[str, Field(serialization_alias="from")]
"""A text with the key `from`, which is a keyword in Python."""


@dataclass(frozen=True, kw_only=True)
class ProblemEntry:
    """A problem: its place, its message, and the way out."""

    severity: Severity
    where: str
    message: str
    hint: str


def _problem_entries(found: Sequence[Problem]) -> list[ProblemEntry]:
    return [
        ProblemEntry(severity=each.severity, where=each.where, message=each.message, hint=each.hint)
        for each in bounded(found)
    ]


Problems = Annotated[tuple[Problem, ...], PlainSerializer(_problem_entries)]
"""Problems: a document has the first problems, and a last one with the number of further problems."""


@dataclass(frozen=True, kw_only=True)
class ProblemsReport:
    """The report of a verb that fails without a result."""

    problems: Problems


@dataclass(frozen=True, kw_only=True)
class ConfigurationEntry:
    """The configuration in use instead of invalid files, and their problems."""

    source: Source
    problems: Problems


def configuration_entry(origin: Origin) -> ConfigurationEntry | None:
    """Return the configuration in use instead of invalid files; None if the files are valid."""
    if origin.source is Source.FILES:
        return None
    return ConfigurationEntry(source=origin.source, problems=origin.problems)


@dataclass(frozen=True, kw_only=True)
class AmountsEntry:
    """The stated amounts of resources."""

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    ephemeral_storage_bytes: int | None = None
    pids: int | None = None
    hugepages_bytes: dict[str, int] | None = None
    """By the size of a page in bytes."""


def amounts_entry(stated: Amounts) -> AmountsEntry:
    """Return amounts by resource."""
    pages = {
        str(parse_quantity(name.removeprefix(HUGEPAGES_PREFIX)).milli // 1000): whole(stated, name)
        for name in sorted(stated)
        if is_hugepages(name)
    }
    return AmountsEntry(
        cpu_milli=stated.get(CPU),
        memory_bytes=whole(stated, MEMORY),
        ephemeral_storage_bytes=whole(stated, EPHEMERAL_STORAGE),
        pids=whole(stated, PIDS),
        hugepages_bytes={size: amount for size, amount in pages.items() if amount is not None}
        or None,
    )


@dataclass(frozen=True, kw_only=True)
class PropertyEntry:
    """A property of a unit, and the reason for its value."""

    name: str
    value: Setting
    why: str


def property_entries(stated: Iterable[PropertyValue]) -> tuple[PropertyEntry, ...]:
    """Return properties with their reasons."""
    return tuple(PropertyEntry(name=each.name, value=each.value, why=each.why) for each in stated)


def hugetlb_bytes(hugepages: Mapping[int, int]) -> dict[str, int] | None:
    """Return limits of huge pages by the size of a page in bytes; None without any."""
    return {str(size): limit for size, limit in hugepages.items()} or None


def document(report: object, **parts: object) -> Document:
    """Return a report for JSON, with the version of its form, and the keys that features add."""
    return {"version": VERSION, **part(report), **parts}


def part(entry: object) -> Document:
    """Return a part of a report for JSON."""
    kind: Any = type(entry)
    made: Document = _adapter(kind).dump_python(
        entry, mode="json", by_alias=True, exclude_defaults=True
    )
    return made


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """Return what serializes a type of report; pydantic takes 1 to 30 ms to make it."""
    return TypeAdapter(kind)


class _Schema(GenerateJsonSchema):
    """The schema without titles of keys, which repeat the keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def _schema_of(report: Any) -> Document:  # noqa: ANN401 - a type, or a union of types
    return TypeAdapter(report).json_schema(mode="serialization", schema_generator=_Schema)


def schema(report: Any, title: str, further: Mapping[str, Any] | None = None) -> Document:  # noqa: ANN401 - as above
    """Return the JSON Schema of a report's document: `further` are the types of keys of features."""
    made = _schema_of(report)
    added = {key: _schema_of(each) for key, each in (further or {}).items()}
    definitions = [each.pop("$defs", {}) for each in (made, *added.values())]
    if any(definitions):
        made = {"$defs": dict(sorted(chain.from_iterable(map(dict.items, definitions)))), **made}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        **made,
        "title": title,
        "properties": {"version": {"const": VERSION}, **made.get("properties", {}), **added},
        "required": ["version", *made.get("required", ())],
    }


def schemas(verbs: Mapping[str, VerbRow], features: Sequence[Feature]) -> dict[str, Document]:
    """Return the schemas of the verbs' documents and of the document of errors, by name."""
    made = {"problems": schema(ProblemsReport, "Problems of a verb that fails")}
    for name, row in verbs.items():
        if row.report:
            further = {
                key: load(reference)
                for each in features
                for key, reference in each.keys.get(name, {}).items()
            }
            title = f"podslice {name} -o json"
            made[name.replace(" ", "-")] = schema(load(row.report), title, further)
    return made
