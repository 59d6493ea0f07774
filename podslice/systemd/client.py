"""The interface to systemd, which `bus` implements over D-Bus, and a fake of the tests in memory.

tests/bus/test_contract.py checks both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from podslice.model.container_exit import ContainerExit
from podslice.model.unit import Caps, ListedUnit, ObservedUnit, TransientUnit, UnitName, Value

if TYPE_CHECKING:
    from podslice.model.inspected_unit import InspectedUnit
    from podslice.model.unit_definition import UnitDefinition

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


class Client(Protocol):
    """One connection to one service manager.

    Every call returns within a limited time. Beside the errors named below, every call raises
    `BusUnavailable`, `CallTimeout` and `Refused`. After `BusUnavailable` the next call connects
    again. Calls may be concurrent; the client limits their number.
    """

    async def __aenter__(self) -> Self:
        """Connect."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Close the connection."""

    async def caps(self) -> Caps:
        """Return the capabilities of the service manager."""

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        """Return the loaded units whose names match a pattern, by name.

        Patterns are systemd's globs (`kubepods-*.slice`), in which a backslash is literal, as in
        the names of mounts; without patterns the result is empty. Units that are not loaded, or
        only referenced by other units, are left out. Properties are resource limits and the like,
        without dependencies.
        """

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """List the loaded units whose names match a pattern, by name, with a single call.

        As `observe`, except that names that are only referenced by other units may be included;
        those are "inactive".
        """

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        """Return a service, scope or slice with all settings of resources; None if there is none.

        A unit that is not loaded is loaded for this. One whose file is invalid or masked has a load
        state of that name, and no settings.
        """

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        """Return the files of a unit, and where it is; one that is not loaded is loaded for this.

        A unit that does not exist has the load state "not-found".
        """

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        """Return the units that a unit is ordered after, directly or by way of others."""

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

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        """Move running processes into a scope or service that is up and has `Delegate`.

        Raises:
            NoSuchUnit: no such unit is loaded.
            BadProperty: one of the processes has exited or is a kernel thread, or the unit does
                not take processes; some of them may have been moved.
        """

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        """Start many units with one call and one job, all of them or none.

        The parent of each must be active or in the same batch.

        Raises:
            UnitExists, BadProperty, JobFailed: as `start` (but a failed unit is not replaced); no
                unit of the batch was started, or (JobFailed) the started ones still exist. Slices
                that were implied may have their new properties. The error does not name the unit
                that caused it.
        """

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

    async def start_existing(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Start a unit that has a file and wait until it is up; one that is up stays as it is.

        `timeout_sec` replaces the usual limit of the job.

        Raises:
            NoSuchUnit: systemd has found no file of that name when it last read them.
            BadProperty: the file has an invalid setting.
            CallTimeout: the limit is exceeded; the job stays queued.
            JobFailed: the result of the start job is not "done".
        """

    async def restart(self, name: UnitName) -> None:
        """Restart a unit that has a file and wait until it is up; one that is down is started.

        Raises:
            NoSuchUnit, BadProperty, CallTimeout, JobFailed: as `start_existing`.
        """

    async def reload(self) -> None:
        """Let systemd run its generators, and read all unit files again; no unit starts or stops."""

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        """Change properties of a loaded unit until the next boot; in force on return.

        A slice that exists only as the parent of another unit becomes a transient unit.

        Raises:
            NoSuchUnit: no such unit is loaded (systemd itself would accept the call and write a
                drop-in that applies to a later unit of that name).
            BadProperty: systemd rejects a property or a value; nothing changed.
        """

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Stop a unit with all units below it and wait; a unit that is not loaded is not an error.

        `timeout_sec` replaces the usual limit of the job. Drop-ins of `set_properties` are removed
        with the unit, unless it has a file.

        Raises:
            CallTimeout: the limit is exceeded; the job stays queued.
            JobFailed: the result of the stop job is not "done".
        """

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        """Stop many units with one job; units that are not loaded are not an error.

        Raises:
            JobFailed: the result of the job is not "done"; some units may be stopped.
        """

    async def kill(self, name: UnitName, signal_number: int) -> None:
        """Send a signal to every process of a unit and of the units below it.

        A unit that is not loaded, or without processes, is not an error.
        """

    async def reset_failed(self, name: UnitName) -> None:
        """Reset the failed state of a unit; a unit that is not loaded is not an error."""
