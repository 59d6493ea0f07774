"""The JSON documents of the command line: version 1, keys with the suffix of their unit.

Pure: values in, plain dicts and lists out. This module has what all documents share; those of pods,
changes and the status are in modules of their own, which only the verbs that print them import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podslice.errors import Problem

Document = dict[str, Any]
DOCUMENT_VERSION = 1


def document(**parts: object) -> Document:
    """Return a document with its version."""
    return {"version": DOCUMENT_VERSION, **parts}


def problem(found: Problem) -> Document:
    """Return a problem."""
    return {
        "severity": found.severity.value,
        "where": found.where,
        "message": found.message,
        "hint": found.hint,
    }


def listed(items: Iterable[Any], make: Callable[[Any], Document]) -> list[Document]:
    """Return a document for each item."""
    return [make(item) for item in items]
