"""The interface to systemd, which `bus` implements over D-Bus, and a fake of the tests in memory.

tests/bus/test_contract.py checks both.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import ClassVar, Self

from podslice.model.container_exit import ContainerExit
from podslice.model.unit import (
    Caps,
    InspectedUnit,
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitDefinition,
    UnitName,
    Value,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Start a transient unit."""

    unit: TransientUnit

    @property
    def names(self) -> tuple[UnitName, ...]:
        """The units that it concerns."""
        return (self.unit.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBatch:
    """Start many transient units, all of them or none."""

    units: tuple[TransientUnit, ...]

    @property
    def names(self) -> tuple[UnitName, ...]:
        """The units that it concerns."""
        return tuple(unit.name for unit in self.units)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimer:
    """Start a transient timer with its service."""

    timer: TransientUnit
    service: TransientUnit

    @property
    def names(self) -> tuple[UnitName, ...]:
        """The units that it concerns."""
        return self.timer.name, self.service.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """Have systemd read all unit files again."""

    names: ClassVar[tuple[UnitName, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBatch:
    """Stop many units."""

    names: tuple[UnitName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneUnit:
    """A change of one unit."""

    name: UnitName

    @property
    def names(self) -> tuple[UnitName, ...]:
        """The units that it concerns."""
        return (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartExisting(_OneUnit):
    """Start a unit that has a file."""

    timeout_sec: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(_OneUnit):
    """Restart a unit that has a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetValues(_OneUnit):
    """Change properties of a loaded unit."""

    properties: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach(_OneUnit):
    """Move processes into a scope or service."""

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(_OneUnit):
    """Stop a unit with all units below it."""

    timeout_sec: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(_OneUnit):
    """Send a signal to the processes of a unit and of the units below it."""

    signal_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetFailed(_OneUnit):
    """Reset the failed state of a unit."""


Change = (
    Start
    | StartBatch
    | StartTimer
    | StartExisting
    | Restart
    | Reload
    | SetValues
    | Attach
    | Stop
    | StopBatch
    | Kill
    | ResetFailed
)
"""A change of units; the methods of `Client` describe each."""


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
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
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
        await self.submit(Start(unit=unit))

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        """Move running processes into a scope or service that is up and has `Delegate`.

        Raises:
            NoSuchUnit: no such unit is loaded.
            BadProperty: one of the processes has exited or is a kernel thread, or the unit does
                not take processes; some of them may have been moved.
        """
        await self.submit(Attach(name=name, pids=tuple(pids)))

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        """Start many units with one call and one job, all of them or none.

        The parent of each must be active or in the same batch.

        Raises:
            UnitExists, BadProperty, JobFailed: as `start` (but a failed unit is not replaced); no
                unit of the batch was started, or (JobFailed) the started ones still exist. Slices
                that were implied may have their new properties. The error does not name the unit
                that caused it.
        """
        await self.submit(StartBatch(units=tuple(units)))

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
        await self.submit(StartTimer(timer=timer, service=service))

    async def start_existing(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Start a unit that has a file and wait until it is up; one that is up stays as it is.

        `timeout_sec` replaces the usual limit of the job.

        Raises:
            NoSuchUnit: systemd has found no file of that name when it last read them.
            BadProperty: the file has an invalid setting.
            CallTimeout: the limit is exceeded; the job stays queued.
            JobFailed: the result of the start job is not "done".
        """
        await self.submit(StartExisting(name=name, timeout_sec=timeout_sec))

    async def restart(self, name: UnitName) -> None:
        """Restart a unit that has a file and wait until it is up; one that is down is started.

        Raises:
            NoSuchUnit, BadProperty, CallTimeout, JobFailed: as `start_existing`.
        """
        await self.submit(Restart(name=name))

    async def reload(self) -> None:
        """Let systemd run its generators, and read all unit files again; no unit starts or stops."""
        await self.submit(Reload())

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        """Change properties of a loaded unit until the next boot; in force on return.

        A slice that exists only as the parent of another unit becomes a transient unit.

        Raises:
            NoSuchUnit: no such unit is loaded (systemd itself would accept the call and write a
                drop-in that applies to a later unit of that name).
            BadProperty: systemd rejects a property or a value; nothing changed.
        """
        await self.submit(SetValues(name=name, properties=properties))

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Stop a unit with all units below it and wait; a unit that is not loaded is not an error.

        `timeout_sec` replaces the usual limit of the job. Drop-ins of `set_properties` are removed
        with the unit, unless it has a file.

        Raises:
            CallTimeout: the limit is exceeded; the job stays queued.
            JobFailed: the result of the stop job is not "done".
        """
        await self.submit(Stop(name=name, timeout_sec=timeout_sec))

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        """Stop many units with one job; units that are not loaded are not an error.

        Raises:
            JobFailed: the result of the job is not "done"; some units may be stopped.
        """
        await self.submit(StopBatch(names=tuple(names)))

    async def kill(self, name: UnitName, signal_number: int) -> None:
        """Send a signal to every process of a unit and of the units below it.

        A unit that is not loaded, or without processes, is not an error.
        """
        await self.submit(Kill(name=name, signal_number=signal_number))

    async def reset_failed(self, name: UnitName) -> None:
        """Reset the failed state of a unit; a unit that is not loaded is not an error."""
        await self.submit(ResetFailed(name=name))


class ClientAround(Client):
    """A client that passes every call on to another one; its subclasses add to some of them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    async def caps(self) -> Caps:
        return await self._client.caps()

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        return await self._client.observe(patterns)

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        return await self._client.list_units(patterns)

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        return await self._client.inspect(name)

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        return await self._client.read_definition(name)

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        return await self._client.read_predecessors(name)

    async def submit(self, change: Change) -> None:
        await self._client.submit(change)


class Operation(StrEnum):
    """An operation on a control group, named as in the kubelet's metrics.

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, CgroupManagerDuration.
    """

    CREATE = "create"
    UPDATE = "update"
    DESTROY = "destroy"


OnOperation = Callable[[Operation, float], None]


_OPERATIONS = {
    Start: Operation.CREATE,
    StartBatch: Operation.CREATE,
    SetValues: Operation.UPDATE,
    Stop: Operation.DESTROY,
    StopBatch: Operation.DESTROY,
}


class TimedClient(ClientAround):
    """Measures how long another client takes to create, change or remove each unit.

    The units of a batch are started together, so that each takes as long as the batch.
    """

    def __init__(self, client: Client, on_operation: OnOperation) -> None:
        """Call `on_operation` with each operation that succeeds and its duration in seconds."""
        super().__init__(client)
        self._on_operation = on_operation

    async def submit(self, change: Change) -> None:
        now = asyncio.get_running_loop().time
        begun = now()
        await self._client.submit(change)
        operation = _OPERATIONS.get(type(change))
        if operation is not None:
            for _ in change.names:
                self._on_operation(operation, now() - begun)
