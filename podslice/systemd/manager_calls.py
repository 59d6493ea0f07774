"""The D-Bus calls of systemd's manager, one method each; `bus` combines them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter

from podslice.errors import BadMessage, JobFailed, NoSuchUnit
from podslice.model.codec import DeviceLimits, format_device_limits, parse_device_limits
from podslice.model.node import format_cpus, numbers_of_octets, octets_of_numbers, parse_cpus
from podslice.model.properties import OBSERVED, PROPERTIES
from podslice.model.unit import ListedUnit, TransientUnit, UnitKind, UnitName, Value
from podslice.systemd import service_exits
from podslice.systemd.call_checks import kind_of
from podslice.systemd.dbus.connection import Connection, variant
from podslice.systemd.dbus.wire import Received, Wire
from podslice.systemd.signals import MANAGER, MANAGER_PATH, Jobs, path_of

STARTED = "ActiveEnterTimestamp"
"""The time at which a unit became active last, which daemon-reload and daemon-reexec preserve."""

_TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        ("MemoryCurrent", "TasksCurrent", "DefaultTasksMax", "ReloadCount", STARTED), int
    ),
    **dict.fromkeys(("ControlGroup", "FragmentPath", "LoadState", "ActiveState", "Version"), str),
    **dict.fromkeys(("Transient", "Perpetual"), bool),
    **service_exits.TYPES,
    "UnitPath": tuple,
}
"""The types of properties that are not in the table."""
_ALWAYS = {"LoadState", "ActiveState", "FragmentPath", "Transient", "Perpetual"}
"""The properties that every unit has."""

_INTERFACES = {
    UnitKind.SLICE: "org.freedesktop.systemd1.Slice",
    UnitKind.SCOPE: "org.freedesktop.systemd1.Scope",
    UnitKind.SERVICE: "org.freedesktop.systemd1.Service",
    UnitKind.MOUNT: "org.freedesktop.systemd1.Mount",
    UnitKind.TIMER: "org.freedesktop.systemd1.Timer",
}
_SUFFIXES = tuple(f".{kind}" for kind in UnitKind)
_PROPERTIES = "org.freedesktop.DBus.Properties"
_UNIT = "org.freedesktop.systemd1.Unit"

# With "fail", a stop that is still queued for the unit or its parent makes the call fail with
# TransactionIsDestructive; "replace" cancels the stop. The latest call wins, as with systemctl.
_MODE = "replace"

_USAGE = frozenset({"ControlGroup", "MemoryCurrent", "TasksCurrent"})
_STATE = _USAGE | service_exits.TYPES.keys() | _ALWAYS | {STARTED}

# the fields of a timer's delay: its base, its length, and when it elapses next
_DELAY = 3

# properties of the slice in `run_waiter`, which policy never sets
_WAITER = {"Requires": "as", "StopWhenUnneeded": "b"}

RELOAD_TIMEOUT_SEC = 180.0
"""Source: systemd, src/basic/constants.h, DAEMON_RELOAD_TIMEOUT_SEC."""


class ManagerCalls:
    """The service manager at the other end of a connection."""

    def __init__(self, connection: Connection, jobs: Jobs) -> None:
        self.connection = connection
        self._jobs = jobs

    async def subscribe(self) -> None:
        """Subscribe to signals about units for the lifetime of the connection."""
        await self.call("Subscribe", "", about="systemd's signals")

    async def version(self) -> int:
        """Return systemd's version number."""
        version = await self.own_property("Version")
        digits = re.search(r"\d+", version)  # `252.39-1~deb12u1`, `v245.4`
        return int(digits[0]) if digits else 0

    async def own_property(self, key: str) -> Wire:
        """Return a property of the manager itself."""
        reply = await self.connection.call(
            "Get",
            "ss",
            [MANAGER, key],
            path=MANAGER_PATH,
            interface=_PROPERTIES,
            about=f"systemd's {key}",
        )
        (value,) = reply.body("v")
        return _typed(key, value)

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """Return the loaded units of known kinds that match a pattern, by name; all without patterns."""
        about = " ".join(patterns)
        reply = await self.call("ListUnitsByPatterns", "asas", [], list(patterns), about=about)
        (rows,) = reply.body("a(ssssssouso)")
        units = [
            ListedUnit(
                name=name,
                description=words,
                load_state=sys.intern(load_state),
                active_state=sys.intern(state),
            )
            for name, words, load_state, state, *_ in rows
            if name.endswith(_SUFFIXES) and load_state != "not-found"
        ]
        return tuple(sorted(units, key=attrgetter("name")))

    async def check_loaded(self, name: UnitName) -> None:
        """Check that a unit is loaded; most other calls would load it.

        Raises:
            NoSuchUnit: it is not loaded.
        """
        await self.call("GetUnit", "s", name, about=name)

    async def unit_property(self, name: UnitName, key: str) -> Wire:
        """Return a property that every kind of unit has."""
        (value,) = (await self.read("Get", "ss", name, _UNIT, key)).body("v")
        return _typed(key, value)

    async def resources(self, name: UnitName) -> dict[str, Wire]:
        """Return limits and usage of a unit; all unset for one that does not exist."""
        kind = kind_of(name)
        reply = await self.read("GetAll", "s", name, _INTERFACES[kind])
        exits = service_exits.TYPES.keys() if kind is UnitKind.SERVICE else set()
        return _all_typed(reply.properties(OBSERVED[kind] | _USAGE | exits))

    async def properties(self, name: UnitName, further: Collection[str] = ()) -> dict[str, Wire]:
        """Return all properties that podslice reads, also of a unit that does not `exist`.

        With the `further` ones, whose types are not checked.

        The first call for a unit takes systemd 0.5 ms, five times as long as `resources`: it
        looks for presets.
        """
        reply = await self.read("GetAll", "s", name, "")
        found = _all_typed(reply.properties(_STATE.union(PROPERTIES, further)))
        if missing := _ALWAYS - found.keys():
            raise BadMessage(f"{name}: systemd's reply lacks {', '.join(sorted(missing))}")
        return found

    async def count_processes(self, name: UnitName) -> int:
        """Return the number of processes in a unit's control group and below, from a list of them."""
        reply = await self.call("GetUnitProcesses", "s", name, about=name)
        (processes,) = reply.body("a(sus)")
        return len(processes)

    async def start_transient(self, unit: TransientUnit, *beside: TransientUnit) -> None:
        """Start a transient unit, or turn an implied slice into one.

        The units `beside` it are loaded, not started.
        """
        about = unit.name
        await self._run(self._start_transient(unit.name, unit.properties, beside, about), about)

    async def start_loaded(self, name: UnitName, timeout_sec: float | None = None) -> None:
        """Start a unit; a queued start is merged, and an active unit stays as it is."""
        call = self.call("StartUnit", "ss", name, _MODE, about=name)
        await self._run(call, name, timeout_sec=timeout_sec)

    async def restart(self, name: UnitName) -> None:
        """Restart a unit, or start it."""
        call = self.call("RestartUnit", "ss", name, _MODE, about=name)
        await self._run(call, name)

    async def reload(self) -> None:
        """Run the generators and read all unit files; systemd replies when this is done."""
        await self.connection.call(
            "Reload",
            path=MANAGER_PATH,
            interface=MANAGER,
            about="systemd's reload",
            timeout_sec=RELOAD_TIMEOUT_SEC,
        )

    async def stop(self, name: UnitName, timeout_sec: float | None = None) -> None:
        """Stop a unit."""
        call = self.call("StopUnit", "ss", name, _MODE, about=name)
        await self._run(call, name, timeout_sec=timeout_sec)

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        """Move processes into a unit."""
        await self.call("AttachProcessesToUnit", "ssau", name, "", list(pids), about=name)

    async def kill(self, name: UnitName, signal_number: int) -> None:
        """Send a signal to every process in a unit's control group and below, if it is loaded."""
        with suppress(NoSuchUnit):
            await self.call("KillUnit", "ssi", name, "all", signal_number, about=name)

    async def run_waiter(
        self,
        names: Sequence[UnitName],
        relations: Mapping[str, Value],
        units: Sequence[TransientUnit],
    ) -> None:
        """Start a temporary slice whose job finishes after those of the units it names.

        systemd stops an unneeded slice by itself, so it is removed even if this process is killed.
        Stopping it here unloads the units that it names sooner.
        """
        # unique, and without dashes, which would create parents that remain
        name = UnitName(f"podslicebatch{os.urandom(8).hex()}.slice")
        about = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        waiter: dict[str, Value] = {
            "Description": f"podslice waiting for {about}",
            "DefaultDependencies": False,
            "StopWhenUnneeded": True,
            "CollectMode": "inactive-or-failed",
            **relations,
        }
        await self._run(self._start_transient(name, waiter, units, about), about)
        await self.stop(name)

    async def set_properties(self, name: UnitName, values: Mapping[str, Value]) -> None:
        """Set properties until the next boot, also of a unit that is not loaded."""
        encoded = encode(values, [])
        # true: in /run, not in /etc
        await self.call("SetUnitProperties", "sba(sv)", name, True, encoded, about=name)  # noqa: FBT003 - a value of the bus

    async def reset_failed(self, name: UnitName) -> None:
        """Reset the failed state of a unit, if it is loaded."""
        with suppress(NoSuchUnit):
            await self.call("ResetFailedUnit", "s", name, about=name)

    async def _run(
        self, call: Awaitable[Received], about: str, *, timeout_sec: float | None = None
    ) -> None:
        """Wait for the job that a call queues.

        Raises:
            JobFailed: its result is not "done".
        """
        result = await self._jobs.result(call, about, timeout_sec=timeout_sec)
        if result != "done":
            raise JobFailed(
                f"{about}: systemd's job finished with the result {result!r}", result=result
            )

    async def _start_transient(
        self,
        name: UnitName,
        values: Mapping[str, Value],
        others: Sequence[TransientUnit],
        about: str,
    ) -> Received:
        descriptors: list[int] = []
        encoded = encode(values, descriptors)
        auxiliary = [[unit.name, encode(unit.properties, descriptors)] for unit in others]
        return await self.connection.call(
            "StartTransientUnit",
            "ssa(sv)a(sa(sv))",
            (name, _MODE, encoded, auxiliary),
            path=MANAGER_PATH,
            interface=MANAGER,
            about=about,
            descriptors=descriptors,
        )

    async def call(self, member: str, signature: str, *body: object, about: str) -> Received:
        """Call a method of the manager; `about` is the subject in the message of an error."""
        return await self.connection.call(
            member, signature, body, path=MANAGER_PATH, interface=MANAGER, about=about
        )

    async def read(self, member: str, signature: str, name: UnitName, *body: object) -> Received:
        """Call a method of the properties interface of a unit."""
        return await self.connection.call(
            member, signature, body, path=path_of(name), interface=_PROPERTIES, about=name
        )


def _typed(key: str, value: Wire) -> Wire:
    """Return the value of a property after checking its type.

    Raises:
        BadMessage: it has another type.
    """
    row = PROPERTIES.get(key)
    unset = None if row is None else row.unset
    if not isinstance(value, _TYPES.get(key, object) if unset is None else type(unset)):
        raise BadMessage(f"systemd's {key} is {value!r:.80}, not a value of the expected type")
    return value


def _all_typed(found: dict[str, Wire]) -> dict[str, Wire]:
    for key, value in found.items():
        row = PROPERTIES.get(key)
        found[key] = _typed(key, unpack(key, value) if row is not None and row.is_text else value)
    return found


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


def encode(values: Mapping[str, Value], descriptors: list[int]) -> list[list[object]]:
    """Return values as the body of a message has them; descriptors are appended to those given."""
    encoded: list[list[object]] = []
    for name, value in values.items():
        row = PROPERTIES.get(name)
        signature = _WAITER[name] if row is None else row.signature
        if signature == "ah" and isinstance(value, tuple):
            first = len(descriptors)
            descriptors += (one for one in value if isinstance(one, int))
            value = tuple(range(first, len(descriptors)))  # noqa: PLW2901
        contents = pack(name, str(value)) if row is not None and row.is_text else [value]
        encoded += ([name, variant(signature, content)] for content in contents)
    return encoded


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
