"""Values of units' properties on the bus: their types and encoding, and what several of them mean."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from podslice.errors import BadMessage
from podslice.model.codec import DeviceLimits, format_device_limits, parse_device_limits
from podslice.model.container_exit import OOM_KILL, OOMD_KILL, SIGNAL, ContainerExit, signal_name
from podslice.model.node import format_cpus, numbers_of_octets, octets_of_numbers, parse_cpus
from podslice.model.properties import PROPERTIES
from podslice.model.unit import INFINITY, TransientUnit, Value
from podslice.systemd.dbus.connection import variant
from podslice.systemd.dbus.wire import Wire

STARTED = "ActiveEnterTimestamp"
"""The time at which a unit became active last, which daemon-reload and daemon-reexec preserve."""
ALWAYS = frozenset({"LoadState", "ActiveState", "FragmentPath", "Transient", "Perpetual"})
"""The properties that every unit has."""
USAGE = frozenset({"ControlGroup", "MemoryCurrent", "TasksCurrent"})

EXIT_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("ExecMainCode", "ExecMainStatus", "NRestarts"), int),
    **dict.fromkeys(("ExecMainStartTimestamp", "ExecMainExitTimestamp"), int),
    **dict.fromkeys(("OOMKills", "ManagedOOMKills"), int),
    "Result": str,
}
"""The properties of services that have their last exit, and their types; the kills since systemd 259."""

_TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        ("MemoryCurrent", "TasksCurrent", "DefaultTasksMax", "ReloadCount", STARTED), int
    ),
    **dict.fromkeys(("ControlGroup", "FragmentPath", "LoadState", "ActiveState", "Version"), str),
    **dict.fromkeys(("Transient", "Perpetual"), bool),
    **EXIT_TYPES,
    "UnitPath": tuple,
}
"""The types of properties that are not in the table."""

# properties of the slice that waits for a batch (see `bus`), which policy never sets
_WAITER = {"Requires": "as", "StopWhenUnneeded": "b"}
# the fields of a timer's delay: its base, its length, and when it elapses next
_DELAY = 3
_CPUS, _TEXT = "ay", "s"
_OCTET_MAX = 255

_EXITED = 1
"""Source: sigaction(2), si_code of SIGCHLD, CLD_EXITED."""


def decode(key: str, value: Wire) -> Wire:
    """Return the value of a property; what is text in the table becomes text.

    Raises:
        BadMessage: it has another type than the property.
    """
    row = PROPERTIES.get(key)
    if row is not None and row.is_text:
        return unpack(key, value)
    unset = None if row is None else row.unset
    if not isinstance(value, _TYPES.get(key, object) if unset is None else type(unset)):
        raise _malformed(key, value)
    return value


def decode_all(found: Mapping[str, Wire]) -> dict[str, Wire]:
    """Return the values of properties.

    Raises:
        BadMessage: one has another type than its property.
    """
    return {key: decode(key, value) for key, value in found.items()}


def unpack(name: str, value: Wire) -> str:
    """Return the text of a value; a partition that was never set is empty on the bus.

    Raises:
        BadMessage: it has another type.
    """
    signature = PROPERTIES[name].signature
    if signature == _TEXT and isinstance(value, str):
        return value or str(PROPERTIES[name].unset)
    is_cpus = signature == _CPUS
    is_one = _is_octet if is_cpus else _is_limit
    if signature == _TEXT or not isinstance(value, tuple) or not all(map(is_one, value)):
        raise _malformed(name, value)
    return format_cpus(numbers_of_octets(value)) if is_cpus else format_device_limits(value)


def _is_octet(value: object) -> bool:
    return type(value) is int and 0 <= value <= _OCTET_MAX


def _is_limit(value: object) -> bool:
    return isinstance(value, tuple) and [type(each) for each in value] == [str, int]


def _malformed(key: str, value: Wire) -> BadMessage:
    return BadMessage(f"systemd's {key} is {value!r:.80}, not a value of the expected type")


def encode(values: Mapping[str, Value], descriptors: list[int]) -> list[list[object]]:
    """Return values as the body of a message has them; descriptors are appended to those given."""
    encoded: list[list[object]] = []
    for name, value in values.items():
        row = PROPERTIES.get(name)
        signature = _WAITER[name] if row is None else row.signature
        if signature == "ah" and isinstance(value, tuple):
            # The body has the positions of the descriptors in the message instead of their numbers.
            first = len(descriptors)
            descriptors += (one for one in value if isinstance(one, int))
            value = tuple(range(first, len(descriptors)))  # noqa: PLW2901
        contents = _pack(name, str(value)) if row is not None and row.is_text else [value]
        encoded += ([name, variant(signature, content)] for content in contents)
    return encoded


def _pack(name: str, text: str) -> list[bytes | str | DeviceLimits]:
    """Return what to send for a value that is text, in this order.

    Devices that a list lacks keep their limits, unless an empty list is sent first.

    Source: systemd, src/core/dbus-cgroup.c, bus_cgroup_set_property.
    """
    signature = PROPERTIES[name].signature
    if signature == _TEXT:
        return [text]
    if signature == _CPUS:
        return [octets_of_numbers(parse_cpus(text))]
    limits = parse_device_limits(text)
    return [(), limits] if limits else [()]


def exists(found: Mapping[str, Wire]) -> bool:
    """Return whether these are the properties of a unit, and not of a name only.

    systemd shows an inactive slice for every name that is requested or referenced.
    """
    if found["LoadState"] == "not-found":
        return False
    return bool(found["ActiveState"] != "inactive" or found["Transient"] or found["FragmentPath"])


def is_implied(found: Mapping[str, Wire]) -> bool:
    """Return whether a unit exists only as the parent of another one."""
    return not (found["Transient"] or found["FragmentPath"] or found["Perpetual"])


def is_as_requested(unit: TransientUnit, found: Mapping[str, Wire]) -> bool:
    """Return whether a unit has all requested properties, so that an earlier call started it."""
    return bool(found["Transient"]) and all(
        _agrees(requested, found[key])
        for key, requested in unit.properties.items()
        if key in found and key != "Options"  # the kernel formats the options of a mount
    )


def _agrees(requested: Value, found: object) -> bool:
    """Return whether a property is as requested; systemd extends lists of dependencies."""
    if isinstance(requested, tuple) and isinstance(found, tuple):
        # commands and delays as they were requested, without times and results
        structs = [one for one in found if isinstance(one, tuple)]
        delays = [(one[0].replace("USec", "Sec"), one[1]) for one in structs if len(one) == _DELAY]
        known = [*found, *delays, *(one[:3] for one in structs)]
        return all(one in known for one in requested)
    return requested == found


def main_exit(found: Mapping[str, Wire]) -> ContainerExit | None:
    """Return how the main process exited; None where it has not, or the unit is not a service."""
    code, status = found.get("ExecMainCode"), int(found.get("ExecMainStatus", 0))
    if not code:
        return None
    result = _result(found, status)
    is_exit = code == _EXITED
    try:
        return ContainerExit(
            result=result,
            exit_code=status if is_exit else None,
            signal=None if is_exit else signal_name(status),
            is_oom=result == OOM_KILL,
            started_usec=int(found["ExecMainStartTimestamp"]),
            ended_usec=int(found["ExecMainExitTimestamp"]),
        )
    except ValueError:
        return None


def _result(found: Mapping[str, Wire], status: int) -> str:
    """Return the result, with what systemd counts where SIGKILL ended the main process.

    systemd's own word is that of the signal where it reaps the process first, and the same one for
    kills by the kernel and by systemd-oomd.

    Source: org.freedesktop.systemd1(5), OOMKills and ManagedOOMKills.
    """
    result = str(found["Result"])
    is_killed = found["ExecMainCode"] != _EXITED and status == signal.SIGKILL
    if result != OOM_KILL and not (result == SIGNAL and is_killed):
        return result
    # infinite where systemd does not count, or has not started the unit
    none = (0, INFINITY)
    if found.get("ManagedOOMKills", 0) not in none:
        return OOMD_KILL
    return result if found.get("OOMKills", 0) in none else OOM_KILL
