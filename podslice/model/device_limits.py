"""Limits of devices as text: `/dev/sda 10485760; /srv 5242880`."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
