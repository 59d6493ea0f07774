"""The values that podslice has set on slices outside its root, and what they were before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from podslice.model.unit import UnitName

Values = Mapping[UnitName, Mapping[str, int | str]]
"""Values by property, by unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A value that was set with `apply --confirm` and is not confirmed."""

    old: int | str
    """What returns unless it is confirmed."""
    new: int | str | None
    """None if it could not be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedValue:
    """One value of a slice outside the root."""

    before: int | str
    """What it was before podslice set it; it returns when nothing asks for another."""
    ours: tuple[int | str, ...]
    """What podslice has set. More than one where it is not known which of them is in force."""
    trial: Trial | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedValues:
    """Everything that podslice has set outside its root since the boot."""

    units: Mapping[UnitName, Mapping[str, ReservedValue]] = field(default_factory=dict)
    until_usec: int = 0
    """When values that are not confirmed return, by the clock that counts from the boot."""
    cgroup_root: str = "/"
    """Where the pods are of the podslice that has set them."""

    def __bool__(self) -> bool:
        """Return whether there is any value."""
        return any(self.units.values())

    @property
    def unconfirmed(self) -> Unconfirmed | None:
        """The values that are not confirmed; None where there are none."""
        tried = [
            (unit, name, held.trial)
            for unit, values in self.units.items()
            for name, held in values.items()
            if held.trial is not None
        ]
        if not tried:
            return None
        old: dict[UnitName, dict[str, int | str]] = {}
        new: dict[UnitName, dict[str, int | str]] = {}
        for unit, name, trial in tried:
            old.setdefault(unit, {})[name] = trial.old
            if trial.new is not None:
                new.setdefault(unit, {})[name] = trial.new
        return Unconfirmed(old=old, new=new, until_usec=self.until_usec)

    def confirmed(self) -> ReservedValues:
        """Return the same without anything that would return."""
        return replace(
            self,
            until_usec=0,
            units={
                unit: {name: replace(held, trial=None) for name, held in values.items()}
                for unit, values in self.units.items()
            },
        )


class TrialState(StrEnum):
    """The state of values that were not confirmed."""

    ARMED = "armed"
    """A timer returns the old ones."""
    RETURNED = "returned"
    """It has, in whole or in part."""
    STOPPED = "stopped"
    """The new ones are in force, and so they stay: the timer was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unconfirmed:
    """What was set with `apply --confirm`, and what was there before."""

    old: Values
    new: Values
    """Less what could not be set."""
    until_usec: int
    """When the old ones return, by the clock that counts from the boot."""

    def at_old(self, observed: Values) -> frozenset[tuple[UnitName, str]]:
        """Return the properties that have their old values, and should have others."""
        return frozenset(
            (unit, name)
            for unit, values in self.new.items()
            for name, new in values.items()
            if new != (old := self.old[unit][name]) and observed.get(unit, {}).get(name) == old
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTrial:
    """Unconfirmed values as they are now."""

    values: Unconfirmed
    state: TrialState
    remaining_sec: int = 0
    """How long until the old ones return, where they are about to."""
