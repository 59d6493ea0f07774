"""Reads mappings into `models`.

A field of the wrong type becomes a `Fault` with its path, and counts as not stated, so that the rest
of the pod is read all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from podslice.imports import quick_models
from podslice.inputs.readers import Wrong
from podslice.inputs.scalars import describe

with quick_models():
    from podslice.inputs.manifest.models import (
        ContainerFields,
        EmptyDirFields,
        Metadata,
        PodFields,
        ResourceFields,
        VolumeFields,
    )

__all__ = [
    "ContainerFields",
    "EmptyDirFields",
    "Fault",
    "Metadata",
    "PodFields",
    "ResourceFields",
    "VolumeFields",
    "read_model",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A field that was left out because its value is wrong."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], value: object) -> tuple[M, list[Fault]]:
    """Read a mapping into a model, without the fields that are wrong, which come as faults."""
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        faults = [_fault(details, value) for details in error.errors(include_url=False)]
    for fault in faults:
        value = _without(value, fault.path)
    return model.model_validate(value), faults


def _fault(details: Mapping[str, Any], value: object) -> Fault:
    path = tuple(details["loc"])
    reason = details.get("ctx", {}).get("error")
    if isinstance(reason, Wrong):
        return Fault(path=path, message=reason.message, hint=reason.hint)
    found = describe(_at(value, path))
    if "list" in details["type"]:
        hint = "begin every entry with '- '" if found == "a mapping" else ""
        return Fault(path=path, message=f"has to be a list, is {found}", hint=hint)
    return Fault(path=path, message=f"has to be a mapping, is {found}")


def _at(value: object, path: tuple[str | int, ...]) -> object:
    for part in path:
        value = cast("Any", value)[part]
    return value


def _without(value: object, path: tuple[str | int, ...]) -> object:
    """The value with null at the path; what aliases share stays as it is."""
    if not path:
        return {}
    copy = cast("Any", value).copy()
    copy[path[0]] = _without(copy[path[0]], path[1:]) if len(path) > 1 else None
    return copy
