"""Annotations of podslice's own → what the pod and its containers state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from podslice.errors import InputError, invalid, quote
from podslice.inputs.budget import Budget, Exhausted
from podslice.inputs.limits import UNKNOWN_FIELDS_MAX
from podslice.inputs.manifest.json_builder import read_json
from podslice.inputs.manifest.podspec import Template, read_pod_level
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.readers import nearest, read_text
from podslice.inputs.scalars import describe, extend_path
from podslice.model.properties import ANNOTATIONS, PREFIX, RESOURCES


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
