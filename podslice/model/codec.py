"""The texts of a property's value: in unit files, annotations, options and the kernel's files, and for people.

Values are in the units of the bus, except lists of CPUs and of devices, which are text. Only codecs
convert units. The parser of unit files is the inverse of the formatter, and returns None for a text
that podslice does not know; the reader of annotations raises an error with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from podslice.errors import invalid, quote
from podslice.model.node import format_cpus, parse_cpus
from podslice.model.quantity import format_bytes, read_milli
from podslice.model.unit import INFINITY, Value

DEVICE = re.compile("/[A-Za-z0-9._:@+/-]*")
"""A path without characters that unit files interpret."""
SEPARATOR = ";"

_LIMIT = re.compile(r"(\S+) ([0-9]{1,19})", re.ASCII)

DeviceLimits = tuple[tuple[str, int], ...]
"""Path of a device, or of anything in its file system, and the limit."""


def parse_device_limits(text: str) -> DeviceLimits:
    """Parse limits of devices, each a path and a number.

    Raises:
        ValueError: it is not in that format, or has a path twice.
    """
    found: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(SEPARATOR))):
        limit = _LIMIT.fullmatch(part)
        if limit is None or not DEVICE.fullmatch(limit[1]) or limit[1] in found:
            raise ValueError(f"{part:.64} is not a path and a number")
        found[limit[1]] = int(limit[2])
    return tuple(sorted(found.items()))


def format_device_limits(limits: Iterable[tuple[str, int]]) -> str:
    """Return limits of devices as text, in the order of their paths."""
    return f"{SEPARATOR} ".join(f"{path} {number}" for path, number in sorted(limits))


WHOLE_SHARE = 2**32 - 1
"""100 % on the bus, where systemd scales a percentage to 32 bits."""

_PERCENT = re.compile(r"(\d+)(?:\.(\d\d))?%")
_DURATION = re.compile(r"(\d+)(us|ms|s)")
_STATED_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|µs|μs|ms|s)", re.ASCII)
_USEC = {"us": 1, "µs": 1, "μs": 1, "ms": 1_000, "s": 1_000_000}
_COUNT = re.compile("[0-9]{1,9}", re.ASCII)
_SCORE = re.compile("-?[0-9]{1,4}", re.ASCII)
_UNLIMITED = "max"
_DEFAULT = "default "
_DEVICE_LIMITS = re.compile(r"([0-9]+:[0-9]+)((?: [a-z]+=(?:[0-9]+|max))+)")
_PAGE_BYTES = 4096
"""The smallest page of memory of Linux; the kernel rounds less down to none."""
_DEVICES_MAX = 64
_CPUS_HINT = "write 0-3,8, for example"


class Codec(NamedTuple):
    """The texts of values of one type and unit."""

    format: Callable[[Value], str]
    """Returns the text in a unit file."""
    parse: Callable[[str], Value | None]
    """Returns the value of a text in a unit file."""
    show: Callable[[Value], str] | None = None
    """Returns the text for people; None: the text in a unit file."""
    reason: Callable[[Value], str] | None = None
    """Returns the text in a reason; None: the text for people."""
    read: Callable[[str, int, int], int | str] | None = None
    """Returns the value that an annotation states; takes the least and the largest value as well."""
    describe: str = ""
    """A description of the texts that `read` accepts, with `{least}` and `{most}`."""
    limit: Callable[[int], str] = str
    """Returns the least and the largest value as text."""
    base: int = 1
    """How many of the bus's units are a second, a CPU, a byte: metrics are in these."""
    separator: str = ""
    """What separates the parts of a value that have lines of their own in a unit file."""


def share_of_percent(percent: int) -> int:
    """Return a percentage as systemd has it on the bus, such that a reload of its files keeps it.

    Source: systemd, src/basic/percent-util.h, UINT32_SCALE_FROM_PERCENT.
    """
    return _share_of_hundredths(percent * 100)


def _share_of_hundredths(hundredths: int) -> int:
    # To the nearest, as systemd rounds a percentage that it reads from a file.
    return (hundredths * WHOLE_SHARE + 5_000) // 10_000


def _format_number(value: Value, infinite: str = "", unit: str = "") -> str:
    return infinite if value == INFINITY else f"{value}{unit}"


def _parse_number(text: str, infinite: str = "") -> Value | None:
    if text == infinite:
        return INFINITY
    return int(text) if re.fullmatch("[0-9]+", text) else None


def _parse_integer(text: str) -> Value | None:
    return int(text) if re.fullmatch("-?[0-9]+", text) else None


def _parse_duration(text: str, infinite: str = "") -> Value | None:
    if text == infinite:
        return INFINITY
    found = _DURATION.fullmatch(text)
    return None if found is None else int(found[1]) * _USEC[found[2]]


def _format_list(value: Value) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _parse_list(text: str) -> Value | None:
    return tuple(filter(None, text.split(" ")))


def _parse_octal(text: str) -> Value | None:
    return int(text, 8) if re.fullmatch("[0-7]+", text) else None


def _format_hundredths(hundredths: int) -> str:
    whole, rest = divmod(hundredths, 100)
    return f"{whole}.{rest:02}%".replace(".00%", "%")


def _parse_hundredths(text: str) -> int | None:
    found = _PERCENT.fullmatch(text)
    return None if found is None else int(found[1]) * 100 + int(found[2] or 0)


def _format_quota(value: Value) -> str:
    # 1,000,000 µs per second are 100.00 %, so that 100 µs are a hundredth of a percent.
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


def _parse_text(text: str, shorten: Callable[[str], str]) -> Value | None:
    try:
        return shorten(text)
    except ValueError:
        return None


# Readers of the kernel's files with more than one value, for one property each.
# Source: Linux, Documentation/admin-guide/cgroup-v2.rst, io.max, io.weight.


def read_weight(text: str) -> str:
    """Return the weight in `io.weight`, and then the weights of devices: `100; 8:16 200`.

    The kernel writes `default 100`, and a line for each device with another weight.
    """
    return "; ".join(line.removeprefix(_DEFAULT) for line in text.split("\n") if line)


def read_device_limits(text: str, key: str) -> str:
    """Return the limits of one kind in `io.max` by device, `8:16 2097152`; `max` without any.

    The kernel writes `8:16 rbps=2097152 wbps=max riops=max wiops=max`, and no line for a device
    without limits.
    """
    found = []
    for line in filter(None, text.split("\n")):
        parsed = _DEVICE_LIMITS.fullmatch(line)
        if parsed is None:
            return text.replace("\n", "; ")  # a later kernel's
        device, pairs = parsed[1], parsed[2].split(" ")[1:]
        limit = dict(pair.split("=") for pair in pairs).get(key, _UNLIMITED)
        if limit != _UNLIMITED:
            found.append(f"{device} {limit}")
    return "; ".join(found) or _UNLIMITED


# Readers of annotations.


def format_duration(usec: int) -> str:
    """Return a duration exactly, as it may be stated, in the largest unit: `5m`, `100ms`."""
    for unit, size in (("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)):
        if usec and usec % size == 0:
            return f"{usec // size}{unit}"
    return f"{usec}us"


def _read_duration(text: str, least: int, most: int) -> int:
    match = _STATED_DURATION.fullmatch(text)
    if match is None:
        raise invalid(
            f"must be a duration, not the string {quote(text)}", "write 100ms, for example"
        )
    number, _, decimals = match[1].partition(".")
    # Without floating point: `1.5s` is 15 × 1,000,000 / 10 µs, and a remainder is less than 1 µs.
    scaled = int(number + decimals) * _USEC[match[2]]
    usec, rest = divmod(scaled, int(10 ** len(decimals)))
    if rest or not least <= usec <= most:
        span = f"{format_duration(least)} to {format_duration(most)}"
        hint = f"write {span}, in whole microseconds"
        raise invalid(f"{quote(text)} is out of range", hint)
    return usec


def _at_least(value: int, least: int, text: str) -> int:
    if value < least:
        raise invalid(f"{quote(text)} is too small", f"the least value is {least}")
    return value


def _read_bytes(text: str, least: int, _: int) -> int:
    if text == "infinity":
        return INFINITY
    milli = read_milli(text)
    if milli % 1000:
        raise invalid(f"{quote(text)} is not a number of bytes", "write 64Mi, for example")
    return _at_least(milli // 1000, least, text)


def _read_memory(text: str, least: int, most: int) -> int:
    found = _read_bytes(text, least, most)
    if 0 < found < _PAGE_BYTES:
        hint = f"write {found}Mi, for example"
        raise invalid(f"{quote(text)} is less than a page of memory", hint)
    return found


def _read_count(text: str, least: int, _: int) -> int:
    if text == "infinity":
        return INFINITY
    if not _COUNT.fullmatch(text):
        raise invalid(f"{quote(text)} is not a whole number", "write 512, for example")
    return _at_least(int(text), least, text)


def _read_weight(text: str, _: int, most: int) -> int:
    # 0 is `idle`, which no annotation states
    if not _COUNT.fullmatch(text) or int(text) > most:
        raise invalid(f"{quote(text)} is not a weight from 1 to {most}", "write 200, for example")
    return _at_least(int(text), 1, text)


def _read_score(text: str, least: int, most: int) -> int:
    if not _SCORE.fullmatch(text) or not least <= int(text) <= most:
        message = f"{quote(text)} is not a score from {least} to {most}"
        raise invalid(message, "write -900, for example")
    return int(text)


def _read_devices(
    text: str, _least: int, _most: int, *, read: Callable[[str, int, int], int], example: str
) -> str:
    """Return limits of devices in their shortest form.

    Raises:
        InputError: a part is not the path of a device and its limit.
    """
    found: dict[str, int] = {}
    hint = f"write /dev/sda {example}; /srv {example}, for example"
    for part in text.split(SEPARATOR):
        path, _, limit = part.strip().partition(" ")
        if not DEVICE.fullmatch(path) or not limit or len(found) == _DEVICES_MAX:
            raise invalid(f"{quote(part.strip())} is not a path and its limit", hint)
        number = read(limit.strip(), 0, INFINITY)
        if not 0 < number < INFINITY:
            raise invalid(f"{quote(limit)} is out of range", "the least value is 1")
        if path in found:
            raise invalid(f"duplicate path {quote(path)}", "remove one")
        found[path] = number
    return format_device_limits(found.items())


def _read_cpus(text: str, _: int, __: int) -> str:
    try:
        cpus = parse_cpus(text)
    except ValueError as error:
        raise invalid(f"{quote(text)} is not a list of CPUs", _CPUS_HINT) from error
    if not cpus:
        raise invalid(f"{quote(text)} has no CPU", _CPUS_HINT)
    return format_cpus(cpus)


def _show_bytes(value: Value) -> str:
    return format_bytes(value) if isinstance(value, int) else str(value)


_parse_limits = partial(
    _parse_text, shorten=lambda text: format_device_limits(parse_device_limits(text))
)

BYTES = Codec(
    format=partial(_format_number, infinite="infinity"),
    parse=partial(_parse_number, infinite="infinity"),
    show=_show_bytes,
    read=_read_memory,
    describe="bytes, or infinity",
)
"""A number of bytes, or `infinity`."""
COUNT = Codec(
    format=partial(_format_number, infinite="infinity"),
    parse=partial(_parse_number, infinite="infinity"),
    read=_read_count,
    describe="a number, or infinity",
)
"""A number of tasks, or `infinity`."""
SCORE = Codec(
    format=str,
    parse=_parse_integer,
    read=_read_score,
    describe="{least} to {most}",
)
"""A number with a sign."""
STRING = Codec(format=str, parse=str)
BOOLEAN = Codec(format=lambda value: "yes" if value else "no", parse={"yes": True, "no": False}.get)
LIST = Codec(format=_format_list, parse=_parse_list)
"""Strings between spaces."""
OCTAL = Codec(format=lambda value: f"{value:04o}", parse=_parse_octal)
WEIGHT = Codec(
    format=lambda value: "idle" if value == 0 else _format_number(value),
    parse=lambda text: 0 if text == "idle" else _parse_number(text),
    read=_read_weight,
    describe="1 to {most}",
)
"""A number, `idle` for 0, or empty for none."""
NUMBER = Codec(
    format=_format_number,
    parse=_parse_number,
    read=_read_weight,
    describe="1 to {most}",
)
"""A number, or empty for none."""
QUOTA = Codec(format=_format_quota, parse=_parse_quota, base=1_000_000)
"""Microseconds per second in percent of one CPU, with two decimals; empty for none."""
SHARE = Codec(format=_format_share, parse=_parse_share)
"""A share of 2^32 - 1 in percent, with the two decimals that systemd keeps; empty for none."""
DURATION = Codec(
    format=partial(_format_number, unit="us"),
    parse=_parse_duration,
    reason=lambda value: f"{int(str(value)) / 1000:g}ms",
    read=_read_duration,
    describe="{least} to {most}",
    limit=format_duration,
    base=1_000_000,
)
"""Microseconds; empty for none."""
TIMEOUT = Codec(
    format=partial(_format_number, infinite="infinity", unit="us"),
    parse=partial(_parse_duration, infinite="infinity"),
    base=1_000_000,
)
"""Microseconds, or `infinity`."""
CPUS = Codec(
    format=str,
    parse=partial(_parse_text, shorten=lambda text: format_cpus(parse_cpus(text))),
    read=_read_cpus,
    describe="a list of CPUs, such as 0-3,8",
)
"""A list of CPUs in its shortest form; empty for all."""
BANDWIDTHS = Codec(
    format=str,
    parse=_parse_limits,
    read=partial(_read_devices, read=_read_bytes, example="10Mi"),
    describe="bytes per second of devices, such as /dev/sda 10Mi; /srv 5Mi",
    separator=f"{SEPARATOR} ",
)
"""Bytes per second of devices in the order of their paths; empty for none."""
RATES = Codec(
    format=str,
    parse=_parse_limits,
    read=partial(_read_devices, read=_read_count, example="500"),
    describe="operations per second of devices, such as /dev/sda 500; /srv 100",
    separator=f"{SEPARATOR} ",
)
"""Operations per second of devices in the order of their paths; empty for none."""
BUS_ONLY = Codec(format=str, parse=lambda _: None)
"""A structure that podslice sends over the bus and never writes to a file."""
