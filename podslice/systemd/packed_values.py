"""Values that are text for podslice, and arrays on the bus."""

from __future__ import annotations

from podslice.errors import BadMessage
from podslice.model.cpu_list import format_cpus, numbers_of_octets, octets_of_numbers, parse_cpus
from podslice.model.properties import PROPERTIES
from podslice.systemd.dbus.wire import Wire

PACKED = frozenset(row.name for row in PROPERTIES.values() if row.is_text)
"""The properties with such values."""

_OCTET_MAX = 255


def pack(text: str) -> bytes:
    """Return a list of CPUs as the bus has it."""
    return octets_of_numbers(parse_cpus(text))


def unpack(name: str, value: Wire) -> str:
    """Return the list of CPUs that the bus has.

    Raises:
        BadMessage: it is not an array of octets.
    """
    if not isinstance(value, tuple) or not all(map(_is_octet, value)):
        raise BadMessage(f"systemd's {name} is {value!r:.80}, not an array of octets")
    return format_cpus(numbers_of_octets(value))


def _is_octet(value: object) -> bool:
    return type(value) is int and 0 <= value <= _OCTET_MAX
