"""systemd's signals about changes of units, after Manager.Subscribe."""

from __future__ import annotations

from podslice.model.unit import UnitName
from podslice.systemd.client import OnChange
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


class ChangeSignals:
    """Calls `on_change` for systemd's signals, as long as the subscription is in force."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
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
            self._on_change(_unit_of(signal))

    def on_interruption(self, _error: ConnectionLost) -> None:
        """Report once that changes are not signalled from now on."""
        if self.is_active:
            self.is_active = False
            self._on_change(None)


def _unit_of(signal: Received) -> UnitName:
    """Return the unit of a signal."""
    if signal.member == "PropertiesChanged":
        return unit_of_path(signal.path)
    if signal.member == "JobRemoved":
        _id, _job, unit, _result = signal.body("uoss")
    else:  # UnitRemoved
        unit, _path = signal.body("so")
    return UnitName(unit)
