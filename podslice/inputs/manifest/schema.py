"""Mappings → `models`.

An invalid field becomes a `Problem` and counts as not stated, so that the rest of the pod is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from podslice.errors import InputError, Problem, invalid
from podslice.inputs.budget import POD_CONTAINERS_MAX, POD_VOLUMES_MAX, RESOURCES_MAX
from podslice.inputs.scalars import (
    describe,
    extend_path,
    read_amount,
    read_int,
    read_seconds,
    read_text,
)

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


def bound(longest: int) -> BeforeValidator:
    """Return a validator that rejects a long list or mapping before its values are read."""

    def check(value: object) -> object:
        if isinstance(value, list | dict) and len(value) > longest:
            raise invalid(f"has {len(value)} entries", f"the maximum is {longest}")
        return value

    return BeforeValidator(check)


Text = Annotated[str, PlainValidator(read_text)]
Int = Annotated[int, PlainValidator(read_int)]
Seconds = Annotated[int, PlainValidator(read_seconds)]
Amount = Annotated[int, PlainValidator(read_amount)]
AmountMap = Annotated[dict[str, Amount | None], bound(RESOURCES_MAX)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Metadata(_Model):
    """The fields of `metadata` that identify the pod."""

    name: Text | None = None
    namespace: Text | None = None
    uid: Text | None = None
    generate_name: Text | None = Field(default=None, alias="generateName")


class ResourceFields(_Model):
    """`resources` of a container or of the pod."""

    requests: AmountMap | None = None
    limits: AmountMap | None = None


class ContainerFields(_Model):
    """One container of any kind."""

    name: Text | None = None
    resources: ResourceFields | None = None
    restart_policy: Text | None = Field(default=None, alias="restartPolicy")


Containers = Annotated[list[ContainerFields | None], bound(POD_CONTAINERS_MAX)]


class EmptyDirFields(_Model):
    """`emptyDir` of a volume."""

    medium: Text | None = None
    size_limit: Amount | None = Field(default=None, alias="sizeLimit")


class VolumeFields(_Model):
    """One volume."""

    name: Text | None = None
    empty_dir: EmptyDirFields | None = Field(default=None, alias="emptyDir")


Volumes = Annotated[list[VolumeFields | None], bound(POD_VOLUMES_MAX)]


class PodFields(_Model):
    """`spec` of a pod."""

    containers: Containers | None = None
    init_containers: Containers | None = Field(default=None, alias="initContainers")
    resources: ResourceFields | None = None
    overhead: AmountMap | None = None
    priority: Int | None = None
    priority_class_name: Text | None = Field(default=None, alias="priorityClassName")
    grace_period_sec: Seconds | None = Field(default=None, alias="terminationGracePeriodSeconds")
    volumes: Volumes | None = None
