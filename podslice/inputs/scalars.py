"""Scalars of YAML and JSON, and their form in messages.

A scalar keeps its source text, so that `0.1` is exactly a tenth: a string is a `str`, any other
scalar is an instance of a subclass below, or None for null. A scalar that YAML 1.1 and 1.2 read
differently (`010`, `1_000`, `0x1F`, `.inf`) is `Odd`: readers of numbers reject it instead of
choosing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from podslice.errors import SHOWN_MAX, invalid, quote
from podslice.model.quantity import parse_quantity, read_milli


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


_INT32_MAX = 2**31 - 1
_MODE_MAX = 0o777


def read_amount(value: object) -> int:
    """Return a quantity in thousandths.

    Raises:
        InputError: the value is not a quantity, or is negative.
    """
    if isinstance(value, Odd):
        message = f"{quote(value)} is read differently by YAML 1.1 and YAML 1.2"
        raise invalid(message, _suggest_decimal(value))
    if isinstance(value, str) and not isinstance(value, Boolean):
        return read_milli(str(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**64:
        return read_milli(repr(value))
    raise invalid(f"must be a quantity, not {describe(value)}", "write 500m, 2 or 1Gi, for example")


def read_exact(value: object) -> int | Fraction:
    """Return a quantity in thousandths, as a fraction where it is not a whole number of them.

    Raises:
        InputError: the value is not a quantity, or is negative.
    """
    milli = read_amount(value)
    return Fraction(parse_quantity(str(value)).nano, 10**6) if is_finer(value) else milli


@lru_cache(maxsize=4096)
def is_finer(value: object) -> bool:
    """Return whether a quantity is not a whole number of thousandths, so that it is rounded up."""
    return isinstance(value, str) and parse_quantity(str(value)).nano % 10**6 != 0


class Amount(NamedTuple):
    """A quantity of a manifest."""

    milli: int | None
    """Thousandths; None if what is stated is invalid."""
    stated: object


def read_stated_amount(value: object) -> Amount:
    """Return a quantity with what is stated.

    Raises:
        InputError: as `read_amount`.
    """
    return Amount(read_amount(value), value)


def read_text(value: object) -> str:
    """Return a string; an unquoted number or boolean is not a string.

    Raises:
        InputError: the value is of another type.
    """
    if isinstance(value, Number | Boolean | Odd):
        message = f"must be a string, not {describe(value)}"
        raise invalid(message, f"write {quote(value)}, with quotes")
    if isinstance(value, str):
        return value
    raise invalid(f"must be a string, not {describe(value)}")


def read_int(value: object) -> int:
    """Return a 32-bit integer.

    Raises:
        InputError: the value is not an integer, or needs more bits.
    """
    digits = isinstance(value, Number) and value.lstrip("+-").isdigit()
    if digits or (isinstance(value, int) and not isinstance(value, bool)):
        # 11 characters are a sign and ten digits: a longer number does not fit, and int() may
        # refuse it.
        number = int(str(value)) if len(str(value)) <= 11 else _INT32_MAX + 1
        if abs(number) <= _INT32_MAX:
            return number
        raise invalid(f"{quote(str(value))} does not fit 32 bits")
    raise invalid(f"must be an integer, not {describe(value)}")


def read_flag(value: object) -> bool:
    """Return a boolean.

    Raises:
        InputError: the value is of another type, or one that only YAML 1.1 reads as a boolean.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, Boolean) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    hint = "write true or false, without quotes" if isinstance(value, str) else ""
    raise invalid(f"must be a boolean, not {describe(value)}", hint)


def read_mode(value: object) -> int:
    """Return the permissions of a file; `0400` is octal, as Kubernetes reads it.

    Raises:
        InputError: the value is not an integer from 0 to 0777.
    """
    is_octal = isinstance(value, Odd) and re.fullmatch("0o?[0-7]{1,6}", value)
    mode = int(str(value).replace("o", ""), 8) if is_octal else read_int(value)
    if 0 <= mode <= _MODE_MAX:
        return mode
    raise invalid(f"{quote(str(value))} is not the mode of a file", "write 0644, for example")


def read_port(value: object) -> int | str:
    """Return the number of a port, or the name of one.

    Raises:
        InputError: the value is neither.
    """
    is_name = isinstance(value, str) and not isinstance(value, Number | Boolean | Odd)
    return read_text(value) if is_name else read_int(value)


def read_seconds(value: object) -> int:
    """Return whole seconds.

    Raises:
        InputError: the value is not an integer, or is negative.
    """
    number = read_int(value)
    if number < 0:
        raise invalid(f"{quote(str(value))} is negative")
    return number


def _suggest_decimal(text: str) -> str:
    """Return a hint with the decimal number that `010`, `0x1F` or `1_000` probably means."""
    digits = text.replace("_", "").lstrip("+-")
    if not digits[:1].isdigit() or len(digits) > 20:
        return "write a decimal number"
    if digits[1:2] in ("x", "X", "o", "b"):
        return f"write {int(digits, 0)}"
    octal = f", or {int(digits, 8)} if it is octal" if re.fullmatch("0[0-7]+", digits) else ""
    return f"write {digits.lstrip('0') or '0'}{octal}"


_NEAR = 0.75
"""Similarity from which a name is taken for a misspelled one; that of `gpu` and `cpu` is 0.67."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name is probably meant to be."""
    # The time of a comparison grows with the square of the length.
    if len(name) > 40:
        return None

    lower = {other.lower(): other for other in sorted(known)}
    found = get_close_matches(name.lower(), lower, n=1, cutoff=_NEAR)
    return lower[found[0]] if found else None
