"""JSON from the values that a verb reports, and the schema of it.

A report is a frozen dataclass whose fields are the keys of the document, in this order; keys of amounts
end in the unit. docs/json has the schema of each, from the same types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, TypeAdapter

from podslice.model.unit import INFINITY

VERSION = 1
"""The version of the documents: it changes when a key gets another meaning or is removed."""
Document = dict[str, Any]


def _amount(value: int) -> int | Literal["infinity"]:
    return "infinity" if value == INFINITY else value


Amount = Annotated[int, PlainSerializer(_amount)]
"""An amount that can be infinite, for which JSON has no number."""


def document(report: object) -> Document:
    """Return a report for JSON, with the version of its form."""
    return {"version": VERSION, **TypeAdapter(type(report)).dump_python(report, mode="json")}


def schema(report: type, title: str) -> Document:
    """Return the JSON Schema of a report's document."""
    made = TypeAdapter(report).json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": title,
        "properties": {"version": {"const": VERSION}, **made["properties"]},
        "required": ["version", *made["properties"]],
    }
