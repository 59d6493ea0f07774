"""`metadata` and `spec` of a pod, and podslice's annotations → values of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from podslice.errors import InputError, invalid, printable, quote
from podslice.inputs.budget import POD_AMOUNTS_MAX, UNKNOWN_FIELDS_MAX, Budget, Exhausted
from podslice.inputs.manifest.fields import RESOURCE_REQUIREMENTS
from podslice.inputs.manifest.parse import read_json
from podslice.inputs.manifest.reading import Fields, Problems, read
from podslice.inputs.manifest.unknown_fields import ABBREVIATIONS, check_fields
from podslice.inputs.scalars import Amount, describe, extend_path, is_finer, nearest, read_text
from podslice.model.grammar import SUBDOMAIN_MAX, check_label, check_uid, is_resource_name
from podslice.model.pod import DEFAULT_GRACE_SEC, Container, ContainerKind, MemoryVolume, Pod
from podslice.model.properties import ANNOTATIONS, PREFIX, RESOURCES
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
_PRIORITY_CLASSES = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
"""Source: Kubernetes, pkg/apis/scheduling/types.go, SystemCriticalPriority and 1,000 above it."""


def read_metadata(value: object, problems: Problems, path: str) -> Fields:
    """Read `metadata`. The caller checks the name: replicas get longer ones."""
    reading = read("ObjectMeta", value or {}, path)
    problems.add("", *reading.problems)
    metadata = reading.fields
    if metadata["namespace"] is not None:
        problem = check_label(metadata["namespace"], "namespace")
        problems.add(extend_path(path, "namespace"), problem)
    if metadata["uid"] is not None:
        problems.add(extend_path(path, "uid"), check_uid(metadata["uid"]))
    return metadata


def to_stored(name: str) -> str:
    """Return a name as the pod stores it: printable, and truncated to the longest valid name.

    Every replica repeats it, in its own name and in the names of its units. The checks report an
    invalid name.
    """
    return printable(name[:SUBDOMAIN_MAX])[:SUBDOMAIN_MAX]


def has_too_many_amounts(spec: object) -> bool:
    """Return whether the containers have more requests and limits than are read."""
    raw = spec if isinstance(spec, dict) else {}
    lists = (raw.get("containers"), raw.get("initContainers"))
    containers = (each for entries in lists if isinstance(entries, list) for each in entries)
    stated = (each.get("resources") for each in containers if isinstance(each, dict))
    amounts = (each.get(part) for each in stated if isinstance(each, dict) for part in _PARTS)
    return sum(len(each) for each in amounts if isinstance(each, dict)) > POD_AMOUNTS_MAX


def make_pod(fields: Fields, problems: Problems, path: str) -> Pod:
    """Return the pod of a `spec`, whose problems of types have been added, without name and uid."""
    at = extend_path(path, "containers")
    if not fields["containers"] and not problems.has_error(path, at):
        problems.error(at, "a pod needs at least one container")
    containers = tuple(
        container
        for name in ("containers", "initContainers")
        for container in _read_containers(fields[name] or (), problems, f"{path}.{name}")
    )
    _check_unique(containers, problems)
    grace = fields["terminationGracePeriodSeconds"]
    own = _read_resources(fields["resources"], problems, f"{path}.resources", _OF_POD)
    return Pod(
        name="",
        uid="",
        spec_where=path,
        containers=containers,
        resources=own,
        has_empty_level=fields["resources"] is not None and not own,
        overhead=_read_amounts(fields["overhead"], problems, f"{path}.overhead"),
        priority=_read_priority(fields, problems, path),
        grace_period_sec=DEFAULT_GRACE_SEC if grace is None else grace,
        volumes=_read_volumes(fields["volumes"] or (), problems, f"{path}.volumes"),
    )


def _read_containers(
    entries: Sequence[Fields | None], problems: Problems, path: str
) -> Iterator[Container]:
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        where = f"{path}[{index}]"
        name = entry["name"]
        if name is not None:
            problems.add(f"{where}.name", check_label(name, "container"))
        elif not problems.has_error(f"{where}.name"):
            problems.error(f"{where}.name", "a container needs a name")
        kind = container_kind(entry, is_init=path.endswith("initContainers"))
        resources = _read_resources(entry["resources"], problems, f"{where}.resources")
        yield Container(name=to_stored(name or ""), kind=kind, resources=resources, where=where)


def container_kind(entry: Fields, *, is_init: bool) -> ContainerKind:
    """Return the kind of a container, which is one of `initContainers` if `is_init` is set.

    Source: Kubernetes, "Sidecar Containers": init containers with `restartPolicy: Always`.
    """
    if not is_init:
        return ContainerKind.APP
    return ContainerKind.SIDECAR if entry["restartPolicy"] == "Always" else ContainerKind.INIT


def _check_unique(containers: tuple[Container, ...], problems: Problems) -> None:
    if len({container.name for container in containers}) == len(containers):
        return
    first: dict[str, str] = {}
    for container in containers:
        where = first.setdefault(container.name, container.where)
        if where != container.where and container.name:
            message = f"the name {quote(container.name)} is already used by {where}"
            problems.error(f"{container.where}.name", message, "choose another name")


def _read_resources(
    fields: Fields | None, problems: Problems, path: str, known: frozenset[str] = _USUAL
) -> Resources:
    if fields is None:
        return _NO_RESOURCES
    requests, limits = (
        _read_amounts(fields[part], problems, f"{path}.{part}", known) for part in _PARTS
    )
    return Resources(requests=requests, limits=limits)


def _read_amounts(
    stated: Mapping[str, Amount | None] | None,
    problems: Problems,
    path: str,
    known: frozenset[str] = _USUAL,
) -> Amounts:
    amounts = {}
    for name, amount in (stated or {}).items():
        if amount is not None and amount.milli is not None:
            amounts[name] = amount.milli
            if is_finer(amount.stated):
                message = f"{quote(str(amount.stated))} is not a whole number of thousandths"
                hint = f"it is rounded up to {format_milli(amount.milli)}"
                problems.warn(extend_path(path, name), message, hint)
    if stated is None or (known.issuperset(stated) and len(amounts) == len(stated)):
        return amounts
    for name, amount in stated.items():
        if not is_resource_name(name):
            problems.error(extend_path(path, name), f"{quote(name)} is not a valid resource name")
        # a standard resource, one of a vendor, or `pid` of a pod. Source: Kubernetes,
        # pkg/apis/core/validation/validation.go, validateContainerResourceName.
        elif not ("/" in name or is_hugepages(name) or name in known):
            problems.unknown(extend_path(path, name), *_describe_unknown(name, known, stated))
        else:
            if amount is None:
                problems.warn(extend_path(path, name), "the value is null and is ignored")
            continue
        amounts.pop(name, None)
    return amounts


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


def _read_priority(fields: Fields, problems: Problems, path: str) -> int:
    """Return the priority, or that of the class.

    Source: Kubernetes, plugin/pkg/admission/priority.
    """
    if fields["priority"] is not None:
        return int(fields["priority"])
    name = fields["priorityClassName"]
    if name and name not in _PRIORITY_CLASSES:
        message = f"unknown priority class {quote(name)}: the priority is 0"
        hint = f"set {extend_path(path, 'priority')} to the number"
        problems.warn(extend_path(path, "priorityClassName"), message, hint)
    return _PRIORITY_CLASSES.get(name or "", 0)


_MEMORY = "Memory"
_HUGEPAGES = "HugePages"
"""`HugePages`, or `HugePages-2Mi` and the like."""


def _read_volumes(
    entries: Sequence[Fields | None], problems: Problems, path: str
) -> tuple[MemoryVolume, ...]:
    """Return the volumes in memory.

    Source: Kubernetes, pkg/apis/core/validation/validation.go, ValidateVolumes.
    """
    volumes = []
    first: dict[str, str] = {}
    for index, entry in enumerate(entries):
        if entry is None:
            continue
        where, name = f"{path}[{index}]", entry["name"]
        at = f"{where}.name"
        if name is None:
            if not problems.has_error(at):
                problems.error(at, "a volume needs a name")
        elif problem := check_label(name, "volume"):
            problems.add(at, problem)
            name = None  # it would become part of a path
        elif first.setdefault(name, where) != where:
            message = f"the name {quote(name)} is already used by {first[name]}"
            problems.error(at, message, "choose another name")
        if entry["emptyDir"] is not None:
            in_memory = _is_in_memory(entry["emptyDir"]["medium"] or "", problems, where)
            size = _read_size(entry["emptyDir"]["sizeLimit"], problems, where)
            if name and in_memory:
                volumes.append(MemoryVolume(name=name, size_bytes=size, where=where))
    return tuple(volumes)


def _is_in_memory(medium: str, problems: Problems, path: str) -> bool:
    """Return whether a medium is a file system in memory; an unknown one is an error.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, SetUpAt, "unknown storage medium".
    """
    at = f"{path}.emptyDir.medium"
    if medium.partition("-")[0] == _HUGEPAGES:
        message = "huge page volumes are not supported; the volume is ignored"
        problems.warn(at, message, "mount a hugetlbfs yourself")
    elif medium not in ("", _MEMORY):
        right = nearest(medium, (_MEMORY, _HUGEPAGES))
        hint = f"write {right}" if right else "write Memory, or leave it out for a disk"
        problems.error(at, f"unknown medium {quote(medium)}", hint)
    return medium == _MEMORY


def _read_size(limit: Amount | None, problems: Problems, path: str) -> int | None:
    """Return the size in whole bytes, rounded up."""
    if limit is None or limit.milli is None:
        return None
    if limit.milli % 1000:
        at, text = f"{path}.emptyDir.sizeLimit", str(limit.stated)
        message = f"{quote(text)} is not a whole number of bytes"
        if text.endswith("m"):
            problems.error(at, message, f"write {text[:-1]}Mi for mebibytes")
            return None
        problems.warn(at, message)
    return -(-limit.milli // 1000)


def read_pod_level(value: object, problems: Problems, path: str) -> Resources:
    """Read the pod level as an object of its own, with the fields of `spec.resources`."""
    reading = read(RESOURCE_REQUIREMENTS, value, path)
    problems.add("", *reading.problems)
    check_fields(value, RESOURCE_REQUIREMENTS, path, problems)
    return _read_resources(reading.fields, problems, path, _OF_POD)


def read_annotations(metadata: object, pod: Pod, problems: Problems, path: str) -> Pod:
    """Return the pod with what the annotations of its metadata state.

    Resources of the spec have precedence over those of an annotation.

    Args:
        metadata: as the manifest has it at `path`.
        pod: as its spec states it.
        problems: of the object; receives those of the annotations.
        path: of the metadata.
    """
    stated = metadata.get("annotations") if isinstance(metadata, dict) else None
    at = extend_path(path, "annotations")
    if stated is not None and not isinstance(stated, dict):
        problems.error(at, f"must be a mapping, not {describe(stated)}")
    if not isinstance(stated, dict):
        return pod
    pod = _with_resources(stated, pod, problems, at)
    found = _read_all(stated, {each.name for each in pod.containers}, problems, at)
    if not found:
        return pod
    containers = tuple(
        replace(each, properties=found[each.name]) if each.name in found else each
        for each in pod.containers
    )
    return replace(pod, containers=containers, properties=found.get("", {}))


def _with_resources(stated: Mapping[object, object], pod: Pod, problems: Problems, at: str) -> Pod:
    """Return the pod with the resources of the pod level that an annotation states."""
    key = f"{PREFIX}{RESOURCES}"
    if key not in stated:
        return pod
    where = extend_path(at, key)
    if pod.resources:
        hint = "leave out one of the two"
        problems.warn(where, "spec.resources is stated as well, and is used instead", hint)
        return pod
    try:
        value = _read_json(read_text(stated[key]))
    except InputError as error:
        problems.add(where, *error.problems)
        return pod
    resources = read_pod_level(value, problems, where)
    return replace(pod, resources=resources, has_empty_level=False)


def _read_json(text: str) -> object:
    """Return the only value of a text.

    Raises:
        InputError: it is not JSON.
    """
    hint = """write {"limits": {"cpu": "1", "memory": "64Mi"}}, for example"""
    try:
        found = list(read_json(text, Budget()))
    except (json.JSONDecodeError, Exhausted) as error:
        raise invalid("must be JSON", hint) from error
    if len(found) != 1:
        raise invalid("must be one object of JSON", hint)
    if found[0].problems:
        raise InputError(found[0].problems)
    return found[0].value


def _read_all(
    stated: Mapping[object, object], containers: set[str], problems: Problems, at: str
) -> dict[str, dict[str, int | str]]:
    """Return the stated properties by container; those of the pod are at the empty name."""
    found: dict[str, dict[str, int | str]] = {}
    unknown = 0
    for key, value in stated.items():
        if not isinstance(key, str) or not key.startswith(PREFIX):
            continue
        name, dot, container = key.removeprefix(PREFIX).partition(".")
        if name == RESOURCES and not dot:
            continue
        row, where = ANNOTATIONS.get(name), extend_path(at, key)
        if row is None:
            unknown += 1
            names = dict.fromkeys((*ANNOTATIONS, RESOURCES))
            right = nearest(name, names) if unknown <= UNKNOWN_FIELDS_MAX else None
            hint = f"write {PREFIX}{right}" if right else f"podslice has {', '.join(names)}"
            problems.unknown(where, f"unknown annotation {quote(key)}", hint)
        elif dot and container not in containers:
            problems.error(where, f"the pod has no container {quote(container)}")
        elif dot and row.is_of_pod_only:
            problems.error(where, f"{name} is for the pod as a whole", f"write {PREFIX}{name}")
        else:
            try:
                found.setdefault(container, {})[row.name] = row.read(read_text(value))
            except InputError as error:
                problems.add(where, *error.problems)
    return found
