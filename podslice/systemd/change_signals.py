"""What systemd tells of units without being asked, once it is asked to (Manager.Subscribe)."""

from __future__ import annotations

from podslice.model.unit import UnitName
from podslice.systemd.client import OnChange
from podslice.systemd.dbus.connection import Interrupted
from podslice.systemd.dbus.wire import Received
from podslice.systemd.jobs import MANAGER, MANAGER_PATH
from podslice.systemd.manager_calls import name_of

_FROM = "type='signal',sender='org.freedesktop.systemd1'"
_PROPERTIES = f"{_FROM},interface='org.freedesktop.DBus.Properties',member='PropertiesChanged'"

MATCHES = (
    # the interface of slices has nothing that systemd tells the changes of
    f"{_PROPERTIES},arg0='org.freedesktop.systemd1.Scope'",
    *(
        f"{_FROM},path='{MANAGER_PATH}',interface='{MANAGER}',member='{member}'"
        for member in ("UnitRemoved", "Reloading")
    ),
)
"""The match rules beside that of `jobs`, which matches everybody's jobs once we have subscribed."""


class ChangeSignals:
    """Passes on what comes from systemd, from its subscription on until that is of no use."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change
        self.is_active = False
        """Whether systemd tells of changes now."""
        self._is_reloading = False

    def begin(self) -> None:
        """From now on systemd tells of changes; what was before nobody knows."""
        self.is_active, self._is_reloading = True, False
        self._on_change(None)

    def end(self) -> None:
        """Nobody wants to know any more."""
        self.is_active = False

    def on_signal(self, signal: Received) -> None:
        """Take a signal that systemd itself has sent."""
        if not self.is_active:
            return
        if signal.member == "Reloading":
            (self._is_reloading,) = signal.body("b")
            if not self._is_reloading:
                self._on_change(None)
        elif not self._is_reloading:  # while it lasts, every unit goes and comes back
            self._on_change(_unit_of(signal))

    def on_interruption(self, _error: Interrupted) -> None:
        """Say once that nothing is told any more."""
        if self.is_active:
            self.is_active = False
            self._on_change(None)


def _unit_of(signal: Received) -> UnitName:
    """The unit that a signal is about."""
    if signal.member == "PropertiesChanged":
        return name_of(signal.path)
    if signal.member == "JobRemoved":
        _id, _job, unit, _result = signal.body("uoss")
    else:  # UnitRemoved
        unit, _path = signal.body("so")
    return UnitName(unit)
