"""The text of a property's value in a unit file: a formatter and the parser that is its inverse.

Values are those of the bus, except lists of CPUs and of devices, which are text. A parser returns None for a text that podslice does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from podslice.model.cpu_list import format_cpus, parse_cpus
from podslice.model.device_limits import format_device_limits, parse_device_limits
from podslice.model.unit import INFINITY, Value

WHOLE_SHARE = 2**32 - 1
"""100 % on the bus, where systemd scales a percentage to 32 bits."""

_PERCENT = re.compile(r"(\d+)(?:\.(\d\d))?%")
_DURATION = re.compile(r"(\d+)(us|ms|s)")
_USEC = {"us": 1, "ms": 1_000, "s": 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """The two directions."""

    format: Callable[[Value], str]
    parse: Callable[[str], Value | None]


def share_of_percent(percent: int) -> int:
    """Return a percentage as systemd has it on the bus, such that a reload of its files keeps it.

    Source: systemd, src/basic/percent-util.h, UINT32_SCALE_FROM_PERCENT.
    """
    return _share_of_hundredths(percent * 100)


def _share_of_hundredths(hundredths: int) -> int:
    return (hundredths * WHOLE_SHARE + 5_000) // 10_000


def _format_amount(value: Value) -> str:
    return "infinity" if value == INFINITY else str(value)


def _parse_amount(text: str) -> Value | None:
    if text == "infinity":
        return INFINITY
    return int(text) if text.isdecimal() else None


def _parse_integer(text: str) -> Value | None:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else None


def _format_boolean(value: Value) -> str:
    return "yes" if value else "no"


def _parse_boolean(text: str) -> Value | None:
    return {"yes": True, "no": False}.get(text)


def _format_list(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parse_list(text: str) -> Value | None:
    return tuple(filter(None, text.split(" ")))


def _format_octal(value: Value) -> str:
    return f"{value:04o}"


def _parse_octal(text: str) -> Value | None:
    return int(text, 8) if re.fullmatch("[0-7]+", text) else None


def _format_weight(value: Value) -> str:
    if value == INFINITY:
        return ""
    return "idle" if value == 0 else str(value)


def _parse_weight(text: str) -> Value | None:
    return {"": INFINITY, "idle": 0}.get(text, _parse_amount(text))


def _format_number(value: Value) -> str:
    return "" if value == INFINITY else str(value)


def _parse_number(text: str) -> Value | None:
    if text == "":
        return INFINITY
    return int(text) if re.fullmatch("[0-9]+", text) else None


def _format_hundredths(hundredths: int) -> str:
    whole, rest = divmod(hundredths, 100)
    return f"{whole}.{rest:02}%".replace(".00%", "%")


def _parse_hundredths(text: str) -> int | None:
    found = _PERCENT.fullmatch(text)
    return None if found is None else int(found[1]) * 100 + int(found[2] or 0)


def _format_quota(value: Value) -> str:
    return "" if value == INFINITY else _format_hundredths(int(str(value)) // 100)


def _parse_quota(text: str) -> Value | None:
    if text == "":
        return INFINITY
    hundredths = _parse_hundredths(text)
    return None if hundredths is None else hundredths * 100


def _format_share(value: Value) -> str:
    hundredths = (int(str(value)) * 10_000 + WHOLE_SHARE // 2) // WHOLE_SHARE
    return _format_hundredths(hundredths) if hundredths else ""


def _parse_share(text: str) -> Value | None:
    if text == "":
        return 0
    hundredths = _parse_hundredths(text)
    return None if hundredths is None else _share_of_hundredths(hundredths)


def _format_duration(value: Value) -> str:
    return "" if value == INFINITY else f"{value}us"


def _parse_duration(text: str) -> Value | None:
    if text == "":
        return INFINITY
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _USEC[found[2]]


def _format_timeout(value: Value) -> str:
    return "infinity" if value == INFINITY else f"{value}us"


def _parse_timeout(text: str) -> Value | None:
    if text == "infinity":
        return INFINITY
    return _parse_duration(text) if text else None


def _parse_cpus(text: str) -> Value | None:
    try:
        return format_cpus(parse_cpus(text))
    except ValueError:
        return None


def _parse_devices(text: str) -> Value | None:
    try:
        return format_device_limits(parse_device_limits(text))
    except ValueError:
        return None


AMOUNT = Codec(format=_format_amount, parse=_parse_amount)
"""A number of bytes or tasks, or `infinity`."""
INTEGER = Codec(format=str, parse=_parse_integer)
"""A number with a sign."""
STRING = Codec(format=str, parse=str)
BOOLEAN = Codec(format=_format_boolean, parse=_parse_boolean)
LIST = Codec(format=_format_list, parse=_parse_list)
"""Strings between spaces."""
OCTAL = Codec(format=_format_octal, parse=_parse_octal)
WEIGHT = Codec(format=_format_weight, parse=_parse_weight)
"""A number, `idle` for 0, or empty for none."""
NUMBER = Codec(format=_format_number, parse=_parse_number)
"""A number, or empty for none."""
QUOTA = Codec(format=_format_quota, parse=_parse_quota)
"""Microseconds per second in percent of one CPU, with two decimals; empty for none."""
SHARE = Codec(format=_format_share, parse=_parse_share)
"""A share of 2^32 - 1 in percent, with the two decimals that systemd keeps; empty for none."""
DURATION = Codec(format=_format_duration, parse=_parse_duration)
"""Microseconds; empty for none."""
TIMEOUT = Codec(format=_format_timeout, parse=_parse_timeout)
"""Microseconds, or `infinity`."""
CPUS = Codec(format=str, parse=_parse_cpus)
"""A list of CPUs in its shortest form; empty for all."""
DEVICES = Codec(format=str, parse=_parse_devices)
"""Limits of devices in the order of their paths; empty for none."""
BUS_ONLY = Codec(format=str, parse=lambda _: None)
"""A structure that podslice sends over the bus and never writes to a file."""
