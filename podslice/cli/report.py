"""JSON from the values that a verb reports, and the schema of it.

A report is a frozen dataclass whose fields are the keys of the document, in this order; keys of amounts
end in the unit. A field with a default is left out while it has it. docs/json has the schema of each
report, from the same types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from podslice.errors import Problem, Severity, bounded
from podslice.model.feature import VerbRow, load
from podslice.model.unit import INFINITY

VERSION = 1
"""The version of the documents: it changes when a key gets another meaning or is removed."""
Document = dict[str, Any]


def _amount(value: int) -> int | Literal["infinity"]:
    return "infinity" if value == INFINITY else value


Amount = Annotated[int, PlainSerializer(_amount)]
"""An amount that can be infinite, for which JSON has no number."""


@dataclass(frozen=True, kw_only=True)
class ProblemEntry:
    """A problem: where it is, what it is, and what would be right."""

    severity: Severity
    where: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class ProblemsReport:
    """The report of a verb that fails without a result."""

    problems: tuple[ProblemEntry, ...]


def problem_entries(found: Iterable[Problem]) -> tuple[ProblemEntry, ...]:
    """Return the first problems for a report, and one that states the number of the others."""
    return tuple(
        ProblemEntry(severity=each.severity, where=each.where, message=each.message, hint=each.hint)
        for each in bounded(tuple(found))
    )


def document(report: object, **parts: object) -> Document:
    """Return a report for JSON, with the version of its form, and the keys that features add."""
    made = TypeAdapter(type(report)).dump_python(report, mode="json", exclude_defaults=True)
    return {"version": VERSION, **made, **parts}


class _Schema(GenerateJsonSchema):
    """The schema without titles of keys, which repeat the keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def schema(report: Any, title: str) -> Document:  # noqa: ANN401 - a type, or a union of types
    """Return the JSON Schema of a report's document."""
    made = TypeAdapter(report).json_schema(mode="serialization", schema_generator=_Schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        **made,
        "title": title,
        "properties": {"version": {"const": VERSION}, **made.get("properties", {})},
        "required": ["version", *made.get("required", ())],
    }


def schemas(verbs: Mapping[str, VerbRow]) -> dict[str, Document]:
    """Return the schema of each verb's document, and of that of errors, by their names."""
    made = {"problems": schema(ProblemsReport, "Problems of a verb that fails")}
    for name, row in verbs.items():
        if row.report:
            made[name.replace(" ", "-")] = schema(load(row.report), f"podslice {name} -o json")
    return made
