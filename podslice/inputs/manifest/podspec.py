"""`metadata` and `spec` of a pod → values of the model, with every problem at its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podslice.inputs.fields import AMOUNTS, CONTAINER, METADATA, POD, RESOURCES
from podslice.inputs.limits import POD_AMOUNTS_MAX
from podslice.inputs.manifest.kinds import PRIORITY_CLASSES
from podslice.inputs.manifest.memory_volumes import read_volumes
from podslice.inputs.manifest.names import check_label, check_uid, is_resource_name, keep
from podslice.inputs.manifest.problems import Notes
from podslice.inputs.manifest.schema import (
    ContainerFields,
    Metadata,
    PodFields,
    ResourceFields,
    read_model,
)
from podslice.inputs.readers import is_finer
from podslice.inputs.scalars import extend_path, shown
from podslice.model.pod import DEFAULT_GRACE_SEC, Container, ContainerKind, MemoryVolume
from podslice.model.quantity import format_milli
from podslice.model.resources import Amounts, Resources

_NO_RESOURCES = Resources()
_PARTS = ("requests", "limits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a pod's `spec` says, whoever the pod is."""

    where: str
    """The path of the spec in the document."""
    containers: tuple[Container, ...] = ()
    resources: Resources = _NO_RESOURCES
    overhead: Amounts = field(default_factory=dict)
    priority: int = 0
    grace_period_sec: int = DEFAULT_GRACE_SEC
    volumes: tuple[MemoryVolume, ...] = ()


def read_metadata(value: object, notes: Notes, path: str) -> Metadata:
    """Read `metadata`; the name is checked by whoever knows which names come of it."""
    metadata, faults = read_model(Metadata, value or {})
    notes.faults(path, faults)
    notes.slips(METADATA, value, path)
    if metadata.namespace is not None:
        mistake = check_label(metadata.namespace, "namespace")
        notes.mistake(extend_path(path, "namespace"), mistake)
    if metadata.uid is not None:
        notes.mistake(extend_path(path, "uid"), check_uid(metadata.uid))
    return metadata


def read_spec(value: object, notes: Notes, path: str) -> Template:
    """Read the `spec` of a pod."""
    raw: Mapping[str, Any] = value if isinstance(value, dict) else {}
    if _count_amounts(raw) > POD_AMOUNTS_MAX:
        message = f"the containers have more than {POD_AMOUNTS_MAX:,} requests and limits"
        notes.error(path, message)
        return Template(where=path)
    fields, faults = read_model(PodFields, {} if value is None else value)
    notes.faults(path, faults)
    notes.slips(POD, raw, path)
    if not fields.containers and not any(
        fault.path[:1] in ((), ("containers",)) for fault in faults
    ):
        notes.error(extend_path(path, "containers"), "a pod needs at least one container")
    containers = (
        *_read_containers(
            fields.containers, raw.get("containers") or (), notes, f"{path}.containers"
        ),
        *_read_containers(
            fields.init_containers, raw.get("initContainers") or (), notes, f"{path}.initContainers"
        ),
    )
    _check_unique(containers, notes)
    grace = fields.grace_period_sec
    return Template(
        where=path,
        containers=containers,
        resources=_read_resources(fields.resources, raw.get("resources"), notes, path),
        overhead=_read_amounts(
            fields.overhead, raw.get("overhead") or {}, notes, f"{path}.overhead"
        ),
        priority=_read_priority(fields, notes, path),
        grace_period_sec=DEFAULT_GRACE_SEC if grace is None else grace,
        volumes=read_volumes(
            fields.volumes or (), raw.get("volumes") or (), notes, f"{path}.volumes"
        ),
    )


def _count_amounts(raw: Mapping[str, Any]) -> int:
    """Count the requests and limits of all containers, before any of them is read."""
    lists = (raw.get("containers"), raw.get("initContainers"))
    containers = (each for entries in lists if isinstance(entries, list) for each in entries)
    stated = (each.get("resources") for each in containers if isinstance(each, dict))
    amounts = (each.get(part) for each in stated if isinstance(each, dict) for part in _PARTS)
    return sum(len(each) for each in amounts if isinstance(each, dict))


def _read_containers(
    entries: list[ContainerFields | None] | None, raw: Sequence[Any], notes: Notes, path: str
) -> Iterator[Container]:
    for index, entry in enumerate(entries or ()):
        where = f"{path}[{index}]"
        if entry is not None:
            yield _read_container(entry, raw[index], notes, where)
        elif raw[index] is None:
            notes.error(where, "has to be a mapping, is empty")


def _read_container(
    entry: ContainerFields, raw: Mapping[str, Any], notes: Notes, path: str
) -> Container:
    notes.slips(CONTAINER, raw, path)
    name = entry.name
    if name is not None:
        notes.mistake(f"{path}.name", check_label(name, "container"))
    elif raw.get("name") is None:
        notes.error(f"{path}.name", "a container needs a name")
    return Container(
        name=keep(name or ""),
        kind=_kind(entry, path),
        resources=_read_resources(entry.resources, raw.get("resources"), notes, path),
        where=path,
    )


def _kind(entry: ContainerFields, path: str) -> ContainerKind:
    """Source: Kubernetes, "Sidecar Containers": init containers with `restartPolicy: Always`."""
    if "initContainers[" not in path:
        return ContainerKind.APP
    return ContainerKind.SIDECAR if entry.restart_policy == "Always" else ContainerKind.INIT


def _check_unique(containers: tuple[Container, ...], notes: Notes) -> None:
    if len({container.name for container in containers}) == len(containers):
        return
    first: dict[str, str] = {}
    for container in containers:
        where = first.setdefault(container.name, container.where)
        if where != container.where and container.name:
            message = f"the name {shown(container.name)} is the one of {where} already"
            notes.error(f"{container.where}.name", message, "give it another")


def _read_resources(
    fields: ResourceFields | None, raw: Mapping[str, Any] | None, notes: Notes, owner: str
) -> Resources:
    if fields is None or raw is None:
        return _NO_RESOURCES
    path = f"{owner}.resources"
    notes.slips(RESOURCES, raw, path)
    return Resources(
        requests=_read_amounts(
            fields.requests, raw.get("requests") or {}, notes, f"{path}.requests"
        ),
        limits=_read_amounts(fields.limits, raw.get("limits") or {}, notes, f"{path}.limits"),
    )


def _read_amounts(
    fields: dict[str, int | None] | None, raw: Mapping[str, Any], notes: Notes, path: str
) -> Amounts:
    if not fields:
        return {}
    for name, milli in fields.items():
        if milli is not None and is_finer(raw[name]):
            message = f"{shown(str(raw[name]))} is finer than a thousandth"
            notes.warn(extend_path(path, name), message, f"it counts as {format_milli(milli)}")
    if AMOUNTS.known.issuperset(fields) and None not in fields.values():
        return fields  # type: ignore[return-value]  # there is no None in it
    amounts = {}
    for name, milli in fields.items():
        if not is_resource_name(name):
            notes.error(extend_path(path, name), f"{shown(name)} can't be the name of a resource")
        elif milli is not None:
            amounts[name] = milli
        elif raw[name] is None:
            notes.warn(extend_path(path, name), "it is empty, and counts as not stated")
    notes.slips(AMOUNTS, {name: None for name in fields if is_resource_name(name)}, path)
    return amounts


def _read_priority(fields: PodFields, notes: Notes, path: str) -> int:
    """Source: Kubernetes, plugin/pkg/admission/priority: the class says the number."""
    if fields.priority is not None:
        return fields.priority
    name = fields.priority_class_name
    if name and name not in PRIORITY_CLASSES:
        message = f"the class {shown(name)} is not known here, so the priority is 0"
        hint = f"state the number as {extend_path(path, 'priority')}"
        notes.warn(extend_path(path, "priorityClassName"), message, hint)
    return PRIORITY_CLASSES.get(name or "", 0)
