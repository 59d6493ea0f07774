"""A unit with all settings of resources, assembled from systemd's replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.model.further_settings import FURTHER_SETTINGS
from podslice.model.inspected_unit import InspectedUnit
from podslice.model.properties import NEWER, OBSERVED, PROPERTIES, TASKS_MAX
from podslice.model.unit import INFINITY, ObservedUnit, UnitKind, UnitName
from podslice.model.unit_definition import UnitDefinition
from podslice.systemd.call_checks import kind_of
from podslice.systemd.dbus.wire import Wire
from podslice.systemd.manager_calls import STARTED, ManagerCalls, exists
from podslice.systemd.tasks import run_concurrently


async def inspect_unit(name: UnitName, calls: ManagerCalls) -> InspectedUnit | None:
    """Return a unit, which is loaded for this; None if there is none."""
    kind = kind_of(name)
    found = await calls.properties(name, FURTHER_SETTINGS[kind].keys())
    is_loaded = found["LoadState"] == "loaded"
    if found["LoadState"] == "not-found" or (is_loaded and not exists(found)):
        return None
    default_tasks = await calls.own_property("DefaultTasksMax")
    further = dict(_further(kind, found, default_tasks)) if is_loaded else {}
    return InspectedUnit(observed=_observed(name, kind, found), further=further)


def _observed(name: UnitName, kind: UnitKind, found: Mapping[str, Wire]) -> ObservedUnit:
    is_loaded = found["LoadState"] == "loaded"
    shown = {key: value for key, value in found.items() if key in OBSERVED[kind]}
    return ObservedUnit(
        name=name,
        description=found.get("Description", ""),
        load_state=found["LoadState"],
        active_state=found["ActiveState"],
        properties={**NEWER[kind], **shown} if is_loaded else {},
        control_group=found.get("ControlGroup", ""),
        transient=found["Transient"],
        # that of a transient unit is systemd's own
        fragment_path="" if found["Transient"] else found["FragmentPath"],
        started_usec=int(found.get(STARTED, 0)),
    )


def _further(
    kind: UnitKind, found: Mapping[str, Wire], default_tasks: Wire
) -> Iterator[tuple[str, str]]:
    """Yield the settings that are set: key → value."""
    for name, row in FURTHER_SETTINGS[kind].items():
        if name in found and found[name] not in (row.unset, ()):
            yield row.key, row.format(found[name])
    # a slice has no default
    unset = INFINITY if kind is UnitKind.SLICE else default_tasks
    if found.get(TASKS_MAX, unset) != unset:
        yield TASKS_MAX, PROPERTIES[TASKS_MAX].format(found[TASKS_MAX])


_FURTHER = ("Id", "DropInPaths", "Triggers")


async def read_definition(name: UnitName, calls: ManagerCalls) -> UnitDefinition:
    """Return the definition of a unit, which is loaded for this."""
    found = await calls.properties(name, _FURTHER)
    return UnitDefinition(
        name=UnitName(found["Id"]),
        load_state=found["LoadState"],
        active_state=found["ActiveState"],
        transient=found["Transient"],
        fragment_path=found["FragmentPath"],
        drop_ins=tuple(found.get("DropInPaths", ())),
        slice=found.get("Slice", ""),
        control_group=found.get("ControlGroup", ""),
        triggers=tuple(found.get("Triggers", ())),
    )


async def read_predecessors(name: UnitName, calls: ManagerCalls) -> frozenset[UnitName]:
    """Return the units that a unit is ordered after, directly or by way of others."""
    found: set[UnitName] = set()
    todo = {name}
    while todo:
        after = await run_concurrently(_read_after(each, calls) for each in todo)
        todo = {UnitName(each) for names in after for each in names} - found
        found |= todo
    return frozenset(found)


async def _read_after(name: UnitName, calls: ManagerCalls) -> tuple[str, ...]:
    return tuple(await calls.unit_property(name, "After"))
