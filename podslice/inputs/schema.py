"""The shape of what is read of a pod, as pydantic models. No rule of Kubernetes beyond types.

A field that is null is not stated. A field of the wrong type becomes a `Fault` with its path, and
counts as not stated, so that the rest of the pod is read all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError

from podslice.inputs.limits import CONTAINERS_MAX, RESOURCES_MAX, VOLUMES_MAX
from podslice.inputs.readers import Wrong, read_amount, read_int, read_seconds, read_text
from podslice.inputs.scalars import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A field that was left out because its value is wrong."""

    path: tuple[str | int, ...]
    message: str
    hint: str = ""


def _bound(longest: int) -> BeforeValidator:
    """Refuse what is too long before each of its values is looked at."""

    def check(value: object) -> object:
        if isinstance(value, list | dict) and len(value) > longest:
            raise Wrong(f"has {len(value)} entries; at most {longest} are read")
        return value

    return BeforeValidator(check)


Text = Annotated[str, PlainValidator(read_text)]
Int = Annotated[int, PlainValidator(read_int)]
Seconds = Annotated[int, PlainValidator(read_seconds)]
Amount = Annotated[int, PlainValidator(read_amount)]
AmountMap = Annotated[dict[str, Amount | None], _bound(RESOURCES_MAX)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Metadata(_Model):
    """`metadata`, as far as it names the pod."""

    name: Text | None = None
    namespace: Text | None = None
    uid: Text | None = None
    generate_name: Text | None = Field(default=None, alias="generateName")


class ResourceFields(_Model):
    """`resources` of a container or of the pod."""

    requests: AmountMap | None = None
    limits: AmountMap | None = None


class ContainerFields(_Model):
    """One container, of whatever kind."""

    name: Text | None = None
    resources: ResourceFields | None = None
    restart_policy: Text | None = Field(default=None, alias="restartPolicy")


Containers = Annotated[list[ContainerFields | None], _bound(CONTAINERS_MAX)]


class EmptyDirFields(_Model):
    """`emptyDir` of a volume."""

    medium: Text | None = None
    size_limit: Amount | None = Field(default=None, alias="sizeLimit")


class VolumeFields(_Model):
    """One volume."""

    name: Text | None = None
    empty_dir: EmptyDirFields | None = Field(default=None, alias="emptyDir")


Volumes = Annotated[list[VolumeFields | None], _bound(VOLUMES_MAX)]


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
