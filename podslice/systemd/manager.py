"""A service manager over D-Bus: the connection to it, its jobs, its signals and its errors."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from podslice.errors import (
    BadProperty,
    BusUnavailable,
    CallTimeout,
    JobFailed,
    NoSuchUnit,
    Refused,
    SystemdError,
    UnitExists,
)
from podslice.model.container_exit import ContainerExit
from podslice.model.unit import Manager, UnitName
from podslice.systemd.client import OnChange, OnExit
from podslice.systemd.dbus.connection import Connection, ConnectionLost, Peer, in_time
from podslice.systemd.dbus.wire import Received, Wire
from podslice.systemd.values import EXIT_TYPES, decode, main_exit

log = logging.getLogger(__name__)

T = TypeVar("T")

_SERVICE = "org.freedesktop.systemd1"
MANAGER = f"{_SERVICE}.Manager"
MANAGER_PATH = "/org/freedesktop/systemd1"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_UNIT = f"{_SERVICE}.Unit"

_JOB_TIMEOUTS = 4
"""The limit of a job in limits of a reply: stopping a unit takes up to TimeoutStopSec=, 90 s."""

_SYSTEM_HINT = "is systemd running, and is /run/dbus accessible?"
_USER_HINT = "is a user manager running (loginctl enable-linger), and XDG_RUNTIME_DIR set?"

_FROM = f"type='signal',sender='{_SERVICE}'"
_SIGNAL = f"{_FROM},path='{MANAGER_PATH}',interface='{MANAGER}',member="
_CHANGED = f"{_FROM},interface='{_PROPERTIES}',member='PropertiesChanged',arg0='{_SERVICE}."
_OF_JOBS = f"{_SIGNAL}'JobRemoved'"
"""The match rule for jobs. Without Subscribe, systemd signals the jobs of this connection only."""
_OF_CHANGES = (
    # the interface of slices has no property whose changes are signalled
    f"{_CHANGED}Scope'",
    f"{_CHANGED}Service'",
    f"{_SIGNAL}'UnitRemoved'",
    f"{_SIGNAL}'Reloading'",
)


class Systemd:
    """The service manager at the other end of a connection, which is opened again after a loss.

    A call that is interrupted before the reply (daemon-reexec, a restarted bus) is repeated once;
    repeating is harmless for each of them, except for the start of a transient unit (see `run_once`).
    """

    def __init__(
        self,
        manager: Manager,
        *,
        timeout_sec: float,
        in_flight: int,
        on_change: OnChange | None,
        on_exit: OnExit | None,
    ) -> None:
        """Prepare a connection, as `bus.Bus` describes the arguments."""
        self._peer = Peer(
            address=manager.bus_address,
            service=_SERVICE,
            title="systemd",
            error_of=error_of,
            matches=(_OF_JOBS, *_OF_CHANGES) if on_change else (_OF_JOBS,),
            hint=_USER_HINT if manager.is_user else _SYSTEM_HINT,
            timeout_sec=timeout_sec,
            in_flight=in_flight,
        )
        self.jobs = Jobs(timeout_sec=timeout_sec * _JOB_TIMEOUTS)
        """The jobs that calls wait for."""
        self._changes = ChangeSignals(on_change, on_exit) if on_change else None
        self._connecting = asyncio.Lock()
        self.connection: Connection | None = None
        """The current connection, which may be lost."""
        self._is_closed = True

    async def open(self) -> None:
        """Connect."""
        self._is_closed = False
        await self.connected()

    async def close(self) -> None:
        """Close the connection; further calls fail."""
        self._is_closed = True
        if self._changes is not None:
            self._changes.end()
        if self.connection is not None:
            await self.connection.close()

    async def connected(self) -> Connection:
        """Return the current connection; connect if there is none."""
        # Calls that find the connection lost at the same time open a single one.
        async with self._connecting:
            if self._is_closed:
                raise BusUnavailable("the client is closed")  # also for calls in flight
            if self.connection is not None and not self.connection.lost:
                if self._changes is None or self._changes.is_active:
                    return self.connection
                # systemd left the bus and may have returned: whether it kept the subscription is
                # not known, and a new connection is sure to have one
                await self.connection.close()
            listeners = [self.jobs] if self._changes is None else [self.jobs, self._changes]
            connection = self.connection = await Connection.open(self._peer, *listeners)
            if self._changes is not None:
                about = "systemd's signals"
                await connection.call(
                    "Subscribe", path=MANAGER_PATH, interface=MANAGER, about=about
                )
                self._changes.begin()
            return connection

    async def call(
        self,
        member: str,
        signature: str = "",
        *body: object,
        about: str,
        path: str = MANAGER_PATH,
        interface: str = MANAGER,
        timeout_sec: float | None = None,
    ) -> Received:
        """Call a method, by default of the manager; `about` is the subject in messages of errors."""

        async def call() -> Received:
            return await (await self.connected()).call(
                member,
                signature,
                body,
                path=path,
                interface=interface,
                about=about,
                timeout_sec=timeout_sec,
            )

        return await twice(call)

    async def own_property(self, key: str) -> Wire:
        """Return a property of the manager itself."""
        return await self._get(MANAGER_PATH, MANAGER, key, f"systemd's {key}")

    async def unit_property(self, name: UnitName, key: str) -> Wire:
        """Return a property that every kind of unit has."""
        return await self._get(path_of(name), _UNIT, key, name)

    async def _get(self, path: str, interface: str, key: str, about: str) -> Wire:
        reply = await self.call(
            "Get", "ss", interface, key, about=about, path=path, interface=_PROPERTIES
        )
        (value,) = reply.body("v")
        return decode(key, value)

    async def all_properties(self, name: UnitName, kind: str) -> Received:
        """Return the properties of a unit that its kind (`Slice`) adds; with an empty kind all.

        All of a unit take systemd 0.5 ms at the first call, five times as long as those of its
        kind: it looks for presets.
        """
        interface = f"{_SERVICE}.{kind}" if kind else ""
        return await self.call(
            "GetAll", "s", interface, about=name, path=path_of(name), interface=_PROPERTIES
        )

    async def run(
        self,
        member: str,
        signature: str,
        *body: object,
        about: str,
        timeout_sec: float | None = None,
    ) -> None:
        """Call a method that queues a job, and wait for it.

        `timeout_sec` replaces the usual limit of the job.

        Raises:
            CallTimeout: the job did not finish in time; it stays queued.
            JobFailed: its result is not "done".
        """
        await twice(
            lambda: self.run_once(member, signature, *body, about=about, timeout_sec=timeout_sec)
        )

    async def run_once(
        self,
        member: str,
        signature: str,
        *body: object,
        about: str,
        timeout_sec: float | None = None,
        descriptors: Sequence[int] = (),
    ) -> None:
        """As `run`, and not repeated after an interruption; `descriptors` are sent with the call.

        Raises:
            ConnectionLost: it was interrupted, and may have taken effect.
        """
        connection = await self.connected()
        call = connection.call(
            member,
            signature,
            body,
            path=MANAGER_PATH,
            interface=MANAGER,
            about=about,
            descriptors=descriptors,
        )
        result = await self.jobs.result(call, about, timeout_sec=timeout_sec)
        if result != "done":
            raise JobFailed(
                f"{about}: systemd's job finished with the result {result!r}", result=result
            )


async def twice(
    work: Callable[[], Awaitable[T]], again: Callable[[], Awaitable[T]] | None = None
) -> T:
    """Run a call; if it is interrupted, run it once more, or `again` in its place."""
    try:
        return await work()
    except ConnectionLost as error:
        log.debug("%s; trying again", error)
    return await (again or work)()


class Jobs:
    """The jobs that calls wait for."""

    def __init__(self, *, timeout_sec: float) -> None:
        self._timeout_sec = timeout_sec
        # a list: systemd merges equal jobs, so that several calls can wait for one
        self.waiting: dict[str, list[asyncio.Future[str]]] = {}
        # results that arrived before the reply that names their job; kept while a call has none
        self.early: dict[str, str] = {}
        self._calls = 0
        self._interruptions = 0

    async def result(
        self, call: Awaitable[Received], about: str, *, timeout_sec: float | None = None
    ) -> str:
        """Return the result of the job that a call queues and replies with the path of.

        `timeout_sec` replaces the usual limit for this job.

        Raises:
            CallTimeout: the job did not finish in time; it stays queued.
            ConnectionLost: systemd or the connection was lost; the result is not known.
        """
        self._calls += 1
        interruptions = self._interruptions
        try:
            (job,) = (await call).body("o")
            if job in self.early:
                return self.early[job]
            # The loss was reported before there was a future to receive it.
            if interruptions != self._interruptions:
                raise ConnectionLost(f"systemd was lost before {job} finished")
            future = asyncio.get_running_loop().create_future()
            waiting = self.waiting.setdefault(job, [])
            waiting.append(future)
        finally:
            self._calls -= 1
            # Without a call in flight, no later reply can name one of these jobs.
            if not self._calls:
                self.early.clear()
        try:
            async with in_time(self._timeout_sec if timeout_sec is None else timeout_sec, about):
                return str(await future)
        finally:
            waiting.remove(future)
            if not waiting:
                self.waiting.pop(job, None)

    def on_signal(self, signal: Received) -> None:
        """Handle a signal that systemd sent."""
        if (signal.interface, signal.member) != (MANAGER, "JobRemoved"):
            return
        _id, job, _unit, result = signal.body("uoss")
        # While any client subscribes, the jobs of all clients are signalled to this one as well.
        for future in self.waiting.get(job, ()):
            if not future.done():
                future.set_result(result)
        if self._calls:
            self.early[job] = result

    def on_interruption(self, error: ConnectionLost) -> None:
        """Raise the error in all waiting calls: their signals may never arrive."""
        self._interruptions += 1
        for future in (future for waiting in self.waiting.values() for future in waiting):
            if not future.done():
                future.set_exception(ConnectionLost(str(error)))


_EXIT = frozenset(key for key in EXIT_TYPES if key.startswith("ExecMain")) | {"Result"}
"""The properties that describe an exit, which one signal has together."""


class ChangeSignals:
    """Calls `on_change` and `on_exit` for systemd's signals, as long as the subscription is in force."""

    def __init__(self, on_change: OnChange, on_exit: OnExit | None = None) -> None:
        self._on_change = on_change
        self._on_exit = on_exit
        self.is_active = False
        """Whether the subscription is in force."""
        self._is_reloading = False

    def begin(self) -> None:
        """Report that changes are signalled from now on; earlier ones are not known."""
        self.is_active, self._is_reloading = True, False
        self._on_change(None)

    def end(self) -> None:
        """Stop reporting changes."""
        self.is_active = False

    def on_signal(self, signal: Received) -> None:
        """Handle a signal that systemd sent."""
        if not self.is_active:
            return
        if signal.member == "Reloading":
            (self._is_reloading,) = signal.body("b")
            if not self._is_reloading:
                self._on_change(None)
        elif not self._is_reloading:  # a reload removes and adds every unit
            name = _unit_of(signal)
            if self._on_exit is not None and signal.member == "PropertiesChanged":
                last = _exit_in(signal)
                if last is not None:
                    self._on_exit(name, last)
            self._on_change(name)

    def on_interruption(self, _error: ConnectionLost) -> None:
        """Report once that changes are not signalled from now on."""
        if self.is_active:
            self.is_active = False
            self._on_change(None)


def _exit_in(signal: Received) -> ContainerExit | None:
    """Return the exit of a main process; None while it runs, and for other units than services."""
    found = signal.changed_properties(EXIT_TYPES)
    is_typed = all(isinstance(value, EXIT_TYPES[key]) for key, value in found.items())
    return main_exit(found) if is_typed and found.keys() >= _EXIT else None


def _unit_of(signal: Received) -> UnitName:
    """Return the unit of a signal."""
    if signal.member == "PropertiesChanged":
        label = signal.path.rpartition("/")[2]
        return UnitName(re.sub("_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), label))
    if signal.member == "JobRemoved":
        _id, _job, unit, _result = signal.body("uoss")
    else:  # UnitRemoved
        unit, _path = signal.body("so")
    return UnitName(unit)


def path_of(name: UnitName) -> str:
    """Return the object path of a unit: `a-b.slice` → `…/unit/a_2db_2eslice`.

    Source: systemd, src/basic/bus-label.c, bus_label_escape.
    """
    escaped = re.sub(r"^[0-9]|[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", name)
    return f"{MANAGER_PATH}/unit/{escaped}"


_BUS = "org.freedesktop.DBus.Error."

_ERRORS: dict[str, type[SystemdError]] = {
    f"{_SERVICE}.UnitExists": UnitExists,
    f"{_SERVICE}.NoSuchUnit": NoSuchUnit,
    f"{_SERVICE}.BadUnitSetting": BadProperty,  # a required property is missing
    _BUS + "InvalidArgs": BadProperty,
    _BUS + "PropertyReadOnly": BadProperty,  # systemd replies so to an unknown property, too
    _BUS + "UnknownProperty": BadProperty,
    _BUS + "FileNotFound": BadProperty,  # a scope without processes
    _BUS + "UnixProcessIdUnknown": BadProperty,  # a process that has exited
    "System.Error.ENXIO": BadProperty,  # a value of the wrong type
    "System.Error.ESRCH": BadProperty,  # as UnixProcessIdUnknown, from 255 on
    _BUS + "AccessDenied": Refused,
    _BUS + "AuthFailed": Refused,
    _BUS + "InteractiveAuthorizationRequired": Refused,
    "System.Error.EACCES": Refused,
    "System.Error.EPERM": Refused,
    _BUS + "Timeout": CallTimeout,
    _BUS + "TimedOut": CallTimeout,
    _BUS + "LimitsExceeded": BusUnavailable,
}
"""By name; every other error is a SystemdError whose message has the name."""

_PROCESS_EXITED = {_BUS + "UnixProcessIdUnknown", "System.Error.ESRCH"}


def error_of(reply: Received, about: str) -> SystemdError:
    """Return the error for an error reply; `about` is the unit, or another subject of the call."""
    reason = reply.reason
    if reply.error_name in _PROCESS_EXITED:
        reason = f"a process has exited ({reason})"
    kind = _ERRORS.get(reply.error_name, SystemdError)
    if kind is Refused:
        return Refused(f"{about}: access denied ({reason}); run as root, or use --user")
    if kind is SystemdError:
        return SystemdError(f"{about}: {reason} ({reply.error_name})")
    return kind(f"{about}: {reason}")
