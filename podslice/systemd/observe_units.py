"""Observed units, assembled from several of systemd's replies."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from podslice.errors import NoSuchUnit
from podslice.model.properties import FURTHER_SETTINGS, NEWER, OBSERVED, PROPERTIES, TASKS_MAX
from podslice.model.unit import (
    INFINITY,
    InspectedUnit,
    ListedUnit,
    ObservedUnit,
    UnitDefinition,
    UnitKind,
    UnitName,
)
from podslice.systemd.call_checks import kind_of
from podslice.systemd.dbus.wire import Wire
from podslice.systemd.manager_calls import STARTED, ManagerCalls, exists
from podslice.systemd.service_exits import main_exit
from podslice.systemd.slice_files import SliceFiles
from podslice.systemd.tasks import run_concurrently

_NO_GROUP: Mapping[str, Wire] = {
    "ControlGroup": "",
    "MemoryCurrent": INFINITY,
    "TasksCurrent": INFINITY,
}
"""The values of a unit whose kind has no control group."""


async def observe_units(
    patterns: Sequence[str], files: SliceFiles | None, calls: ManagerCalls
) -> tuple[ObservedUnit, ...]:
    """Return the loaded units whose names match a pattern, by name; read files first, if given."""
    listed = await calls.list_units(patterns)
    read = {}
    if files and listed:
        names = ("UnitPath", "ControlGroup")
        directories, top = await run_concurrently(map(calls.own_property, names))
        read = files.begin(directories).observe(listed, top)
    left = [unit for unit in listed if unit.name not in read]
    observed = await run_concurrently(_observe_unit(unit, calls) for unit in left)
    found = {unit.name: unit for unit in (*read.values(), *observed) if unit is not None}
    return tuple(found[unit.name] for unit in listed if unit.name in found)


async def _observe_unit(unit: ListedUnit, calls: ManagerCalls) -> ObservedUnit | None:
    """Return a unit; None if it was unloaded since it was listed, or is only referenced.

    Most units are transient, which one more cheap call confirms. That call is the second: then the
    reply to the first was about the transient unit.
    """
    found = await calls.resources(unit.name)
    transient = bool(await calls.unit_property(unit.name, "Transient"))
    fragment_path = ""
    started_usec = 0
    if transient and kind_of(unit.name) is UnitKind.SLICE:
        started_usec = int(await calls.unit_property(unit.name, STARTED))
    if not transient:
        found = await calls.properties(unit.name)
        if not exists(found):
            return None
        fragment_path = found["FragmentPath"]
        started_usec = int(found.get(STARTED, 0))
    found = {**_NO_GROUP, **found}
    kind = kind_of(unit.name)
    shown = {key: _shared(value) for key, value in found.items() if key in OBSERVED[kind]}
    return ObservedUnit(
        name=unit.name,
        description=unit.description,
        load_state=unit.load_state,
        active_state=unit.active_state,
        properties={**NEWER[kind], **shown},
        control_group=found["ControlGroup"],
        transient=transient,
        fragment_path=fragment_path,
        started_usec=started_usec,
        tasks=await _count_tasks(unit.name, found, calls),
        main_exit=main_exit(found),
        restarts=int(found.get("NRestarts", 0)),
        memory_bytes=None if found["MemoryCurrent"] == INFINITY else int(found["MemoryCurrent"]),
    )


def _shared(value: Wire) -> Wire:
    """Return one object for equal values that many units have, and that a cache may keep."""
    if isinstance(value, str):
        return sys.intern(value)
    return INFINITY if value == INFINITY else value


async def _count_tasks(name: UnitName, found: Mapping[str, Wire], calls: ManagerCalls) -> int:
    if found["TasksCurrent"] != INFINITY:
        return int(found["TasksCurrent"])
    # no accounting: no control group, no pids controller, or switched off
    with suppress(NoSuchUnit):
        return await calls.count_processes(name) if found["ControlGroup"] else 0
    return 0


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
        after = await run_concurrently(calls.unit_property(each, "After") for each in todo)
        todo = {UnitName(each) for names in after for each in names} - found
        found |= todo
    return frozenset(found)
