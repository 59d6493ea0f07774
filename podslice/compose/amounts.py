"""Amounts as compose files state them. Exact: a manifest gets the same number."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from podslice.errors import invalid, quote
from podslice.inputs.scalars import Boolean, Odd, describe

PERIOD_USEC = 100_000
"""The period of `cpu_quota` where the service states none.

Source: docs.docker.com, "Resource constraints", --cpu-period: the default is 100 milliseconds.
"""

_TEXT_MAX = 32
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+", re.ASCII)
_BYTES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp]?)i?b?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_WHOLE = re.compile(r"[-+]?[0-9]+", re.ASCII)


def read_cpus(value: object) -> int:
    """Return a number of CPUs in thousandths, rounded up; 0 counts as not stated.

    Source: compose-spec, deploy.md, "cpus": a number of cores.

    Raises:
        InputError: it is not a number of CPUs.
    """
    text = _text_of(value)
    if text is None or not _DECIMAL.fullmatch(text):
        raise invalid(f"must be a number of CPUs, not {describe(value)}", "write 0.5, for example")
    return math.ceil(Fraction(text) * 1000)


def read_memory(value: object) -> int:
    """Return an amount of memory in thousandths of a byte; 0 counts as not stated.

    Every suffix is a power of 1024, as in docker and podman.

    Source: compose-spec, 11-extension.md, "Specifying byte values"; docker/go-units, size.go,
    RAMInBytes.

    Raises:
        InputError: it is not an amount of memory.
    """
    text = _text_of(value)
    match = None if text is None else _BYTES.fullmatch(text)
    if match is None:
        raise invalid(f"must be a byte value, not {describe(value)}", "write 512m, for example")
    return math.floor(Fraction(match[1]) * (1 << _POWERS[match[2].lower()])) * 1000


def read_whole(value: object) -> int:
    """Return a whole number, which may be negative.

    Raises:
        InputError: it is not a whole number.
    """
    text = _text_of(value)
    if text is None or not _WHOLE.fullmatch(text):
        raise invalid(f"must be a whole number, not {describe(value)}")
    return int(text)


def _text_of(value: object) -> str | None:
    """Return the text of a number or a string; None for anything else."""
    if isinstance(value, Odd):
        raise invalid(f"{quote(value)} is read differently by YAML 1.1 and YAML 1.2")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number and (not isinstance(value, str) or isinstance(value, Boolean)):
        return None
    text = str(value)
    return text if len(text) <= _TEXT_MAX else None
