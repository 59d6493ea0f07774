"""`metadata` and `spec` of a pod → values of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from podslice.errors import quote
from podslice.inputs.limits import POD_AMOUNTS_MAX
from podslice.inputs.manifest.kinds import PRIORITY_CLASSES
from podslice.inputs.manifest.memory_volumes import read_volumes
from podslice.inputs.manifest.names import check_label, check_uid, is_resource_name, keep
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.manifest.schema import (
    ContainerFields,
    Metadata,
    PodFields,
    ResourceFields,
    read_model,
)
from podslice.inputs.manifest.unknown_fields import ABBREVIATIONS, RESOURCES, check_fields
from podslice.inputs.readers import is_finer, nearest
from podslice.inputs.scalars import extend_path
from podslice.model.pod import DEFAULT_GRACE_SEC, Container, ContainerKind, MemoryVolume
from podslice.model.properties import StatedProperties
from podslice.model.quantity import format_milli
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PIDS,
    Amounts,
    Resources,
    is_hugepages,
)

_NO_RESOURCES = Resources()
_PARTS = ("requests", "limits")
_USUAL = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
_OF_POD = _USUAL | {PIDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The content of a pod's `spec`, which replicas share."""

    where: str
    """The path of the spec in the document."""
    containers: tuple[Container, ...] = ()
    resources: Resources = _NO_RESOURCES
    has_empty_level: bool = False
    overhead: Amounts = field(default_factory=dict)
    priority: int = 0
    grace_period_sec: int = DEFAULT_GRACE_SEC
    volumes: tuple[MemoryVolume, ...] = ()
    properties: StatedProperties = field(default_factory=dict)


def read_metadata(value: object, problems: Problems, path: str) -> Metadata:
    """Read `metadata`. The caller checks the name: replicas get longer ones."""
    metadata, found = read_model(Metadata, value or {}, path)
    problems.add("", *found)
    if metadata.namespace is not None:
        problems.add(extend_path(path, "namespace"), check_label(metadata.namespace, "namespace"))
    if metadata.uid is not None:
        problems.add(extend_path(path, "uid"), check_uid(metadata.uid))
    return metadata


def read_spec(value: object, problems: Problems, path: str) -> Template:
    """Read the `spec` of a pod."""
    raw: Mapping[str, Any] = value if isinstance(value, dict) else {}
    if _count_amounts(raw) > POD_AMOUNTS_MAX:
        message = f"the containers have more than {POD_AMOUNTS_MAX:,} requests and limits"
        problems.error(path, message)
        return Template(where=path)
    fields, found = read_model(PodFields, {} if value is None else value, path)
    problems.add("", *found)
    at = extend_path(path, "containers")
    if not fields.containers and not problems.has_error(path, at):
        problems.error(at, "a pod needs at least one container")
    containers = (
        *_read_containers(
            fields.containers, raw.get("containers") or (), problems, f"{path}.containers"
        ),
        *_read_containers(
            fields.init_containers,
            raw.get("initContainers") or (),
            problems,
            f"{path}.initContainers",
        ),
    )
    _check_unique(containers, problems)
    grace, own = fields.grace_period_sec, _read_own_level(fields, raw, problems, path)
    return Template(
        where=path,
        containers=containers,
        resources=own,
        has_empty_level=fields.resources is not None and not own,
        overhead=_read_amounts(
            fields.overhead, raw.get("overhead") or {}, problems, f"{path}.overhead"
        ),
        priority=_read_priority(fields, problems, path),
        grace_period_sec=DEFAULT_GRACE_SEC if grace is None else grace,
        volumes=read_volumes(
            fields.volumes or (), raw.get("volumes") or (), problems, f"{path}.volumes"
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
    entries: list[ContainerFields | None] | None, raw: Sequence[Any], problems: Problems, path: str
) -> Iterator[Container]:
    for index, entry in enumerate(entries or ()):
        where = f"{path}[{index}]"
        if entry is not None:
            yield _read_container(entry, raw[index], problems, where)
        elif raw[index] is None:
            problems.error(where, "must be a mapping, not null")


def _read_container(
    entry: ContainerFields, raw: Mapping[str, Any], problems: Problems, path: str
) -> Container:
    name = entry.name
    if name is not None:
        problems.add(f"{path}.name", check_label(name, "container"))
    elif raw.get("name") is None:
        problems.error(f"{path}.name", "a container needs a name")
    return Container(
        name=keep(name or ""),
        kind=_kind(entry, path),
        resources=_read_resources(
            entry.resources, raw.get("resources"), problems, f"{path}.resources"
        ),
        where=path,
    )


def _kind(entry: ContainerFields, path: str) -> ContainerKind:
    """Return the kind of a container.

    Source: Kubernetes, "Sidecar Containers": init containers with `restartPolicy: Always`.
    """
    if "initContainers[" not in path:
        return ContainerKind.APP
    return ContainerKind.SIDECAR if entry.restart_policy == "Always" else ContainerKind.INIT


def _check_unique(containers: tuple[Container, ...], problems: Problems) -> None:
    if len({container.name for container in containers}) == len(containers):
        return
    first: dict[str, str] = {}
    for container in containers:
        where = first.setdefault(container.name, container.where)
        if where != container.where and container.name:
            message = f"the name {quote(container.name)} is already used by {where}"
            problems.error(f"{container.where}.name", message, "choose another name")


def read_pod_level(value: object, problems: Problems, path: str) -> Resources:
    """Read the pod level as an object of its own, with the fields of `spec.resources`."""
    fields, found = read_model(ResourceFields, value, path)
    problems.add("", *found)
    check_fields(value, RESOURCES, path, problems)
    raw = value if isinstance(value, dict) else {}
    return _read_resources(fields, raw, problems, path, _OF_POD)


def _read_own_level(
    fields: PodFields, raw: Mapping[str, Any], problems: Problems, path: str
) -> Resources:
    stated, at = raw.get("resources"), f"{path}.resources"
    return _read_resources(fields.resources, stated, problems, at, _OF_POD)


def _read_resources(
    fields: ResourceFields | None,
    raw: Mapping[str, Any] | None,
    problems: Problems,
    path: str,
    known: frozenset[str] = _USUAL,
) -> Resources:
    if fields is None or raw is None:
        return _NO_RESOURCES
    return Resources(
        requests=_read_amounts(
            fields.requests, raw.get("requests") or {}, problems, f"{path}.requests", known
        ),
        limits=_read_amounts(
            fields.limits, raw.get("limits") or {}, problems, f"{path}.limits", known
        ),
    )


def _read_amounts(
    fields: dict[str, int | None] | None,
    raw: Mapping[str, Any],
    problems: Problems,
    path: str,
    known: frozenset[str] = _USUAL,
) -> Amounts:
    if not fields:
        return {}
    for name, milli in fields.items():
        if milli is not None and is_finer(raw[name]):
            message = f"{quote(str(raw[name]))} is not a whole number of thousandths"
            hint = f"it is rounded up to {format_milli(milli)}"
            problems.warn(extend_path(path, name), message, hint)
    if known.issuperset(fields) and None not in fields.values():
        return fields  # type: ignore[return-value]  # there is no None in it
    amounts = {}
    for name, milli in fields.items():
        if not is_resource_name(name):
            problems.error(extend_path(path, name), f"{quote(name)} is not a valid resource name")
        elif not _is_known(name, known):
            problems.unknown(extend_path(path, name), *_describe_unknown(name, known, fields))
        elif milli is not None:
            amounts[name] = milli
        elif raw[name] is None:
            problems.warn(extend_path(path, name), "the value is null and is ignored")
    return amounts


def _is_known(resource: str, known: frozenset[str]) -> bool:
    """Return whether a resource is a standard one, one of a vendor, or `pid` of a pod.

    Source: Kubernetes, pkg/apis/core/validation/validation.go, validateContainerResourceName: "must
    be a standard resource for containers" without a prefix.
    """
    return "/" in resource or is_hugepages(resource) or resource in known


def _describe_unknown(
    resource: str, known: frozenset[str], stated: Mapping[str, object]
) -> tuple[str, str]:
    """Return the message and the hint for the name of a resource that is not known."""
    if resource == PIDS:
        hint = "write it under spec.resources.limits"
        return "process ids are limited for the pod as a whole", hint
    message = f"{quote(resource)} is not a known resource"
    if resource in _PARTS:
        return message, "it belongs under resources"
    right = ABBREVIATIONS.get(resource) or nearest(resource, known)
    if right is None:
        return message, ""
    return message, f"merge it into {right}" if right in stated else f"write {right}"


def _read_priority(fields: PodFields, problems: Problems, path: str) -> int:
    """Return the priority, or that of the class.

    Source: Kubernetes, plugin/pkg/admission/priority.
    """
    if fields.priority is not None:
        return fields.priority
    name = fields.priority_class_name
    if name and name not in PRIORITY_CLASSES:
        message = f"unknown priority class {quote(name)}: the priority is 0"
        hint = f"set {extend_path(path, 'priority')} to the number"
        problems.warn(extend_path(path, "priorityClassName"), message, hint)
    return PRIORITY_CLASSES.get(name or "", 0)
