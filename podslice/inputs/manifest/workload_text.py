"""Texts of a workload that a unit cannot hold.

Arguments, values of variables, headers and paths of requests may have any character but zero: they are written with
escapes. All other texts are written as they are, where an end of line begins another directive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import BaseModel

from podslice.inputs.manifest.workload_fields import Refusals

_FREE = re.compile(
    r"\.(?:command|args)\[\d+]$|\.env\[\d+]\.value$|\.httpHeaders\[\d+]\.value$|\.httpGet\.path$"
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_AT_EDGE = re.compile(r"^[\s\"']|[\s\"'\\]$")


def check_texts(fields: BaseModel, refusals: Refusals, path: str) -> None:
    """Report each text of a model, and of those in it, that a unit cannot hold."""
    for place, text in _texts(fields, path):
        is_free = _FREE.search(place)
        if "\0" in text or (not is_free and _CONTROL.search(text)):
            refusals.error(place, "has a control character", "remove it")
        elif not is_free and _AT_EDGE.search(text):
            message = "begins or ends with a space, a quotation mark or a backslash"
            refusals.error(place, message, "remove it")


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            yield from _texts(getattr(value, name), f"{path}.{info.alias or name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _texts(each, f"{path}[{index}]")
