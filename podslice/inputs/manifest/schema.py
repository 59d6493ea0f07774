"""Mappings → `models`.

An invalid field becomes a `Problem` and counts as not stated, so that the rest of the pod is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from podslice.errors import InputError, Problem
from podslice.inputs.manifest.models import (
    ContainerFields,
    EmptyDirFields,
    Metadata,
    PodFields,
    ResourceFields,
    VolumeFields,
)
from podslice.inputs.scalars import describe, extend_path

__all__ = [
    "ContainerFields",
    "EmptyDirFields",
    "Metadata",
    "PodFields",
    "ResourceFields",
    "VolumeFields",
    "read_model",
]


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], value: object, path: str) -> tuple[M, list[Problem]]:
    """Read a mapping into a model; return it without its invalid fields, and their problems.

    Args:
        model: a model of `models`.
        value: what the manifest has at `path`.
        path: where the addresses of the problems begin.
    """
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems = [_problem(each, value, path) for each in details]
    for each in details:
        value = _without(value, each["loc"])
    return model.model_validate(value), problems


def _problem(details: Mapping[str, Any], value: object, path: str) -> Problem:
    where = extend_path(path, *details["loc"])
    reason = details.get("ctx", {}).get("error")
    if isinstance(reason, InputError):
        # its traceback refers to the frame that holds it: a cycle, which only the collector would free
        return reason.with_traceback(None).problems[0].within(where)
    found = _at(value, details["loc"])
    if details["type"] == "list_type":
        hint = "begin every entry with '- '" if isinstance(found, dict) else ""
        return Problem(where=where, message=f"must be a list, not {describe(found)}", hint=hint)
    return Problem(where=where, message=f"must be a mapping, not {describe(found)}")


def _at(value: object, path: tuple[str | int, ...]) -> object:
    for part in path:
        value = cast("Any", value)[part]
    return value


def _without(value: object, path: tuple[str | int, ...]) -> object:
    """Return the value with null at the path; mappings and lists that aliases share are copied."""
    if not path:
        return {}
    copy = cast("Any", value).copy()
    copy[path[0]] = _without(copy[path[0]], path[1:]) if len(path) > 1 else None
    return copy
