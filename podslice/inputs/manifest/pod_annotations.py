"""Annotations of podslice's own → properties that the pod and its containers state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from podslice.errors import InputError, invalid
from podslice.inputs.fields import nearest
from podslice.inputs.limits import UNKNOWN_FIELDS_MAX
from podslice.inputs.manifest.podspec import Template
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.options.values import read_period
from podslice.inputs.readers import read_amount, read_text
from podslice.inputs.scalars import describe, extend_path, quote
from podslice.model.annotations import ANNOTATIONS, PREFIX, Annotation, AnnotationKind
from podslice.model.quantity import INT64_MAX
from podslice.model.unit import INFINITY

_COUNT = re.compile("[0-9]{1,9}", re.ASCII)


def read_annotations(
    metadata: object, template: Template, problems: Problems, path: str
) -> Template:
    """Return the template with the properties that the annotations of its metadata state.

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
    found = _read_all(stated, {each.name for each in template.containers}, problems, at)
    if not found:
        return template
    containers = tuple(
        replace(each, properties=found[each.name]) if each.name in found else each
        for each in template.containers
    )
    return replace(template, containers=containers, properties=found.get("", {}))


def _read_all(
    stated: Mapping[object, object], containers: set[str], problems: Problems, at: str
) -> dict[str, dict[str, int]]:
    """Return the stated properties by container; those of the pod are at the empty name."""
    found: dict[str, dict[str, int]] = {}
    unknown = 0
    for key, value in stated.items():
        if not isinstance(key, str) or not key.startswith(PREFIX):
            continue
        name, dot, container = key.removeprefix(PREFIX).partition(".")
        row, where = ANNOTATIONS.get(name), extend_path(at, key)
        if row is None:
            unknown += 1
            right = nearest(name, ANNOTATIONS) if unknown <= UNKNOWN_FIELDS_MAX else None
            hint = f"write {PREFIX}{right}" if right else f"podslice has {', '.join(ANNOTATIONS)}"
            problems.error(where, f"unknown annotation {quote(key)}", hint)
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


def _read(row: Annotation, value: object) -> int:
    """Return the value of the property.

    Raises:
        InputError: it is not valid.
    """
    text = read_text(value)
    number = _READERS[row.kind](text)
    if number < row.minimum:
        raise invalid(f"{quote(text)} is too small", f"the least value is {row.minimum}")
    return number


def _read_bytes(text: str) -> int:
    if text == "infinity":
        return INFINITY
    milli = read_amount(text)
    if milli % 1000 or milli // 1000 > INT64_MAX:
        raise invalid(f"{quote(text)} is not a number of bytes", "write 64Mi, for example")
    return milli // 1000


def _read_count(text: str) -> int:
    if text == "infinity":
        return INFINITY
    if not _COUNT.fullmatch(text):
        raise invalid(f"{quote(text)} is not a whole number", "write 512, for example")
    return int(text)


_READERS: Mapping[AnnotationKind, Callable[[str], int]] = {
    AnnotationKind.PERIOD: read_period,
    AnnotationKind.BYTES: _read_bytes,
    AnnotationKind.COUNT: _read_count,
}
