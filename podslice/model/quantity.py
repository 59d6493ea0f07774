"""Kubernetes' quantities: `500m`, `1.5Gi`, `2e3`. Exact integers, no floats.

Source: Kubernetes, staging/src/k8s.io/apimachinery/pkg/api/resource/quantity.go and suffix.go.
Different on purpose: a value beyond 64 bits is an error here and silently capped (binary suffixes)
or kept (decimal) there; a number that is probably a typing error (`.`, `+`)
is an error here and 0 there.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from podslice.errors import InputError, invalid, quote

INT64_MAX = 2**63 - 1
TEXT_MAX = 64
"""Characters of a quantity. A longer text is not a quantity."""

_REMEMBERED = 4096  # thousands of pods have the same few amounts
# `size=65536k`, among other options
_TMPFS_SIZE = re.compile(r"(?:^|,)size=([0-9]+)([kmg]?)(?:,|$)", re.IGNORECASE)
_TMPFS_SUFFIX = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}

_NANO = 10**9
_EXPONENT_MAX = 40  # 1e40 is beyond 64 bits with any mantissa

# `1.5Gi`, `-3`, `100m`, `12e6`, `1.G`
_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([A-Za-z]*)([+-]?[0-9]*)", re.ASCII)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = {power // 10: suffix for suffix, power in _BINARY.items()}


class Format(StrEnum):
    """The family of suffixes in which a quantity was written and is printed."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class Quantity(NamedTuple):
    """An exact amount, in billionths."""

    nano: int
    format: Format = Format.DECIMAL

    @property
    def milli(self) -> int:
        """Return the amount in thousandths, rounded away from zero."""
        return _divide_up(self.nano, 10**6)

    def __str__(self) -> str:
        """Return the canonical form: no fraction, the largest suffix that is exact."""
        return format_quantity(self)


@lru_cache(maxsize=_REMEMBERED)
def parse_quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        InputError: it is not a quantity, or does not fit 64 bits; the hint has what was probably
            meant.

    Source: Kubernetes, quantity.go, ParseQuantity; digits beyond a billionth are rounded up.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= TEXT_MAX else None
    if match is None:
        raise _not_a_quantity(text)
    sign, whole, _, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    if not whole and not fraction:
        raise _not_a_quantity(text)
    power, format_ = _interpret(suffix, exponent, text)
    mantissa = int(whole + fraction or "0")
    nano = _scale(mantissa, format_, power, len(fraction)) if mantissa else 0
    if nano > INT64_MAX * _NANO:
        raise invalid(f"{text!r} does not fit 64 bits", f"the largest amount is {INT64_MAX}")
    return Quantity(-nano if sign == "-" else nano, format_)


@lru_cache(maxsize=_REMEMBERED)
def read_milli(text: str) -> int:
    """Return a quantity in thousandths.

    Raises:
        InputError: the text is not a quantity, or is negative.
    """
    if len(text) > TEXT_MAX:  # the hint would be as long
        message = f"{quote(text)} is not a quantity"
        raise invalid(message, f"a quantity has at most {TEXT_MAX} characters")
    milli = parse_quantity(text).milli
    if milli < 0:
        raise invalid(f"{quote(text)} is negative")
    return milli


def format_quantity(quantity: Quantity) -> str:
    """Return a quantity in Kubernetes' canonical form: `1.5Gi` as `1536Mi`, `1000m` as `1`.

    Source: Kubernetes, quantity.go, CanonicalizeBytes.
    """
    nano = quantity.nano
    if nano == 0:
        return "0"
    # Fractions, and amounts below 1024, have decimal suffixes in Kubernetes, too.
    binary = quantity.format is Format.BINARY and abs(nano) >= 1024 * _NANO and nano % _NANO == 0
    if binary:
        number, steps = _strip(nano // _NANO, 1024)
        return f"{number}{_BINARY_SUFFIX[steps]}" if steps else str(number)
    number, steps = _strip(nano, 1000)
    power = 3 * steps - 9
    if quantity.format is Format.EXPONENT:
        return f"{number}e{power}" if power else str(number)
    while power > 18:  # beyond E there is no suffix
        number, power = number * 1000, power - 3
    return f"{number}{_DECIMAL_SUFFIX[power]}"


@lru_cache(maxsize=_REMEMBERED)
def format_milli(milli: int) -> str:
    """Return an amount in thousandths as a quantity: 1500 → `1500m`, 2000 → `2`."""
    return format_quantity(Quantity(milli * 10**6))


def format_bytes(number: int) -> str:
    """Return bytes with the largest exact binary suffix: 3221225472 → `3Gi`, 128000000 → `125000Ki`.

    For numbers next to systemd's, in which `128M` is 128 × 2^20.
    """
    return format_quantity(Quantity(number * _NANO, Format.BINARY))


def human_bytes(number: int) -> str:
    """Return bytes for people with three digits, as `23.5 GiB`; not suitable for limits."""
    size, suffix = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        # As it would be printed: 1023.5 KiB is 1 MiB.
        if round(size) < 1024:
            break
        size, suffix = size / 1024, larger
    return (
        f"{size:.0f} {suffix}" if size >= 99.95 else f"{size:.1f}".removesuffix(".0") + f" {suffix}"
    )


def format_age(seconds: int) -> str:
    """Return a duration for people in the largest unit of which there are two: `3 h`, `90 s`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def tmpfs_size_bytes(options: str) -> int | None:
    """Return the size among the options of a tmpfs, as requested or as the kernel shows it."""
    found = _TMPFS_SIZE.search(options)
    return int(found[1]) * _TMPFS_SUFFIX[found[2].lower()] if found else None


@lru_cache(maxsize=_REMEMBERED)
def format_shortest(milli: int) -> str:
    """Return thousandths as the shortest exact quantity, binary or decimal: `3Gi`, `128M`, `500m`."""
    nano = milli * 10**6
    return min(map(format_quantity, (Quantity(nano, Format.BINARY), Quantity(nano))), key=len)


def _scale(mantissa: int, format_: Format, power: int, decimals: int) -> int:
    """Return billionths of `mantissa / 10^decimals * base^power`, rounded up; base is 2 or 10."""
    if format_ is Format.BINARY:
        return _divide_up(mantissa * 2**power * _NANO, 10**decimals)
    shift = power - decimals + 9
    return mantissa * 10**shift if shift >= 0 else _divide_up(mantissa, 10**-shift)


def _interpret(suffix: str, exponent: str, text: str) -> tuple[int, Format]:
    """Return the power and the format of a suffix.

    Source: Kubernetes, suffix.go, suffixHandler.interpret.
    """
    if not exponent:
        if suffix in _DECIMAL:
            return _DECIMAL[suffix], Format.DECIMAL
        if suffix in _BINARY:
            return _BINARY[suffix], Format.BINARY
    elif suffix in ("e", "E") and exponent not in ("+", "-"):
        power = int(exponent)
        if power > _EXPONENT_MAX:
            raise invalid(f"{text!r} does not fit 64 bits", f"the largest amount is {INT64_MAX}")
        # With any mantissa of TEXT_MAX digits a smaller power also gives less than a billionth,
        # which is rounded up to one; the powers of ten that are computed stay small.
        return max(power, -_EXPONENT_MAX - TEXT_MAX), Format.EXPONENT
    raise _not_a_quantity(text)


def _strip(number: int, factor: int) -> tuple[int, int]:
    """Return the number without its factors, and their count."""
    steps = 0
    while number % factor == 0:
        number, steps = number // factor, steps + 1
    return number, steps


def _divide_up(number: int, divisor: int) -> int:
    """Divide, rounding away from zero."""
    return -(-number // divisor) if number >= 0 else number // divisor


_WRONG_SUFFIX = {
    "k": "k", "b": "", "byte": "", "bytes": "", "kb": "k", "kib": "Ki", "ki": "Ki", "mb": "M", "mib": "Mi",
    "mi": "Mi", "gb": "G", "gib": "Gi", "gi": "Gi", "g": "G", "tb": "T", "tib": "Ti", "ti": "Ti",
    "t": "T", "pi": "Pi", "pib": "Pi", "pb": "P", "p": "P", "ei": "Ei", "eib": "Ei", "eb": "E",
    "gii": "Gi", "mii": "Mi", "kii": "Ki", "cpu": "", "cpus": "", "core": "", "cores": "",
}  # fmt: skip


def _not_a_quantity(text: str) -> InputError:
    """Return the error for a text that is not a quantity, with what was probably meant."""
    if not text:
        return invalid("an empty string is not a quantity", "write a number such as 500m, 2 or 1Gi")
    cut = text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"
    return invalid(f"{cut!r} is not a quantity", _suggest(text))


def _suggest(text: str) -> str:
    if text != text.strip():
        return "remove the white space around it"
    match = re.fullmatch(r"([+-]?[0-9]+(?:[.,][0-9]+)?) *([A-Za-z]*)", text, re.ASCII)
    if match is None or len(text) > TEXT_MAX:
        return "write a number with an optional suffix, such as 500m, 2 or 1Gi"
    number, suffix = match[1].replace(",", "."), match[2]
    if suffix in _DECIMAL or suffix in _BINARY:
        return f"write {number}{suffix}"
    right = _WRONG_SUFFIX.get(suffix.lower())
    if right is None:
        return "suffixes are n u m k M G T P E and Ki Mi Gi Ti Pi Ei"
    return f"write {_alternatives(number, right)}"


def _alternatives(number: str, suffix: str) -> str:
    """Return `2Gi (2^30) or 2G (10^9)` for a suffix with a binary and a decimal form."""
    if not suffix:
        return number
    letter = suffix[0]
    binary = f"{letter.upper()}i"
    decimal = "k" if letter == "K" else letter
    both = [
        f"{number}{binary} (2^{_BINARY[binary]})",
        f"{number}{decimal} (10^{_DECIMAL[decimal]})",
    ]
    return " or ".join(both if suffix.endswith("i") else reversed(both))
