"""CPUs that an administrator has stated for a slice outside the root: podslice keeps them."""

from __future__ import annotations

from dataclasses import replace

from podslice.model.cpu_list import format_cpus, parse_cpus
from podslice.model.desired import Desired
from podslice.model.properties import ALLOWED_CPUS
from podslice.model.reserved_values import ReservedValues
from podslice.model.unit import DesiredUnit, Observed, UnitName
from podslice.plan.steps import Skipped


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
