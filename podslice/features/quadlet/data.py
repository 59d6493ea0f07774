"""ConfigMaps and Secrets → their values, which containers use as variables and files."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from podslice.errors import Problem, quote
from podslice.inputs.manifest.fields import SERVICE
from podslice.inputs.manifest.load import StatedData
from podslice.inputs.manifest.reading import Problems
from podslice.inputs.scalars import extend_path

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class DataObject(NamedTuple):
    """One ConfigMap or Secret."""

    where: str
    values: Mapping[str, bytes]
    is_secret: bool


DataObjects = Mapping[tuple[str, str, str], DataObject]
"""Kind, namespace and name → the object."""


def read_data(
    stated: Iterable[StatedData], namespace: str | None
) -> tuple[DataObjects, list[Problem]]:
    """Return the ConfigMaps and Secrets, and the problems in them."""
    objects: dict[tuple[str, str, str], DataObject] = {}
    problems: list[Problem] = []
    for each in stated:
        if each.kind == SERVICE:
            continue
        found = Problems(each.where)
        values = _read_values(each, found)
        problems += found.found
        name = str(each.metadata.get("name") or "")
        key = (each.kind, str(each.metadata.get("namespace") or namespace or "default"), name)
        if key in objects:
            message = f"the {each.kind} {quote(name)} is already in {objects[key].where}"
            where = found.at(each.path)
            problems.append(Problem(where=where, message=message, hint="remove one of the two"))
        objects[key] = DataObject(
            where=found.at(each.path), values=values, is_secret=each.kind == "Secret"
        )
    return objects, problems


def explain_absence(kind: str, namespace: str, name: str, keys: Sequence[str]) -> tuple[str, str]:
    """Return the message for an object that no file has, and as a hint the object to be written.

    It has the keys that the pod uses, or any if the pod uses all.
    """
    message = f"there is no {kind} {quote(name)} in the files"
    names = (namespace, name, *keys)
    if not all(map(_KEY.fullmatch, names)):
        return message, "add it with another -f"
    values = ", ".join(f"{key}: VALUE" for key in dict.fromkeys(keys)) or "KEY: VALUE"
    place = "stringData" if kind == "Secret" else "data"
    written = (
        f"{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}, namespace: {namespace}}},"
        f" {place}: {{{values}}}}}"
    )
    return message, f"add it with another -f, of a file with {written}"


def _read_values(stated: StatedData, problems: Problems) -> dict[str, bytes]:
    """Return the values by key; `stringData` takes precedence, as in the API server."""
    problems.add("", *stated.data.texts, *stated.data.further)
    is_secret = stated.kind == "Secret"
    values: dict[str, bytes] = {}
    for name, is_encoded in (("data", is_secret), ("binaryData", True), ("stringData", False)):
        for key, text in (stated.data.fields.get(name) or {}).items():
            where = extend_path(stated.path, name, key)
            if not _KEY.fullmatch(key) or key in (".", ".."):
                problems.error(where, f"{quote(key)} is not a valid key")
                continue
            content = text or ""
            try:
                values[key] = (
                    base64.b64decode(re.sub(r"\s", "", content), validate=True)
                    if is_encoded
                    else content.encode()
                )
            except ValueError:
                hint = "write plain text under stringData" if is_secret else ""
                problems.error(where, "is not valid base64", hint)
    return values
