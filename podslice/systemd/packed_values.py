"""Values that are text for podslice, and often arrays on the bus."""

from __future__ import annotations

from podslice.errors import BadMessage
from podslice.model.cpu_list import format_cpus, numbers_of_octets, octets_of_numbers, parse_cpus
from podslice.model.device_limits import DeviceLimits, format_device_limits, parse_device_limits
from podslice.model.properties import PROPERTIES
from podslice.systemd.dbus.wire import Wire

_CPUS, _TEXT = "ay", "s"
_OCTET_MAX = 255


def pack(name: str, text: str) -> list[bytes | str | DeviceLimits]:
    """Return what to send for a value, in this order.

    Devices that a list lacks keep their limits, unless an empty list is sent first.

    Source: systemd, src/core/dbus-cgroup.c, bus_cgroup_set_property, bus_cgroup_set_cpuset.
    """
    signature = PROPERTIES[name].signature
    if signature == _TEXT:
        return [text]
    if signature == _CPUS:
        return [octets_of_numbers(parse_cpus(text))]
    limits = parse_device_limits(text)
    return [(), limits] if limits else [()]


def unpack(name: str, value: Wire) -> str:
    """Return the value that the bus has; a partition that was never set is empty there.

    Raises:
        BadMessage: it has another type.
    """
    signature = PROPERTIES[name].signature
    if signature == _TEXT and isinstance(value, str):
        return value or str(PROPERTIES[name].unset)
    is_cpus = signature == _CPUS
    is_one = _is_octet if is_cpus else _is_limit
    if signature == _TEXT or not isinstance(value, tuple) or not all(map(is_one, value)):
        raise BadMessage(f"systemd's {name} is {value!r:.80}, not a value of the expected type")
    return format_cpus(numbers_of_octets(value)) if is_cpus else format_device_limits(value)


def _is_octet(value: object) -> bool:
    return type(value) is int and 0 <= value <= _OCTET_MAX


def _is_limit(value: object) -> bool:
    return isinstance(value, tuple) and [type(each) for each in value] == [str, int]
