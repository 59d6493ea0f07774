"""Annotations of podslice's own → what the pod and its containers state."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from podslice.errors import InputError, invalid, quote
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.fields import nearest
from podslice.inputs.limits import UNKNOWN_FIELDS_MAX
from podslice.inputs.manifest.json_builder import read_json
from podslice.inputs.manifest.podspec import Template, read_pod_level
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.options.values import read_period
from podslice.inputs.readers import read_amount, read_text
from podslice.inputs.scalars import describe, extend_path
from podslice.model.annotations import (
    ANNOTATION_NAMES,
    ANNOTATIONS,
    PREFIX,
    RESOURCES,
    Annotation,
    AnnotationKind,
)
from podslice.model.cpu_list import format_cpus, parse_cpus
from podslice.model.device_limits import DEVICE, SEPARATOR, format_device_limits
from podslice.model.quantity import INT64_MAX
from podslice.model.unit import INFINITY

_NAMES = dict.fromkeys(ANNOTATION_NAMES)
_COUNT = re.compile("[0-9]{1,9}", re.ASCII)
_WEIGHT = "write 200, for example"
_SCORE = re.compile("-?[0-9]{1,4}", re.ASCII)
_SCORE_MAX = 1000
"""Source: proc_pid_oom_score_adj(5)."""
_WEIGHT_MAX = 10_000
"""Source: systemd, src/basic/cgroup-util.h, CGROUP_WEIGHT_MAX."""
_PAGE_BYTES = 4096
"""The smallest page of memory of Linux; the kernel rounds less down to none."""
_DEVICES_MAX = 64
_CPUS = "write 0-3,8, for example"


def read_annotations(
    metadata: object, template: Template, problems: Problems, path: str
) -> Template:
    """Return the template with what the annotations of its metadata state.

    Resources of the spec have precedence over those of an annotation.

    Args:
        metadata: as the manifest has it at `path`.
        template: the pod's spec.
        problems: of the object; receives those of the annotations.
        path: of the metadata.
    """
    stated = metadata.get("annotations") if isinstance(metadata, dict) else None
    at = extend_path(path, "annotations")
    if stated is not None and not isinstance(stated, dict):
        problems.error(at, f"must be a mapping, not {describe(stated)}")
    if not isinstance(stated, dict):
        return template
    template = _with_resources(stated, template, problems, at)
    found = _read_all(stated, {each.name for each in template.containers}, problems, at)
    if not found:
        return template
    containers = tuple(
        replace(each, properties=found[each.name]) if each.name in found else each
        for each in template.containers
    )
    return replace(template, containers=containers, properties=found.get("", {}))


def _with_resources(
    stated: Mapping[object, object], template: Template, problems: Problems, at: str
) -> Template:
    """Return the template with the resources of the pod level that an annotation states."""
    key = f"{PREFIX}{RESOURCES}"
    if key not in stated:
        return template
    where = extend_path(at, key)
    if template.resources:
        hint = "leave out one of the two"
        problems.warn(where, "spec.resources is stated as well, and is used instead", hint)
        return template
    try:
        value = _read_json(read_text(stated[key]))
    except InputError as error:
        problems.add(where, *error.problems)
        return template
    resources = read_pod_level(value, problems, where)
    return replace(template, resources=resources, has_empty_level=False)


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
            right = nearest(name, _NAMES) if unknown <= UNKNOWN_FIELDS_MAX else None
            hint = f"write {PREFIX}{right}" if right else f"podslice has {', '.join(_NAMES)}"
            problems.unknown(where, f"unknown annotation {quote(key)}", hint)
        elif dot and container not in containers:
            problems.error(where, f"the pod has no container {quote(container)}")
        elif dot and row.is_of_pod_only:
            problems.error(where, f"{name} is for the pod as a whole", f"write {PREFIX}{name}")
        else:
            try:
                found.setdefault(container, {})[row.property] = _read(row, value)
            except InputError as error:
                problems.add(where, *error.problems)
    return found


def _read(row: Annotation, value: object) -> int | str:
    """Return the value of the property.

    Raises:
        InputError: it is not valid.
    """
    text = read_text(value)
    found = _READERS[row.kind](text)
    if isinstance(found, int) and found < row.minimum:
        raise invalid(f"{quote(text)} is too small", f"the least value is {row.minimum}")
    return found


def _read_bytes(text: str) -> int:
    if text == "infinity":
        return INFINITY
    milli = read_amount(text)
    if milli % 1000 or milli // 1000 > INT64_MAX:
        raise invalid(f"{quote(text)} is not a number of bytes", "write 64Mi, for example")
    return milli // 1000


def _read_memory(text: str) -> int:
    found = _read_bytes(text)
    if 0 < found < _PAGE_BYTES:
        raise invalid(
            f"{quote(text)} is less than a page of memory", f"write {found}Mi, for example"
        )
    return found


def _read_count(text: str) -> int:
    if text == "infinity":
        return INFINITY
    if not _COUNT.fullmatch(text):
        raise invalid(f"{quote(text)} is not a whole number", "write 512, for example")
    return int(text)


def _read_weight(text: str) -> int:
    if not _COUNT.fullmatch(text) or int(text) > _WEIGHT_MAX:
        raise invalid(f"{quote(text)} is not a weight from 1 to {_WEIGHT_MAX}", _WEIGHT)
    return int(text)


def _read_score(text: str) -> int:
    if not _SCORE.fullmatch(text) or abs(int(text)) > _SCORE_MAX:
        message = f"{quote(text)} is not a score from -{_SCORE_MAX} to {_SCORE_MAX}"
        raise invalid(message, "write -900, for example")
    return int(text)


def _read_devices(text: str, *, read: Callable[[str], int], example: str) -> str:
    """Return limits of devices in their shortest form.

    Raises:
        InputError: a part is not the path of a device and its limit.
    """
    found: dict[str, int] = {}
    hint = f"write /dev/sda {example}; /srv {example}, for example"
    for part in text.split(SEPARATOR):
        path, _, limit = part.strip().partition(" ")
        if not DEVICE.fullmatch(path) or not limit or len(found) == _DEVICES_MAX:
            raise invalid(f"{quote(part.strip())} is not a path and its limit", hint)
        number = read(limit.strip())
        if not 0 < number < INFINITY:
            raise invalid(f"{quote(limit)} is out of range", "the least value is 1")
        if path in found:
            raise invalid(f"duplicate path {quote(path)}", "remove one")
        found[path] = number
    return format_device_limits(found.items())


def _read_cpus(text: str) -> str:
    try:
        cpus = parse_cpus(text)
    except ValueError as error:
        raise invalid(f"{quote(text)} is not a list of CPUs", _CPUS) from error
    if not cpus:
        raise invalid(f"{quote(text)} has no CPU", _CPUS)
    return format_cpus(cpus)


_READERS: Mapping[AnnotationKind, Callable[[str], int | str]] = {
    AnnotationKind.PERIOD: read_period,
    AnnotationKind.BYTES: _read_memory,
    AnnotationKind.COUNT: _read_count,
    AnnotationKind.WEIGHT: _read_weight,
    AnnotationKind.SCORE: _read_score,
    AnnotationKind.BANDWIDTHS: partial(_read_devices, read=_read_bytes, example="10Mi"),
    AnnotationKind.RATES: partial(_read_devices, read=_read_count, example="500"),
    AnnotationKind.CPUS: _read_cpus,
}
