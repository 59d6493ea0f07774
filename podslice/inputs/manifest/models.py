"""The fields that podslice reads of a pod, as pydantic models: types only, no other rules.

A field that is null is not stated. `schema` handles fields of the wrong type. Import these models
from there: that is faster.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from podslice.errors import invalid
from podslice.inputs.limits import POD_CONTAINERS_MAX, POD_VOLUMES_MAX, RESOURCES_MAX
from podslice.inputs.readers import read_amount, read_int, read_seconds, read_text


def _bound(longest: int) -> BeforeValidator:
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
AmountMap = Annotated[dict[str, Amount | None], _bound(RESOURCES_MAX)]


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


Containers = Annotated[list[ContainerFields | None], _bound(POD_CONTAINERS_MAX)]


class EmptyDirFields(_Model):
    """`emptyDir` of a volume."""

    medium: Text | None = None
    size_limit: Amount | None = Field(default=None, alias="sizeLimit")


class VolumeFields(_Model):
    """One volume."""

    name: Text | None = None
    empty_dir: EmptyDirFields | None = Field(default=None, alias="emptyDir")


Volumes = Annotated[list[VolumeFields | None], _bound(POD_VOLUMES_MAX)]


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
