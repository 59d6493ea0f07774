"""How a unit is defined: its files, and the place that they give it."""

from __future__ import annotations

from dataclasses import dataclass

from podslice.model.unit import UnitName


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDefinition:
    """The definition of a unit, which may not exist."""

    name: UnitName
    """Its own name, where it was named by an alias."""
    load_state: str
    """`loaded`, `not-found`, `masked`, `bad-setting`, …"""
    active_state: str = "inactive"
    transient: bool = False
    fragment_path: str = ""
    """Its own file; empty if it has none."""
    drop_ins: tuple[str, ...] = ()
    """The paths of its drop-ins, in the order in which systemd reads them."""
    slice: str = ""
    """The slice that its next start uses."""
    control_group: str = ""
    """The control group of its processes; empty if it has none."""
    triggers: tuple[str, ...] = ()
    """The units that it starts, where it is a timer, a socket or a path."""

    @property
    def is_running(self) -> bool:
        """Return whether it has been started, and has not stopped yet."""
        return self.active_state not in ("inactive", "failed")
