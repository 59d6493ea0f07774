"""What systemd signals: results of jobs, and changes of units after Manager.Subscribe."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable

from podslice.model.container_exit import ContainerExit
from podslice.model.unit import UnitName
from podslice.systemd import service_exits
from podslice.systemd.client import OnChange, OnExit
from podslice.systemd.dbus.connection import ConnectionLost, in_time
from podslice.systemd.dbus.wire import Received

MANAGER = "org.freedesktop.systemd1.Manager"
MANAGER_PATH = "/org/freedesktop/systemd1"

MATCH = (
    "type='signal',sender='org.freedesktop.systemd1',"
    f"path='{MANAGER_PATH}',interface='{MANAGER}',member='JobRemoved'"
)
"""The match rule. Without Subscribe, systemd signals the jobs of this connection only."""


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
            if interruptions != self._interruptions:
                raise ConnectionLost(f"systemd was lost before {job} finished")
            future = asyncio.get_running_loop().create_future()
            waiting = self.waiting.setdefault(job, [])
            waiting.append(future)
        finally:
            self._calls -= 1
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


_FROM = "type='signal',sender='org.freedesktop.systemd1'"
_PROPERTIES = f"{_FROM},interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'"

MATCHES = (
    # the interface of slices has no property whose changes are signalled
    f"{_PROPERTIES},arg0='org.freedesktop.systemd1.Scope'",
    f"{_PROPERTIES},arg0='org.freedesktop.systemd1.Service'",
    *(
        f"{_FROM},path='{MANAGER_PATH}',interface='{MANAGER}',member='{member}'"
        for member in ("UnitRemoved", "Reloading")
    ),
)
"""The match rules beside that of `jobs`, which matches all jobs after Subscribe."""
_EXIT = frozenset(key for key in service_exits.TYPES if key.startswith("ExecMain")) | {"Result"}
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
    types = service_exits.TYPES
    found = signal.changed_properties(types)
    is_typed = all(isinstance(value, types[key]) for key, value in found.items())
    return service_exits.main_exit(found) if is_typed and found.keys() >= _EXIT else None


def _unit_of(signal: Received) -> UnitName:
    """Return the unit of a signal."""
    if signal.member == "PropertiesChanged":
        return unit_of_path(signal.path)
    if signal.member == "JobRemoved":
        _id, _job, unit, _result = signal.body("uoss")
    else:  # UnitRemoved
        unit, _path = signal.body("so")
    return UnitName(unit)


def unit_of_path(path: str) -> UnitName:
    """Return the unit of an object path."""
    label = path.rpartition("/")[2]
    return UnitName(re.sub("_([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), label))


def path_of(name: UnitName) -> str:
    """Return the object path of a unit: `a-b.slice` → `…/unit/a_2db_2eslice`.

    Source: systemd, src/shared/bus-util or src/libsystemd/sd-bus/bus-internal, bus_label_escape.
    """
    escaped = re.sub(r"^[0-9]|[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", name)
    return f"{MANAGER_PATH}/unit/{escaped}"
