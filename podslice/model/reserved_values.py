"""The values that podslice has set on slices outside its root, with the previous ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from podslice.model.unit import UnitName

Values = Mapping[UnitName, Mapping[str, int | str]]
"""Values by property, by unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A value that was set with `apply --confirm` and is not confirmed."""

    old: int | str
    """The value that is restored unless the new one is confirmed."""
    new: int | str | None
    """None if it could not be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedValue:
    """One value of a slice outside the root."""

    before: int | str
    """The value before podslice set it, restored once the configuration requests none."""
    ours: tuple[int | str, ...]
    """The values that podslice has set: several if it is unknown which is in force."""
    trial: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedValues:
    """All values that podslice has set outside its root since boot."""

    units: Mapping[UnitName, Mapping[str, ReservedValue]] = field(default_factory=dict)
    until_usec: int = 0
    """When unconfirmed values are restored, by the clock since boot."""
    cgroup_root: str = "/"
    """The root of the podslice that has set them."""

    def __bool__(self) -> bool:
        """Return whether there is any value."""
        return any(self.units.values())

    @property
    def unconfirmed(self) -> Unconfirmed | None:
        """Return the values that are not confirmed; None if there are none."""
        old: dict[UnitName, dict[str, int | str]] = {}
        new: dict[UnitName, dict[str, int | str]] = {}
        for unit, values in self.units.items():
            for name, held in values.items():
                if held.trial is not None:
                    old.setdefault(unit, {})[name] = held.trial.old
                    if held.trial.new is not None:
                        new.setdefault(unit, {})[name] = held.trial.new
        return Unconfirmed(old=old, new=new, until_usec=self.until_usec) if old else None

    def confirmed(self) -> ReservedValues:
        """Return the same with every trial confirmed."""
        return replace(
            self,
            until_usec=0,
            units={
                unit: {name: replace(held, trial=None) for name, held in values.items()}
                for unit, values in self.units.items()
            },
        )


class TrialState(StrEnum):
    """The state of unconfirmed values."""

    ARMED = "armed"
    """A timer will restore the old ones."""
    RETURNED = "returned"
    """The timer has restored them, in whole or in part."""
    STOPPED = "stopped"
    """The new ones remain in force: the timer was stopped."""


class Unconfirmed(NamedTuple):
    """The values that were set with `apply --confirm`, with the previous ones."""

    old: Values
    new: Values
    """Without those that could not be set."""
    until_usec: int
    """When the old ones are restored, by the clock since boot."""

    def at_old(self, observed: Values) -> frozenset[tuple[UnitName, str]]:
        """Return the properties that have their old values instead of new ones."""
        return frozenset(
            (unit, name)
            for unit, values in self.new.items()
            for name, new in values.items()
            if new != (old := self.old[unit][name]) and observed.get(unit, {}).get(name) == old
        )


class PendingTrial(NamedTuple):
    """Unconfirmed values, with their current state."""

    values: Unconfirmed
    state: TrialState
    remaining_sec: int = 0
    """The time until the old ones are restored, if they will be."""
