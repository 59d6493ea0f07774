"""What podslice asks of systemd. `bus` does it over D-Bus, `memory` in memory, for tests.

Both are held to one contract by tests/bus/test_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from podslice.model.unit import Caps, ListedUnit, ObservedUnit, TransientUnit, UnitName, Value

OnChange = Callable[[UnitName | None], None]
"""Is told that a unit may have changed, or with None that anything may have.

A client that is made with one has systemd tell of every unit that was started or stopped, every
scope that changes, and every unit that is forgotten; of those of others, too, and more often than
something has changed. systemd tells nobody of `set_properties`, whoever calls it.

None comes when systemd tells of changes from now on, which is so after each time that a call has
connected; when it has read its files again; and when the connection or systemd itself went away:
then nothing more is told until a call has connected anew. It is called from within the event loop
and must neither block nor raise.
"""

PIDFDS_MAX = 16
"""Descriptors that one call may carry: what dbus-daemon passes on the system bus.

Source: dbus, NEWS of 1.8.8 (CVE-2014-3636), max_message_unix_fds.
"""


class Client(Protocol):
    """One connection to one service manager.

    Every call ends within a bounded time. Beside the errors named below, every call raises
    `BusUnavailable`, `CallTimeout` and `Refused`. After `BusUnavailable` the next call connects
    anew. Calls may be made concurrently; the client bounds what is in flight.
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
        """Close the connection and everything that belongs to it."""

    async def caps(self) -> Caps:
        """What the service manager can do."""

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        """One snapshot of the loaded units whose names match a pattern, by name.

        Patterns are systemd's globs (`kubepods-*.slice`), in which a backslash stands for itself, as
        in the names of mounts; without any there is no unit. Left out are units that are not
        there, and names that other units only refer to. Properties are limits and the like, no
        dependencies.
        """

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        """The loaded units whose names match a pattern, by name: one call, however many there are.

        As `observe`, except that names which other units only refer to may be among them; those
        are "inactive".
        """

    async def start(self, unit: TransientUnit) -> None:
        """Start a transient slice, scope, service or mount and wait until systemd says it is up.

        A scope takes the processes of `PIDs`, or, where `Caps.pidfds` says so, of `PIDFDs`: at most
        `PIDFDS_MAX` open descriptors, which stay the caller's. A service of type `exec` is up when
        its command runs, one of type `oneshot` when it has ended, and a mount when it is there.

        A slice that is merely implied by something below it becomes this unit; a leftover that
        failed gives way; a mount that is loaded and down is mounted again, as it was.

        Raises:
            UnitExists: another such unit is loaded; nothing changed.
            BadProperty: systemd refuses the name, a property or a value, or one of the processes
                has ended; nothing changed.
            JobFailed: the start job ended otherwise than "done".
        """

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        """Move running processes into a scope or service that is up and has `Delegate`.

        Raises:
            NoSuchUnit: no such unit is loaded.
            BadProperty: one of the processes has ended, is a kernel thread, or the unit does not
                take any; some of them may have been moved.
        """

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        """Start many units with one call and one job, all of them or none.

        Each has to have its parent up already or to be in the same batch.

        Raises:
            UnitExists, BadProperty, JobFailed: as `start` (but a leftover that failed is in the
                way); no unit of the batch was started, or (JobFailed) what was started is still
                there. Slices that were implied may have their new properties. Which one was at
                fault is not told.
        """

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        """Start a transient timer; the service of the same name is loaded with it, not started.

        When the timer elapses systemd starts the service, whatever has become of the client. With
        the timer stopped before, or the service done (a timer with `RemainAfterElapse` off goes
        with it), systemd forgets both. Both are there after a daemon-reload as before.

        Raises:
            UnitExists: one of them is loaded; nothing changed.
            BadProperty: systemd refuses a name, a property or a value, or the names do not
                belong together; nothing changed.
            JobFailed: the timer's start job ended otherwise than "done".
        """

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        """Change properties of a loaded unit until the end of the boot; in force on return.

        A slice that was merely implied becomes a transient unit.

        Raises:
            NoSuchUnit: no such unit is loaded (systemd itself would accept the call and leave a
                drop-in that leaks into a later unit of the name).
            BadProperty: systemd refuses a property or a value; nothing changed.
        """

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        """Stop a unit with everything below it and wait for the end; no unit is no error.

        `timeout_sec` is how long the job may take, where that is not what is usual. Drop-ins that
        `set_properties` left are gone with the unit, unless it has a file.

        Raises:
            CallTimeout: it takes longer; the job stays queued.
            JobFailed: the stop job ended otherwise than "done".
        """

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        """Stop many units with one job; units that are not loaded are no error.

        Raises:
            JobFailed: the job ended otherwise than "done"; some units may be stopped.
        """

    async def kill(self, name: UnitName, signal_number: int) -> None:
        """Send a signal to every process of a unit, those of the units in it included.

        No unit, and no process in it, are no error.
        """

    async def reset_failed(self, name: UnitName) -> None:
        """Make systemd forget that a unit failed; no unit is no error."""
