"""The kernel's texts of limits in files with more than one value, for one property each.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst, io.max, io.weight.
"""

from __future__ import annotations

import re

UNLIMITED = "max"
_DEFAULT = "default "
_DEVICE_LIMITS = re.compile(r"([0-9]+:[0-9]+)((?: [a-z]+=(?:[0-9]+|max))+)")


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
        limit = dict(pair.split("=") for pair in pairs).get(key, UNLIMITED)
        if limit != UNLIMITED:
            found.append(f"{device} {limit}")
    return "; ".join(found) or UNLIMITED
