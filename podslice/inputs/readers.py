"""Readers of single values, which say what is wrong with one and what would be right."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from podslice.errors import InputError
from podslice.inputs.scalars import Boolean, Number, Odd, describe, shown
from podslice.model.quantity import TEXT_MAX, parse_quantity

_INT32_MAX = 2**31 - 1


class Wrong(ValueError):
    """A value that can't be read, and what would be right."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)


def read_amount(value: object) -> int:
    """A quantity in thousandths.

    Raises:
        Wrong: the value is none, or below zero.
    """
    if isinstance(value, Odd):
        raise Wrong(f"{shown(value)} is read differently by different programs", _decimal(value))
    if isinstance(value, str) and not isinstance(value, Boolean):
        return _milli(str(value))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**64:
        return _milli(repr(value))
    raise Wrong(f"has to be a quantity, is {describe(value)}", "write 500m, 2 or 1Gi, for example")


def read_exact(value: object) -> int | Fraction:
    """Return a quantity in thousandths, exact where it is finer than those.

    Raises:
        Wrong: the value is none, or below zero.
    """
    milli = read_amount(value)
    return Fraction(parse_quantity(str(value)).nano, 10**6) if is_finer(value) else milli


@lru_cache(maxsize=4096)
def is_finer(value: object) -> bool:
    """Whether a quantity is finer than a thousandth, so that it is rounded up."""
    return isinstance(value, str) and parse_quantity(str(value)).nano % 10**6 != 0


def read_text(value: object) -> str:
    """A text, which a number or a boolean without quotes is not.

    Raises:
        Wrong: the value is something else.
    """
    if isinstance(value, Number | Boolean | Odd):
        raise Wrong(f"has to be a text, is {describe(value)}", f"write {shown(value)}, with quotes")
    if isinstance(value, str):
        return value
    raise Wrong(f"has to be a text, is {describe(value)}")


def read_int(value: object) -> int:
    """An integer of 32 bits.

    Raises:
        Wrong: the value is something else.
    """
    digits = isinstance(value, Number) and value.lstrip("+-").isdigit()
    if digits or (isinstance(value, int) and not isinstance(value, bool)):
        number = int(str(value)) if len(str(value)) <= 11 else _INT32_MAX + 1
        if abs(number) <= _INT32_MAX:
            return number
        raise Wrong(f"{shown(str(value))} does not fit 32 bits")
    raise Wrong(f"has to be a whole number, is {describe(value)}")


def read_seconds(value: object) -> int:
    """Whole seconds, which a negative number is not.

    Raises:
        Wrong: the value is something else.
    """
    number = read_int(value)
    if number < 0:
        raise Wrong(f"{shown(str(value))} is below zero")
    return number


@lru_cache(maxsize=4096)
def _milli(text: str) -> int:
    if len(text) > TEXT_MAX:  # the hint would be as long
        raise Wrong(f"{shown(text)} is not a quantity", f"it has at most {TEXT_MAX} characters")
    try:
        milli = parse_quantity(text).milli
    except InputError as error:
        raise Wrong(error.problems[0].message, error.problems[0].hint) from error
    if milli < 0:
        raise Wrong(f"{shown(text)} is below zero")
    return milli


def _decimal(text: str) -> str:
    """The plain number that is probably meant by `010`, `0x1F` or `1_000`."""
    digits = text.replace("_", "").lstrip("+-")
    if not digits[:1].isdigit() or len(digits) > 20:
        return "write a plain number"
    if digits[1:2] in ("x", "X", "o", "b"):
        return f"write {int(digits, 0)}"
    octal = f", or {int(digits, 8)} where it is octal" if re.fullmatch("0[0-7]+", digits) else ""
    return f"write {digits.lstrip('0') or '0'}{octal}"
