"""The client of systemd over D-Bus.

It implements `client.Client` with the calls of `manager_calls`, over a connection of `dbus`; `signals`
waits for their results.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, assert_never

from podslice.errors import (
    BadProperty,
    BusUnavailable,
    CallTimeout,
    NoSuchUnit,
    Refused,
    SystemdError,
    UnitExists,
)
from podslice.kernel.host import read_possible
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import (
    Caps,
    InspectedUnit,
    ListedUnit,
    Manager,
    ObservedUnit,
    TransientUnit,
    UnitDefinition,
    UnitKind,
    UnitName,
    Value,
)
from podslice.systemd.call_checks import check_change, check_name, is_changeable, kind_of
from podslice.systemd.client import (
    Attach,
    Change,
    Client,
    Kill,
    OnChange,
    OnExit,
    Reload,
    ResetFailed,
    Restart,
    SetValues,
    Start,
    StartBatch,
    StartExisting,
    StartTimer,
    Stop,
    StopBatch,
)
from podslice.systemd.dbus.connection import Connection, ConnectionLost, Peer
from podslice.systemd.dbus.wire import Received
from podslice.systemd.manager_calls import ManagerCalls, exists, is_as_requested, is_implied
from podslice.systemd.observe_units import (
    inspect_unit,
    observe_units,
    read_definition,
    read_predecessors,
)
from podslice.systemd.signals import MATCH, MATCHES, ChangeSignals, Jobs
from podslice.systemd.slice_files import SliceFiles
from podslice.systemd.tasks import run_concurrently

log = logging.getLogger(__name__)

T = TypeVar("T")

_JOB_TIMEOUTS = 4
"""The limit of a job in limits of a reply: stopping a unit takes up to TimeoutStopSec=, 90 s."""

_RELOAD_COUNT_SINCE = 261
_SYSTEM_HINT = "is systemd running, and is /run/dbus accessible?"
_USER_HINT = "is a user manager running (loginctl enable-linger), and XDG_RUNTIME_DIR set?"


class Bus(Client):
    """A client of a service manager over D-Bus.

    A call that is interrupted before the reply (daemon-reexec, a restarted bus) is repeated once;
    repeating is harmless for each of them.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        timeout_sec: float = 30,
        in_flight: int = 32,
        on_change: OnChange | None = None,
        on_exit: OnExit | None = None,
        files: SliceFiles | None = None,
    ) -> None:
        """Prepare a client; `async with` connects it.

        Args:
            manager: the service manager to connect to.
            timeout_sec: for connecting and for every reply; a job may take four times as long.
            in_flight: calls without a reply at any time.
            on_change: called on changes; without it the client does not subscribe to any.
            on_exit: called on exits of services, for a client that subscribes.
            files: the files of slices that are as they were started. Not together with `on_change`:
                a file exists for some moments before it is in force.
        """
        self._caps_of = partial(_caps, manager)
        self._peer = Peer(
            address=manager.bus_address,
            service="org.freedesktop.systemd1",
            title="systemd",
            error_of=error_of,
            matches=(MATCH, *MATCHES) if on_change else (MATCH,),
            hint=_USER_HINT if manager.is_user else _SYSTEM_HINT,
            timeout_sec=timeout_sec,
            in_flight=in_flight,
        )
        self._files = files
        self.jobs = Jobs(timeout_sec=timeout_sec * _JOB_TIMEOUTS)
        """The jobs that calls wait for."""
        self._changes = ChangeSignals(on_change, on_exit) if on_change else None
        self._connecting = asyncio.Lock()
        self.connection: Connection | None = None
        """The current connection, which may be lost."""
        self._closed = True

    async def __aenter__(self) -> Self:
        self._closed = False
        await self.calls()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        self._closed = True
        if self._changes is not None:
            self._changes.end()
        if self.connection is not None:
            await self.connection.close()

    async def caps(self) -> Caps:
        return await self._insist(self._caps_of)

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        if not patterns:
            return ()  # systemd takes no pattern for all units
        return await self._insist(partial(observe_units, patterns, self._files))

    async def default_tasks_max(self) -> int:
        """Return the limit of tasks of a service or scope that states none."""
        return int(await self._insist(lambda calls: calls.own_property("DefaultTasksMax")))

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        if not patterns:
            return ()
        return await self._insist(lambda calls: calls.list_units(patterns))

    async def inspect(self, name: UnitName) -> InspectedUnit | None:
        check_name(name)
        return await self._insist(partial(inspect_unit, name))

    async def read_definition(self, name: UnitName) -> UnitDefinition:
        check_name(name)
        return await self._insist(partial(read_definition, name))

    async def read_predecessors(self, name: UnitName) -> frozenset[UnitName]:
        check_name(name)
        return await self._insist(partial(read_predecessors, name))

    async def submit(self, change: Change) -> None:  # noqa: C901, PLR0912 - a case for each kind
        check_change(change)
        match change:
            case Start(unit=unit):
                await self._insist(partial(_start, unit), again=partial(_start_again, unit))
            case StartBatch(units=units):
                if units:
                    again = partial(_start_all_again, units)
                    await self._insist(partial(_start_all, units), again=again)
            case StartTimer(timer=timer, service=service):
                await self._insist(
                    lambda calls: calls.start_transient(timer, service),
                    again=partial(_start_timer_again, timer, service),
                )
            case StartExisting(name=name, timeout_sec=timeout_sec):
                await self._insist(lambda calls: calls.start_loaded(name, timeout_sec))
            case Restart(name=name):
                await self._insist(lambda calls: calls.restart(name))
            case Reload():
                await self._insist(lambda calls: calls.reload())
            case SetValues(name=name, properties=properties):
                await self._insist(partial(_set_properties, name, properties))
            case Attach(name=name, pids=pids):
                await self._insist(lambda calls: calls.attach(name, pids))
            case Stop(name=name, timeout_sec=timeout_sec):
                await self._insist(partial(_stop, name, timeout_sec))
            case StopBatch(names=names):
                if names:
                    await self._insist(partial(_stop_all, names))
            case Kill(name=name, signal_number=number):
                await self._insist(lambda calls: calls.kill(name, number))
            case ResetFailed(name=name):
                await self._insist(lambda calls: calls.reset_failed(name))
            case _:
                assert_never(change)

    async def calls(self) -> ManagerCalls:
        """Return the calls of the current connection; connect if there is none."""
        async with self._connecting:
            if self._closed:
                raise BusUnavailable("the client is closed")  # also for calls in flight
            if self.connection is None or self.connection.lost:
                return await self._connect()
            if self._changes is not None and not self._changes.is_active:
                # systemd left the bus and may have returned: whether it kept the subscription is
                # not known, and a new connection is sure to have one
                await self.connection.close()
                return await self._connect()
            return ManagerCalls(self.connection, self.jobs)

    async def _connect(self) -> ManagerCalls:
        listeners = [self.jobs] if self._changes is None else [self.jobs, self._changes]
        self.connection = await Connection.open(self._peer, *listeners)
        calls = ManagerCalls(self.connection, self.jobs)
        if self._changes is not None:
            await calls.subscribe()
            self._changes.begin()
        return calls

    async def _insist(
        self,
        work: Callable[[ManagerCalls], Awaitable[T]],
        *,
        again: Callable[[ManagerCalls], Awaitable[T]] | None = None,
    ) -> T:
        """Run a call; if it is interrupted, run it once more, or `again` in its place."""
        try:
            return await work(await self.calls())
        except ConnectionLost as error:
            log.debug("%s; trying again", error)
        return await (again or work)(await self.calls())


# Each of the calls above, on one connection, once.


async def _caps(manager: Manager, calls: ManagerCalls) -> Caps:
    version = await calls.version()
    pidfds = version >= PROPERTIES["PIDFDs"].since and calls.connection.takes_descriptors
    has_count = version >= _RELOAD_COUNT_SINCE
    reload_count = int(await calls.own_property("ReloadCount")) if has_count else None
    return Caps(systemd_version=version, manager=manager, pidfds=pidfds, reload_count=reload_count)


async def _start(unit: TransientUnit, calls: ManagerCalls) -> None:
    try:
        await calls.start_transient(unit)
    except UnitExists:
        state = await calls.unit_property(unit.name, "ActiveState")
        if state == "failed":
            # once reset, systemd unloads it, and the name is free
            await calls.reset_failed(unit.name)
            await calls.start_transient(unit)
        elif state == "inactive" and kind_of(unit.name) is UnitKind.MOUNT:
            # it was unmounted externally, while a container ordered after it keeps it loaded
            await calls.start_loaded(unit.name)
        elif state == "inactive" and await calls.unit_property(unit.name, "Transient"):
            await _start_down(unit, calls)
        else:
            raise


async def _start_down(unit: TransientUnit, calls: ManagerCalls) -> None:
    """Start an inactive unit that a failed unit in it keeps loaded.

    Properties that it had before, and that are not requested now, are unset, except those that are
    managed on the units of pods only.
    """
    found = await calls.properties(unit.name)
    managed = {name: PROPERTIES[name] for name in MANAGED[kind_of(unit.name)] if name in found}
    unset = {
        name: row.unset
        for name, row in managed.items()
        if row.unset is not None and found[name] != row.unset and not row.of_pods
    }
    requested = {name: value for name, value in unit.properties.items() if is_changeable(name)}
    await calls.set_properties(unit.name, {**unset, **requested})
    await calls.start_loaded(unit.name)


async def _start_again(unit: TransientUnit, calls: ManagerCalls) -> None:
    """Start a unit after a call without a reply, which may have started it already."""
    try:
        await _start(unit, calls)
    except UnitExists:
        if not is_as_requested(unit, await calls.properties(unit.name)):
            raise
        await calls.start_loaded(unit.name)


async def _start_all(units: Sequence[TransientUnit], calls: ManagerCalls) -> None:
    names = tuple(unit.name for unit in units)
    # Requires, not Wants: a unit that does not come up fails the job
    await calls.run_waiter(names, {"Requires": names, "After": names}, units)


async def _start_all_again(units: Sequence[TransientUnit], calls: ManagerCalls) -> None:
    try:
        await _start_all(units, calls)
    except UnitExists:
        await run_concurrently(_start_again(unit, calls) for unit in units)


async def _start_timer_again(
    timer: TransientUnit, service: TransientUnit, calls: ManagerCalls
) -> None:
    try:
        await calls.start_transient(timer, service)
    except UnitExists:
        for unit in (timer, service):
            if not is_as_requested(unit, await calls.properties(unit.name)):
                raise
        await calls.start_loaded(timer.name)


async def _set_properties(name: UnitName, values: Mapping[str, Value], calls: ManagerCalls) -> None:
    # systemd also accepts properties of a unit that does not exist, and keeps them in a drop-in
    await calls.check_loaded(name)
    if await calls.unit_property(name, "Transient"):
        return await _change(name, values, calls)
    found = await calls.properties(name)
    if not exists(found):
        raise NoSuchUnit(f"{name}: not loaded, only referenced by other units")
    if is_implied(found):
        # A drop-in of a unit that is not transient outlives it, and overrides the properties of a
        # later unit of that name. Those of a transient unit are removed with it.
        return await calls.start_transient(TransientUnit(name=name, properties=values))
    return await _change(name, values, calls)


async def _change(name: UnitName, values: Mapping[str, Value], calls: ManagerCalls) -> None:
    """Set properties; CPUs and NUMA nodes that are unset become all possible ones before.

    The kernel refuses an empty list for a control group with processes, which would keep its limit.

    Source: Linux, kernel/cgroup/cpuset.c, validate_change.
    """
    possible = {key: read_possible(key) for key, value in values.items() if value == ""}
    if any(possible.values()):
        before = {key: possible.get(key) or value for key, value in values.items()}
        await calls.set_properties(name, before)
    await calls.set_properties(name, values)


async def _stop(name: UnitName, timeout_sec: float | None, calls: ManagerCalls) -> None:
    with suppress(NoSuchUnit):
        await calls.stop(name, timeout_sec)
        if _can_fail(name):
            await calls.reset_failed(name)


async def _stop_all(names: tuple[UnitName, ...], calls: ManagerCalls) -> None:
    await calls.run_waiter(names, {"Conflicts": names, "After": names}, ())
    await run_concurrently(calls.reset_failed(name) for name in names if _can_fail(name))


def _can_fail(name: UnitName) -> bool:
    """Return whether a unit can be in the state "failed", which slices cannot."""
    return not name.endswith(".slice")


_BUS = "org.freedesktop.DBus.Error."
_SYSTEMD = "org.freedesktop.systemd1."

_ERRORS: dict[str, type[SystemdError]] = {
    _SYSTEMD + "UnitExists": UnitExists,
    _SYSTEMD + "NoSuchUnit": NoSuchUnit,
    _SYSTEMD + "BadUnitSetting": BadProperty,  # a required property is missing
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
_AS_ROOT = "run as root, or use --user"


def error_of(reply: Received, about: str) -> SystemdError:
    """Return the error for an error reply; `about` is the unit, or another subject of the call."""
    reason = reply.reason
    if reply.error_name in _PROCESS_EXITED:
        reason = f"a process has exited ({reason})"
    kind = _ERRORS.get(reply.error_name, SystemdError)
    if kind is Refused:
        return Refused(f"{about}: access denied ({reason}); {_AS_ROOT}")
    if kind is SystemdError:
        return SystemdError(f"{about}: {reason} ({reply.error_name})")
    return kind(f"{about}: {reason}")
