"""The interface to systemd, which `bus` implements over D-Bus, and a fake of the tests in memory.

tests/bus/test_contract.py checks both.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, Self, TypeVar

from podslice.errors import BadProperty
from podslice.model.container_exit import ContainerExit
from podslice.model.properties import PROPERTIES
from podslice.model.unit import (
    Caps,
    InspectedUnit,
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitDefinition,
    UnitKind,
    UnitName,
    Value,
    is_unit_name,
    kind_of,
)
from podslice.systemd.dbus.wire import split_types

T = TypeVar("T")

OnChange = Callable[[UnitName | None], None]
"""Called when a unit may have changed; with None, when any unit may have.

A client that has one subscribes to systemd's signals: for every unit that is started, stopped or
unloaded, and every scope that changes, including units of other programs, and more often than
something changes. systemd sends no signal for `set_properties`.

The argument is None when the subscription begins, which is after each connection; after a reload
of systemd; and when the connection or systemd itself is lost: then no call follows until the next
connection. The function is called in the event loop and must neither block nor raise.
"""

OnExit = Callable[[UnitName, ContainerExit], None]
"""Called when the main process of a service has exited, once or several times for each exit.

The signals of systemd have the exit, which the properties of the service no longer have once it runs
again. It is called before `OnChange` for the same signal, and under the same conditions.
"""

PIDFDS_MAX = 16
"""Descriptors that one call may carry: the limit of dbus-daemon on the system bus.

Source: dbus, NEWS of 1.8.8 (CVE-2014-3636), max_message_unix_fds.
"""


class Verb(Enum):
    """What a change does: the method of `Client` of the same name, which describes it."""

    START = auto()
    START_BATCH = auto()
    START_TIMER = auto()
    START_EXISTING = auto()
    RESTART = auto()
    RELOAD = auto()
    SET_PROPERTIES = auto()
    ATTACH = auto()
    STOP = auto()
    STOP_BATCH = auto()
    KILL = auto()
    RESET_FAILED = auto()


class Change(NamedTuple):
    """A change of units, with the arguments that its verb has."""

    verb: Verb
    names: tuple[UnitName, ...] = ()
    """The units that it concerns; none for a reload, which concerns all."""
    units: tuple[TransientUnit, ...] = ()
    properties: Mapping[str, Value] = {}
    pids: tuple[int, ...] = ()
    signal_number: int = 0
    timeout_sec: float | None = None


class Client(ABC):
    """One connection to one service manager.

    Every call returns within a limited time. Beside the errors named below, every call raises
    `BusUnavailable`, `CallTimeout` and `Refused`. After `BusUnavailable` the next call connects
    again. Calls may be concurrent; the client limits their number.
    """

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Connect."""

    @abstractmethod
    async def __aexit__(self, *_error: object) -> None:
        """Close the connection."""

    @abstractmethod
    async def caps(self) -> Caps:
        """Return the capabilities of the service manager."""

    @abstractmethod
    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        """Return the loaded units whose names match a pattern, by name.

        Patterns are systemd's globs (`kubepods-*.slice`), in which a backslash is literal, as in
        the names of mounts; without patterns the result is empty. Units that are not loaded, or
        only referenced by other units, are left out. Properties are resource limits and the like,
        without dependencies.
        """

    @abstractmethod
    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """List the loaded units whose names match a pattern, by name, with a single call.

        As `observe`, except that names that are only referenced by other units may be included;
        those are "inactive".
        """

    @abstractmethod
    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        """Return a service, scope or slice with all settings of resources; None if there is none.

        A unit that is not loaded is loaded for this. One whose file is invalid or masked has a load
        state of that name, and no settings.
        """

    @abstractmethod
    async def read_start(self, name: UnitName) -> int:
        """Return when a unit became active last, in µs since the epoch; 0 if the unit is not loaded."""

    @abstractmethod
    async def read_definition(self, name: UnitName) -> UnitDefinition:
        """Return the files of a unit, and where it is; one that is not loaded is loaded for this.

        A unit that does not exist has the load state "not-found".
        """

    @abstractmethod
    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        """Return the units that a unit is ordered after, directly or by way of others."""

    @abstractmethod
    async def submit(self, change: Change) -> None:
        """Make a change, and wait until it is in force.

        Raises:
            SystemdError: as the method below that describes the change.
        """

    async def start(self, unit: TransientUnit) -> None:
        """Start a transient slice, scope, service or mount and wait until it is up.

        A scope takes the processes of `PIDs`, or, if `Caps.pidfds` is set, of `PIDFDs`: at most
        `PIDFDS_MAX` open descriptors, which stay the caller's. A service of type `exec` is up when
        its command runs, one of type `oneshot` when its command has exited, and a mount when it is
        mounted.

        A slice that exists only as the parent of another unit becomes this unit; a failed unit is
        replaced; a mount that is loaded and inactive is mounted again as before.

        Raises:
            UnitExists: another unit of that name is loaded; nothing changed.
            BadProperty: systemd rejects the name, a property or a value, or one of the processes
                has exited; nothing changed.
            JobFailed: the result of the start job is not "done".
        """
        await self.submit(_start(Verb.START, unit))

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        """Move running processes into a scope or service that is up and has `Delegate`.

        Raises:
            NoSuchUnit: no such unit is loaded.
            BadProperty: one of the processes has exited or is a kernel thread, or the unit does
                not take processes; some of them may have been moved.
        """
        await self.submit(Change(Verb.ATTACH, (name,), pids=tuple(pids)))

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        """Start many units with one call and one job, all of them or none.

        The parent of each must be active or in the same batch.

        Raises:
            UnitExists, BadProperty, JobFailed: as `start` (but a failed unit is not replaced); no
                unit of the batch was started, or (JobFailed) the started ones still exist. Slices
                that were implied may have their new properties. The error does not name the unit
                that caused it.
        """
        await self.submit(_start(Verb.START_BATCH, *units))

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        """Start a transient timer; the service of the same name is loaded with it, not started.

        When the timer elapses systemd starts the service, whether or not the client still runs.
        systemd unloads both when the timer is stopped before, and when the service has finished (a
        timer with `RemainAfterElapse` off is unloaded with it). A daemon-reload keeps both.

        Raises:
            UnitExists: one of them is loaded; nothing changed.
            BadProperty: systemd rejects a name, a property or a value, or the names do not
                match; nothing changed.
            JobFailed: the result of the timer's start job is not "done".
        """
        await self.submit(_start(Verb.START_TIMER, timer, service))

    async def start_existing(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Start a unit that has a file and wait until it is up; one that is up stays as it is.

        `timeout_sec` replaces the usual limit of the job.

        Raises:
            NoSuchUnit: systemd has found no file of that name when it last read them.
            BadProperty: the file has an invalid setting.
            CallTimeout: the limit is exceeded; the job stays queued.
            JobFailed: the result of the start job is not "done".
        """
        await self.submit(Change(Verb.START_EXISTING, (name,), timeout_sec=timeout_sec))

    async def restart(self, name: UnitName) -> None:
        """Restart a unit that has a file and wait until it is up; one that is down is started.

        Raises:
            NoSuchUnit, BadProperty, CallTimeout, JobFailed: as `start_existing`.
        """
        await self.submit(Change(Verb.RESTART, (name,)))

    async def reload(self) -> None:
        """Let systemd run its generators, and read all unit files again; no unit starts or stops."""
        await self.submit(Change(Verb.RELOAD))

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        """Change properties of a loaded unit until the next boot; in force on return.

        A slice that exists only as the parent of another unit becomes a transient unit.

        Raises:
            NoSuchUnit: no such unit is loaded (systemd itself would accept the call and write a
                drop-in that applies to a later unit of that name).
            BadProperty: systemd rejects a property or a value; nothing changed.
        """
        await self.submit(Change(Verb.SET_PROPERTIES, (name,), properties=properties))

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Stop a unit with all units below it and wait; a unit that is not loaded is not an error.

        `timeout_sec` replaces the usual limit of the job. Drop-ins of `set_properties` are removed
        with the unit, unless it has a file.

        Raises:
            CallTimeout: the limit is exceeded; the job stays queued.
            JobFailed: the result of the stop job is not "done".
        """
        await self.submit(Change(Verb.STOP, (name,), timeout_sec=timeout_sec))

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        """Stop many units with one job; units that are not loaded are not an error.

        Raises:
            JobFailed: the result of the job is not "done"; some units may be stopped.
        """
        await self.submit(Change(Verb.STOP_BATCH, tuple(names)))

    async def kill(self, name: UnitName, signal_number: int) -> None:
        """Send a signal to every process of a unit and of the units below it.

        A unit that is not loaded, or without processes, is not an error.
        """
        await self.submit(Change(Verb.KILL, (name,), signal_number=signal_number))

    async def reset_failed(self, name: UnitName) -> None:
        """Reset the failed state of a unit; a unit that is not loaded is not an error."""
        await self.submit(Change(Verb.RESET_FAILED, (name,)))


class ClientAround(Client):
    """A client that passes every call on to another one; its subclasses add to some of them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._client.__aexit__(None, None, None)

    async def caps(self) -> Caps:
        return await self._client.caps()

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        return await self._client.observe(patterns)

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        return await self._client.list_units(patterns)

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        return await self._client.inspect(name)

    async def read_start(self, name: UnitName) -> int:
        return await self._client.read_start(name)

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        return await self._client.read_definition(name)

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        return await self._client.read_predecessors(name)

    async def submit(self, change: Change) -> None:
        await self._client.submit(change)


def _start(verb: Verb, *units: TransientUnit) -> Change:
    return Change(verb, tuple(unit.name for unit in units), units)


async def run_concurrently(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all, in order; the first error cancels the others and is raised.

    `asyncio.gather` would leave the others running, and a task group raises a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in coroutines]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


# Checks before a call is sent, which the fake has in common with the client: both reject the same.


def is_changeable(name: str) -> bool:
    """Return whether a property can change while a unit is loaded."""
    if name == "Description" or name.endswith("Accounting"):
        return True
    return name in PROPERTIES and bool(PROPERTIES[name].managed)


def check_name(name: UnitName) -> None:
    """Check the name of a unit.

    Raises:
        BadProperty: systemd rejects it, at once or with a misleading error later.
    """
    if not is_unit_name(name):
        raise BadProperty(f"{name!r}: not the name of a slice, scope, service, mount or timer")


def check_change(change: Change) -> None:
    """Check a change before it is sent.

    Raises:
        BadProperty: no version of systemd accepts a name, a property or a value, or a timer does
            not belong to its service.
        TypeError: a value has the wrong type, which is an internal error.
    """
    for name in change.names:
        check_name(name)
    for unit in change.units:
        _check_properties(unit.name, unit.properties)
    for name in change.names if change.properties else ():
        _check_properties(name, change.properties)
    if change.verb is Verb.START_TIMER:
        timer, service = change.units
        stem = timer.name.removesuffix(f".{UnitKind.TIMER}")
        if stem == timer.name or service.name != f"{stem}.{UnitKind.SERVICE}":
            raise BadProperty(f"{timer.name}: not a timer of {service.name}")
        if not service.properties.get("ExecStart"):
            # systemd accepts it, and then fails to start the timer
            raise BadProperty(f"{service.name}: ExecStart is required")


def _check_properties(name: UnitName, properties: Mapping[str, Value]) -> None:
    """Check properties to set on a unit.

    Raises:
        BadProperty: the unit has no such property, or a value is out of range.
        TypeError: a value has the wrong type.
    """
    for key, value in properties.items():
        row = PROPERTIES.get(key)
        if row is None or kind_of(name) not in row.kinds:
            raise BadProperty(f"{name}: {key}: unknown property")
        if not _has_type(value, "s" if row.is_text else row.signature):
            raise TypeError(f"{name}: {key}: {value!r} is not of type {row.signature!r}")
        if row.is_text and row.parse(str(value)) != value:
            raise BadProperty(f"{name}: {key}: {value!r:.80} is not a value in its shortest form")
        if not row.takes(value):
            raise BadProperty(
                f"{name}: {key}: {value} is out of range; must be {row.minimum} to {row.maximum}"
            )
        if key == "PIDFDs" and isinstance(value, tuple) and len(value) > PIDFDS_MAX:
            raise BadProperty(
                f"{name}: {key}: a call carries at most {PIDFDS_MAX} descriptors, not {len(value)}"
            )


_TYPES = {"s": str, "b": bool, "t": int, "u": int, "i": int, "h": int}


def _has_type(value: object, signature: str) -> bool:
    if type_ := _TYPES.get(signature):
        # In Python a boolean is an integer as well, which systemd would refuse as another type.
        return type(value) is type_ or (type_ is str and isinstance(value, str))
    if not isinstance(value, tuple):
        return False
    if signature[0] == "a":
        return all(_has_type(one, signature[1:]) for one in value)
    members = split_types(signature[1:-1])
    return len(value) == len(members) and all(map(_has_type, value, members))
