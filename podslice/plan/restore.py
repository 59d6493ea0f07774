"""Values outside the root: which ones are restored, and the record of each.

podslice compares before it restores a value: a value that was changed externally is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from podslice.model.desired import Desired, ReservedValue, ReservedValues, Trial
from podslice.model.node import format_cpus, parse_cpus
from podslice.model.properties import ALLOWED_CPUS, PROPERTIES
from podslice.model.unit import (
    DesiredUnit,
    Observed,
    PropertyValue,
    UnitName,
    slice_unit,
)
from podslice.plan import Change, SetProperties, Skipped
from podslice.plan.make import is_up

WHY = "not requested by the configuration; the value before podslice set it"
_NOTHING = ReservedValues()


class Restoration(NamedTuple):
    """The outcome for the recorded values."""

    desired: Desired
    """With the old values of those that are restored."""
    skipped: tuple[Skipped, ...] = ()
    """Values that are not restored, and why."""
    held: ReservedValues = _NOTHING
    """The record without the values that are no longer podslice's."""


def restore_values(desired: Desired, observed: Observed, recorded: ReservedValues) -> Restoration:
    """Request the old value of each recorded property that the configuration does not state."""
    wanted = {unit.name: unit for unit in desired.units if not unit.owned}
    skipped: list[Skipped] = []
    held: dict[UnitName, Mapping[str, ReservedValue]] = {}
    extra: list[DesiredUnit] = []
    for name, values in sorted(recorded.units.items()):
        unit, there = wanted.get(name) or slice_unit(name, ""), observed.units.get(name)
        kept, old = {}, []
        for key, each in sorted(values.items()):
            # A property that has its old value again is in none of the cases, and leaves the
            # record.
            if key in unit.values:
                kept[key] = each
            elif not is_up(there):
                kept[key] = each
                why = (
                    "the slice is not loaded; if it is started again with the value that podslice"
                    " set, the next apply restores the old one; to restore it now: systemctl revert"
                    f" {name}"
                )
                skipped.append(Skipped(unit=name, name=key, why=why))
            elif (now := there.properties.get(key)) in each.ours:
                kept[key] = each
                old.append(PropertyValue(name=key, value=each.before, why=WHY, is_return=True))
            elif now not in (each.before, None):
                text = PROPERTIES[key].format
                why = (
                    f"podslice set it to {text(each.ours[-1])}, and it was changed to {text(now)}"
                    " externally; it is kept and no longer recorded"
                )
                skipped.append(Skipped(unit=name, name=key, why=why))
        if kept:
            held[name] = kept
        properties = tuple(sorted((*unit.properties, *old), key=lambda value: value.name))
        if is_up(there) and properties:
            extra.append(replace(unit, properties=properties))
    names = {each.name for each in extra}
    others = (each for each in desired.units if each.name not in names)
    return Restoration(
        desired=replace(desired, units=(*extra, *others)),
        skipped=tuple(skipped),
        held=replace(recorded, units=held),
    )


def record_steps(
    held: ReservedValues, steps: Iterable[SetProperties], cgroup_root: str
) -> ReservedValues:
    """Return the record before steps are taken, from when on either value may be in force."""

    def note(before: ReservedValue | None, old: int | str, new: int | str) -> ReservedValue:
        if before is None:
            return ReservedValue(before=old, ours=(new,))
        if old != before.before and old not in before.ours:
            # changed externally: that is its value before podslice sets it again
            return replace(before, before=old, ours=(new,))
        return replace(before, ours=(*(each for each in before.ours if each != new), new))

    units = {unit: dict(values) for unit, values in held.units.items()}
    for step in steps:
        values = units.setdefault(step.name, {})
        for change in step.changes:
            old = _old(change)
            values[change.name] = note(values.get(change.name), old, change.new)
    return replace(held, units=units, cgroup_root=cgroup_root)


def settle_steps(
    recorded: ReservedValues,
    before: ReservedValues,
    done: Iterable[SetProperties],
    not_tried: Iterable[SetProperties],
) -> ReservedValues:
    """Return the record after steps were taken; after a failure either value may be in force.

    Args:
        recorded: the record before they were taken (`record_steps`).
        before: the record before that.
        done: the steps after which the new value is in force.
        not_tried: the steps that have changed nothing.
    """
    units = {unit: dict(values) for unit, values in recorded.units.items()}
    for step in done:
        for change in step.changes:
            held = units[step.name][change.name]
            # With the value from before podslice in force, nothing remains to be restored.
            if change.new == held.before and held.trial is None:
                del units[step.name][change.name]
            else:
                # also the value that a timer may restore
                old = held.trial.old if held.trial else None
                ours = [each for each in held.ours if each == old and each != change.new]
                units[step.name][change.name] = replace(held, ours=(*ours, change.new))
    for step in not_tried:
        for change in step.changes:
            # Not tried: the entry was made for this step, unless an earlier record has it.
            units[step.name].pop(change.name)
            known = before.units.get(step.name, {}).get(change.name)
            if known is not None:
                units[step.name][change.name] = known
    return replace(recorded, units={unit: values for unit, values in units.items() if values})


def try_steps(
    recorded: ReservedValues, steps: Iterable[SetProperties], until_usec: int, *, joins: bool
) -> ReservedValues:
    """Return the record with the changes of steps as a trial.

    With `joins` they extend a pending trial, which restores its oldest values. Otherwise they
    replace it.
    """
    base = recorded if joins else recorded.confirmed()
    units = {unit: dict(values) for unit, values in base.units.items()}
    for step in steps:
        for change in step.changes:
            held = units[step.name][change.name]
            old = _old(change)
            trial = Trial(old=held.trial.old if held.trial else old, new=change.new)
            units[step.name][change.name] = replace(held, trial=trial)
    return replace(base, units=units, until_usec=until_usec)


def fail_trial(recorded: ReservedValues, names: Collection[UnitName]) -> ReservedValues:
    """Return the record of a trial after some units could not be set: they have no new value."""

    def fail(held: ReservedValue) -> ReservedValue:
        return replace(held, trial=replace(held.trial, new=None)) if held.trial else held

    units = {unit: dict(values) for unit, values in recorded.units.items()}
    for unit in units.keys() & set(names):
        units[unit] = {name: fail(held) for name, held in units[unit].items()}
    return replace(recorded, units=units)


def _old(change: Change) -> int | str:
    """Return the value before; every property that is compared is a number or a string."""
    return cast("int | str", change.old)


def keep_stated_cpus(
    desired: Desired, observed: Observed, recorded: ReservedValues
) -> tuple[Desired, tuple[Skipped, ...]]:
    """Return the desired state without CPUs of slices that have a list which podslice has not set.

    systemd joins the lists of all unit files of a slice at a daemon-reload, so that a second list
    would allow more CPUs. One that allows CPUs which the slice should not have is reported.
    """
    skipped: list[Skipped] = []
    kept: dict[UnitName, DesiredUnit] = {}
    for unit in (each for each in desired.units if not each.owned):
        stated, wanted = _stated(unit.name, observed, recorded), unit.values.get(ALLOWED_CPUS)
        if not stated or wanted is None:
            continue
        rest = tuple(each for each in unit.properties if each.name != ALLOWED_CPUS)
        kept[unit.name] = replace(unit, properties=rest)
        excess = frozenset(parse_cpus(stated)).difference(parse_cpus(str(wanted)))
        if excess:
            why = (
                f"it has AllowedCPUs={stated}, which podslice has not set, with CPUs of pods:"
                f" {format_cpus(excess)}; remove it, or set exclusive-for to pods"
            )
            skipped.append(Skipped(unit=unit.name, name=ALLOWED_CPUS, why=why, blocks=True))
    if not kept:
        return desired, ()
    units = (kept.get(unit.name, unit) for unit in desired.units)
    needed = (unit for unit in units if unit.owned or unit.properties)
    return replace(desired, units=tuple(needed)), tuple(skipped)


def _stated(name: UnitName, observed: Observed, recorded: ReservedValues) -> str:
    """Return the list of CPUs that a slice has, unless podslice has set it."""
    unit = observed.units.get(name)
    has = "" if unit is None else str(unit.properties.get(ALLOWED_CPUS, ""))
    held = recorded.units.get(name, {}).get(ALLOWED_CPUS)
    return has if held is None or has not in held.ours else ""
