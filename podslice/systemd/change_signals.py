"""systemd's signals about changes of units, after Manager.Subscribe."""

from __future__ import annotations

from podslice.model.container_exit import ContainerExit
from podslice.model.unit import UnitName
from podslice.systemd import service_exits
from podslice.systemd.client import OnChange, OnExit
from podslice.systemd.dbus.connection import ConnectionLost
from podslice.systemd.dbus.wire import Received
from podslice.systemd.jobs import MANAGER, MANAGER_PATH
from podslice.systemd.manager_calls import unit_of_path

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
