"""Scalars of YAML and JSON, and their form in messages.

A scalar keeps its source text, so that `0.1` is exactly a tenth: a string is a `str`, any other
scalar is an instance of a subclass below, or None for null. A scalar that YAML 1.1 and 1.2 read
differently (`010`, `1_000`, `0x1F`, `.inf`) is `Odd`: readers of numbers reject it instead of
choosing.
"""

from __future__ import annotations

import re

from podslice.errors import SHOWN_MAX, quote


class Number(str):
    """A number as decimal text: `2`, `0.5`, `1e3`."""

    __slots__ = ()


class Boolean(str):
    """A boolean as text: `true`, `yes`, `off`."""

    __slots__ = ()


class Odd(str):
    """A number as text that YAML 1.1 and 1.2 read differently."""

    __slots__ = ()


Scalar = str | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
# Source: YAML 1.1, https://yaml.org/type/bool.html, without the single letters, as PyYAML.
_BOOLEANS = frozenset(
    form
    for word in ("yes", "no", "true", "false", "on", "off")
    for form in (word, word.title(), word.upper())
)
# `12`, `-0.5`, `1e3`, `.5`
_NUMBER = re.compile(
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", re.ASCII
)
# `010`, `0o17`, `0x1F`, `0b11`, `1_000.5`, `-.inf`, `.NaN`
_ODD = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?"
    r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
    re.ASCII,
)
_NUMERIC_START = frozenset("+-.0123456789")

_SIMPLE_KEY = re.compile(r"[A-Za-z0-9_-]+(?:[./][A-Za-z0-9_-]+)*", re.ASCII)


def read_plain(text: str) -> Scalar:
    """Return the scalar that an unquoted, untagged text means."""
    if text in _NULLS:
        return None
    if text[0] in _NUMERIC_START:
        if _NUMBER.fullmatch(text):
            return Number(text)
        return Odd(text) if _ODD.fullmatch(text) else text
    return Boolean(text) if text in _BOOLEANS else text


def describe(value: object) -> str:
    """Return the type of a value, and a scalar itself, for "must be …, not …"."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return _describe_scalar(value)


def _describe_scalar(value: object) -> str:
    if isinstance(value, int | float) and not -(2**64) < value < 2**64:
        return "a very large number"  # str() of it may be refused
    text = quote(str(value))[1:-1]
    if isinstance(value, Boolean | bool):
        return f"the boolean {text.lower()}"
    if isinstance(value, Number | Odd | int | float):
        return f"the number {text}"
    return f"the string '{text}'"


_MAPS = ("requests", "limits", "overhead", "annotations")
_RESOURCE_MAX = 253 + 1 + 63
"""Characters of a resource name.

Source: Kubernetes, apimachinery/pkg/util/validation/validation.go, IsQualifiedName.
"""


def extend_path(path: str, *parts: str | int) -> str:
    """Return a path with further parts: `spec.containers[1].resources.limits[memory]`.

    Resource names are in brackets, as Kubernetes writes keys that users choose.
    """
    for part in parts:
        is_resource = path.rpartition(".")[2] in _MAPS
        longest = _RESOURCE_MAX if is_resource else SHOWN_MAX
        is_plain = isinstance(part, str) and len(part) <= longest and _SIMPLE_KEY.fullmatch(part)
        if isinstance(part, int) or (is_resource and is_plain):
            path = f"{path}[{part}]"
        elif is_plain:
            path = f"{path}.{part}" if path else part
        else:
            path = f"{path}[{quote(part)}]"
    return path
