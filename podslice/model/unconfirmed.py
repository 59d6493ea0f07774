"""New values of reserved slices that somebody has yet to confirm; the old ones return else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from podslice.model.unit import UnitName

Values = Mapping[UnitName, Mapping[str, int | str]]
"""Values by property, by unit."""


class Standing(StrEnum):
    """How it stands with values that were not confirmed."""

    ARMED = "armed"
    """A timer returns the old ones."""
    RETURNED = "returned"
    """It has, in whole or in part."""
    STOPPED = "stopped"
    """The new ones are there, and so they stay: somebody has stopped the timer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfirmed:
    """What was set with `apply --confirm`, and what was there before."""

    old: Values
    new: Values
    """Less what could not be set."""
    until_usec: int
    """When the old ones return, by the clock that counts from the boot."""

    def at_old(self, observed: Values) -> frozenset[tuple[UnitName, str]]:
        """The properties that have their old values, and should have others."""
        return frozenset(
            (unit, name)
            for unit, values in self.new.items()
            for name, new in values.items()
            if new != (old := self.old[unit][name]) and observed.get(unit, {}).get(name) == old
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Unconfirmed values as they stand now."""

    values: Unconfirmed
    standing: Standing
    remaining_sec: int = 0
    """How long until the old ones return, where they are about to."""
