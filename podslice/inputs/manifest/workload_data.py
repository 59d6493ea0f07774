"""The ConfigMaps and Secrets in the files of pods: their keys, as variables and as files."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.errors import Problem, quote
from podslice.inputs.manifest.kinds import DATA_KINDS
from podslice.inputs.manifest.schema import read_model
from podslice.inputs.manifest.workload_models import DataFields
from podslice.inputs.scalars import extend_path

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


class DataObject(NamedTuple):
    """One ConfigMap or Secret."""

    where: str
    values: Mapping[str, bytes]
    is_secret: bool


DataObjects = Mapping[tuple[str, str, str], DataObject]
"""Kind, namespace and name → the object."""


def read_objects(
    documents: Mapping[str, object], namespace: str | None
) -> tuple[DataObjects, list[Problem]]:
    """Return the ConfigMaps and Secrets of documents, and the problems in them."""
    objects: dict[tuple[str, str, str], DataObject] = {}
    problems: list[Problem] = []
    for where, document in documents.items():
        for path, value in _objects_in(document, ""):
            metadata = value.get("metadata")
            stated = metadata if isinstance(metadata, Mapping) else {}
            place = f"{where}: {path}" if path else where
            values, found = _read_values(value, path)
            problems += [each.within(where) for each in found]
            key = (
                str(value["kind"]),
                str(stated.get("namespace") or namespace or "default"),
                str(stated.get("name") or ""),
            )
            if key in objects:
                message = f"the {key[0]} {quote(key[2])} is already in {objects[key].where}"
                problems.append(Problem(where=place, message=message, hint="remove one of the two"))
            objects[key] = DataObject(where=place, values=values, is_secret=key[0] == "Secret")
    return objects, problems


def _objects_in(value: object, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    if not isinstance(value, Mapping):
        return
    items = value.get("items")
    if value.get("kind") in DATA_KINDS:
        yield path, value
    elif str(value.get("kind")).endswith("List") and isinstance(items, list):
        kind = str(value["kind"]).removesuffix("List")
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                named = {"kind": kind, **item} if kind in DATA_KINDS else item
                yield from _objects_in(named, extend_path(path, "items", index))


def _read_values(
    value: Mapping[str, object], path: str
) -> tuple[dict[str, bytes], Iterable[Problem]]:
    """Return the values by key; `stringData` takes precedence, as in the API server."""
    plain = {key: each for key, each in value.items() if key not in ("kind", "metadata")}
    fields, problems = read_model(DataFields, plain, path)
    is_secret = value["kind"] == "Secret"
    values: dict[str, bytes] = {}
    for name, entries, encoded in (
        ("data", fields.data, is_secret),
        ("binaryData", fields.binary_data, True),
        ("stringData", fields.string_data, False),
    ):
        for key, text in (entries or {}).items():
            where = extend_path(path, name, key)
            if not _KEY.fullmatch(key) or key in (".", ".."):
                message = f"{quote(key)} is not a valid key"
                problems.append(Problem(where=where, message=message))
                continue
            try:
                content = text or ""
                values[key] = (
                    base64.b64decode(re.sub(r"\s", "", content), validate=True)
                    if encoded
                    else content.encode()
                )
            except (binascii.Error, ValueError):
                hint = "write plain text under stringData" if is_secret else ""
                problems.append(Problem(where=where, message="is not valid base64", hint=hint))
    return values, problems
