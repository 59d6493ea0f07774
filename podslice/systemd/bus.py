"""systemd over D-Bus: the client that does it for real.

This module keeps the promises of `client` with the calls that `manager` makes; `connection` has
what goes over the wire, `jobs` the waiting.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from podslice.errors import BusUnavailable, NoSuchUnit, UnitExists
from podslice.model.manager import Manager
from podslice.model.properties import MANAGED, PROPERTIES
from podslice.model.unit import (
    Caps,
    ListedUnit,
    ObservedUnit,
    TransientUnit,
    UnitKind,
    UnitName,
    Value,
)
from podslice.systemd.bus_errors import error_of
from podslice.systemd.call_checks import (
    CHANGEABLE,
    check_name,
    check_properties,
    check_timer,
    check_unit,
    kind_of,
)
from podslice.systemd.change_signals import MATCHES, ChangeSignals
from podslice.systemd.client import OnChange
from podslice.systemd.dbus.connection import Connection, Interrupted, Peer
from podslice.systemd.jobs import MATCH, Jobs
from podslice.systemd.manager_calls import ManagerCalls, exists, is_as_requested, is_implied
from podslice.systemd.observe_units import observe_units
from podslice.systemd.slice_files import SliceFiles
from podslice.systemd.tasks import run_concurrently

log = logging.getLogger(__name__)

T = TypeVar("T")

_JOB_PATIENCE = 4
"""A unit may take TimeoutStopSec=, 90 s unless told otherwise, to stop; answers come at once."""

_SYSTEM_HINT = "is systemd running here, and is /run/dbus in sight?"
_USER_HINT = "is a user manager running (loginctl enable-linger), and XDG_RUNTIME_DIR set?"


class Bus:
    """A service manager over D-Bus.

    A call that was cut off before its answer (daemon-reexec, a restarted bus) is made once more;
    every call is written so that this does no harm.
    """

    def __init__(
        self,
        manager: Manager,
        *,
        timeout_sec: float = 30,
        in_flight: int = 32,
        on_change: OnChange | None = None,
        files: SliceFiles | None = None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            manager: the service manager to connect to.
            timeout_sec: for connecting and for every answer; a job may take four times as long.
            in_flight: calls without an answer at any time.
            on_change: is told of changes; without it systemd is not asked to tell of any.
            files: where slices can be read that are as they were started. Not for who is told of
                changes: a file is there some moments before it is in force.
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
        self._jobs = Jobs(timeout_sec=timeout_sec * _JOB_PATIENCE)
        self._changes = ChangeSignals(on_change) if on_change else None
        self._connecting = asyncio.Lock()
        self._connection: Connection | None = None
        self._closed = True

    async def __aenter__(self) -> Self:
        self._closed = False
        await self._manager()
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
        if self._connection is not None:
            await self._connection.close()

    async def caps(self) -> Caps:
        return await self._insist(self._caps_of)

    async def observe(self, patterns: Sequence[str]) -> tuple[ObservedUnit, ...]:
        if not patterns:
            return ()  # to systemd this would mean every unit
        return await self._insist(partial(observe_units, patterns, self._files))

    async def list_units(self, patterns: Sequence[str]) -> tuple[ListedUnit, ...]:
        if not patterns:
            return ()
        return await self._insist(partial(_list_units, patterns))

    async def start(self, unit: TransientUnit) -> None:
        check_unit(unit)
        await self._insist(partial(_start, unit), again=partial(_start_again, unit))

    async def start_batch(self, units: Sequence[TransientUnit]) -> None:
        for unit in units:
            check_unit(unit)
        if units:
            await self._insist(partial(_start_all, units), again=partial(_start_all_again, units))

    async def start_timer(self, timer: TransientUnit, service: TransientUnit) -> None:
        check_timer(timer, service)
        await self._insist(
            partial(_start_timer, timer, service), again=partial(_start_timer_again, timer, service)
        )

    async def set_properties(self, name: UnitName, properties: Mapping[str, Value]) -> None:
        check_name(name)
        check_properties(name, properties)
        await self._insist(partial(_set_properties, name, properties))

    async def attach(self, name: UnitName, pids: Sequence[int]) -> None:
        check_name(name)
        await self._insist(partial(_attach, name, pids))

    async def stop(self, name: UnitName, *, timeout_sec: float | None = None) -> None:
        check_name(name)
        await self._insist(partial(_stop, name, timeout_sec))

    async def stop_batch(self, names: Sequence[UnitName]) -> None:
        for name in names:
            check_name(name)
        if names:
            await self._insist(partial(_stop_all, names))

    async def kill(self, name: UnitName, signal_number: int) -> None:
        check_name(name)
        await self._insist(partial(_kill, name, signal_number))

    async def reset_failed(self, name: UnitName) -> None:
        check_name(name)
        await self._insist(partial(_reset_failed, name))

    async def _manager(self) -> ManagerCalls:
        async with self._connecting:
            if self._closed:
                raise BusUnavailable("the client is closed")  # and stays so for calls in flight
            if self._connection is None or self._connection.lost:
                return await self._connect()
            if self._changes is not None and not self._changes.is_active:
                # systemd has gone and perhaps come back: whether it still knows of our wish to be
                # told is its secret, and who asks anew on a connection of his own is told for sure
                await self._connection.close()
                return await self._connect()
            return ManagerCalls(self._connection, self._jobs)

    async def _connect(self) -> ManagerCalls:
        listeners = [self._jobs] if self._changes is None else [self._jobs, self._changes]
        self._connection = await Connection.open(self._peer, *listeners)
        manager = ManagerCalls(self._connection, self._jobs)
        if self._changes is not None:
            await manager.subscribe()
            self._changes.begin()
        return manager

    async def _insist(
        self,
        work: Callable[[ManagerCalls], Awaitable[T]],
        *,
        again: Callable[[ManagerCalls], Awaitable[T]] | None = None,
    ) -> T:
        """Do the work; when it was cut off, do it, or what is to be done instead, once more."""
        try:
            return await work(await self._manager())
        except Interrupted as error:
            log.debug("%s; trying again", error)
        return await (again or work)(await self._manager())


# What follows is each of the calls above, on one connection, once.


async def _caps(manager: Manager, calls: ManagerCalls) -> Caps:
    version = await calls.version()
    pidfds = version >= PROPERTIES["PIDFDs"].since and calls.takes_descriptors
    return Caps(systemd_version=version, manager=manager, pidfds=pidfds)


async def _list_units(patterns: Sequence[str], manager: ManagerCalls) -> tuple[ListedUnit, ...]:
    return tuple(await manager.list_units(patterns))


async def _start(unit: TransientUnit, manager: ManagerCalls) -> None:
    try:
        await manager.start_transient(unit)
    except UnitExists:
        state = await manager.unit_property(unit.name, "ActiveState")
        if state == "failed":
            # a leftover; once reset, systemd forgets it and the name is free
            await _reset_failed(unit.name, manager)
            await manager.start_transient(unit)
        elif state == "inactive" and kind_of(unit.name) is UnitKind.MOUNT:
            # somebody has unmounted it while a container that comes after it keeps it loaded
            await manager.start_loaded(unit.name)
        elif state == "inactive" and await manager.unit_property(unit.name, "Transient"):
            await _start_down(unit, manager)
        else:
            raise


async def _start_down(unit: TransientUnit, manager: ManagerCalls) -> None:
    """Start a unit that systemd has not forgotten, as something that failed in it keeps it loaded.

    What it had before, and is not asked for now, it has no more.
    """
    found = await manager.properties(unit.name)
    managed = {name: PROPERTIES[name] for name in MANAGED[kind_of(unit.name)] if name in found}
    unset = {
        name: row.unset
        for name, row in managed.items()
        if row.unset is not None and found[name] != row.unset
    }
    asked = {name: value for name, value in unit.properties.items() if name in CHANGEABLE}
    await manager.set_properties(unit.name, {**unset, **asked})
    await manager.start_loaded(unit.name)


async def _start_again(unit: TransientUnit, manager: ManagerCalls) -> None:
    """Start, after a first try without an answer: a unit that is just as asked for is ours."""
    try:
        await _start(unit, manager)
    except UnitExists:
        if not is_as_requested(unit, await manager.properties(unit.name)):
            raise
        await manager.start_loaded(unit.name)


async def _start_all(units: Sequence[TransientUnit], manager: ManagerCalls) -> None:
    names = tuple(unit.name for unit in units)
    # Requires, not Wants: a unit that does not come up fails the job
    relations: dict[str, Value] = {"Requires": names, "After": names}
    await manager.run_waiter(_throw_away(), relations, units, _describe(names))


async def _start_all_again(units: Sequence[TransientUnit], manager: ManagerCalls) -> None:
    try:
        await _start_all(units, manager)
    except UnitExists:
        await run_concurrently(_start_again(unit, manager) for unit in units)


async def _start_timer(timer: TransientUnit, service: TransientUnit, manager: ManagerCalls) -> None:
    await manager.start_transient(timer, service)


async def _start_timer_again(
    timer: TransientUnit, service: TransientUnit, manager: ManagerCalls
) -> None:
    try:
        await manager.start_transient(timer, service)
    except UnitExists:
        for unit in (timer, service):
            if not is_as_requested(unit, await manager.properties(unit.name)):
                raise
        await manager.start_loaded(timer.name)


async def _set_properties(
    name: UnitName, values: Mapping[str, Value], manager: ManagerCalls
) -> None:
    # systemd takes properties of a unit that isn't there, too, and keeps a drop-in for later
    await manager.prove_loaded(name)
    if await manager.unit_property(name, "Transient"):
        return await manager.set_properties(name, values)
    found = await manager.properties(name)
    if not exists(found):
        raise NoSuchUnit(f"{name}: nothing but a name that other units refer to")
    if is_implied(found):
        # A drop-in for a unit that isn't transient outlives it, and overrides what a later unit of
        # the name asks for. A transient unit takes its drop-ins with it.
        return await manager.start_transient(TransientUnit(name=name, properties=values))
    return await manager.set_properties(name, values)


async def _attach(name: UnitName, pids: Sequence[int], manager: ManagerCalls) -> None:
    await manager.attach(name, pids)


async def _kill(name: UnitName, signal_number: int, manager: ManagerCalls) -> None:
    with suppress(NoSuchUnit):
        await manager.kill(name, signal_number)


async def _stop(name: UnitName, timeout_sec: float | None, manager: ManagerCalls) -> None:
    with suppress(NoSuchUnit):
        await manager.stop(name, timeout_sec)
        if _can_fail(name):
            await manager.reset_failed(name)


async def _stop_all(names: Sequence[UnitName], manager: ManagerCalls) -> None:
    relations: dict[str, Value] = {"Conflicts": tuple(names), "After": tuple(names)}
    await manager.run_waiter(_throw_away(), relations, (), _describe(names))
    await run_concurrently(_reset_failed(name, manager) for name in names if _can_fail(name))


async def _reset_failed(name: UnitName, manager: ManagerCalls) -> None:
    with suppress(NoSuchUnit):
        await manager.reset_failed(name)


def _can_fail(name: UnitName) -> bool:
    """Slices have no failed state."""
    return not name.endswith(".slice")


def _throw_away() -> UnitName:
    """A name that nobody else uses; without dashes, for they would make parents, which stay."""
    return UnitName(f"podslicebatch{secrets.token_hex(8)}.slice")


def _describe(names: Sequence[UnitName]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
