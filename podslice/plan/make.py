"""Make the plan: the difference between desired and observed state."""

from __future__ import annotations

from podslice.model.desired import Desired
from podslice.model.unit import DesiredUnit, Observed, ObservedUnit, UnitKind, UnitName
from podslice.plan.changes import feasible, hugepages_step, not_active, spare, step_for, volume_step
from podslice.plan.steps import Plan, Skipped, StartUnit, Step, order_of
from podslice.plan.stops import TerminatingPods, find_stops, settle_moves

_Difference = tuple[list[Step], list[Skipped]]
"""The steps for a unit, and what is left out."""

_NONE = TerminatingPods()
_OF_PROCESSES = (UnitKind.SCOPE, UnitKind.SERVICE)


def make_plan(
    desired: Desired,
    observed: Observed,
    *,
    force: bool = False,
    terminating: TerminatingPods = _NONE,
) -> Plan:
    """Return the steps that bring `observed` to `desired`.

    Without `force` no limit is set below the current memory usage: a reserved slice keeps its
    limit, and the memory of one of podslice's units is reclaimed first.
    """
    staying, moving = settle_moves(desired, observed)
    keep = {unit.name for unit in staying.values()}
    stops, skipped = find_stops(desired, observed, keep, terminating)
    stopped = {stop.name for stop in stops}
    units = [unit for unit in desired.units if unit.pod not in staying and unit.name not in stopped]
    steps: list[Step] = []
    for unit in units:
        taken, left_out = _steps_for(
            unit, desired=desired, observed=observed, stopped=stopped, force=force
        )
        steps += taken
        skipped += left_out
    return Plan(
        steps=tuple(sorted((*stops, *steps), key=order_of)),
        skipped=tuple(sorted(skipped, key=lambda each: (each.unit, each.name))),
        refused=tuple(sorted((*desired.refused, *moving), key=lambda refusal: refusal.pod)),
        caps=observed.caps,
    )


def _steps_for(
    unit: DesiredUnit,
    *,
    desired: Desired,
    observed: Observed,
    stopped: set[UnitName],
    force: bool,
) -> _Difference:
    """Return the steps on a unit that is not stopped, and what is left out."""
    there = observed.units.get(unit.name)
    if there is None and unit.kind in _OF_PROCESSES:
        return [], []  # a container that is not running needs no properties
    if there is None and unit.name in desired.unwanted:
        return [], []
    if there is not None and _is_elsewhere(unit, there):
        return [], []
    if there is None and not unit.owned:
        return [], [not_active(unit)]
    if unit.kind is UnitKind.MOUNT:
        return _volume(unit, there, stopped)
    return _unit(unit, there, desired, observed, force=force)


def _is_elsewhere(unit: DesiredUnit, there: ObservedUnit) -> bool:
    """Return whether a unit with a container's name is outside its pod, so not podslice's."""
    if unit.kind not in _OF_PROCESSES:
        return False
    return there.properties.get("Slice", unit.parent) != unit.parent


def _volume(
    unit: DesiredUnit, there: ObservedUnit | None, stopped: set[UnitName]
) -> tuple[list[Step], list[Skipped]]:
    if there is not None and there.properties.get("Slice") in stopped:
        there = None  # it is stopped with the slice that contains it now
    step, skipped = volume_step(unit, there)
    return [step] if step else [], skipped


def _unit(
    unit: DesiredUnit,
    there: ObservedUnit | None,
    desired: Desired,
    observed: Observed,
    *,
    force: bool,
) -> tuple[list[Step], list[Skipped]]:
    properties, skipped = feasible(unit.name, unit.properties, observed.caps)
    if there is not None and not force:
        skipped += spare(unit, properties, there)
    # the limit of a tier already respects its usage; see policy.tiers
    step = step_for(unit, properties, there, reclaims=not force and not unit.is_tier)
    pages, no_pages = hugepages_step(unit, there, observed.caps, starts=isinstance(step, StartUnit))
    return [each for each in (step, pages) if each], skipped + no_pages
