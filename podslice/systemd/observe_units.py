"""Units as podslice sees them, from several of systemd's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from podslice.errors import NoSuchUnit
from podslice.model.properties import OBSERVED
from podslice.model.unit import INFINITY, ListedUnit, ObservedUnit, UnitName
from podslice.systemd.call_checks import kind_of
from podslice.systemd.dbus.wire import Wire
from podslice.systemd.manager_calls import ManagerCalls, exists
from podslice.systemd.slice_files import SliceFiles
from podslice.systemd.tasks import run_concurrently

_NO_GROUP: Mapping[str, Wire] = {
    "ControlGroup": "",
    "MemoryCurrent": INFINITY,
    "TasksCurrent": INFINITY,
}
"""What a kind of unit that holds no processes has nothing to tell of."""


async def observe_units(
    patterns: Sequence[str], files: SliceFiles | None, manager: ManagerCalls
) -> tuple[ObservedUnit, ...]:
    """The loaded units whose names match a pattern, by name; files, if given, are read first."""
    listed = await manager.list_units(patterns)
    read = await _read_files(listed, files, manager) if files and listed else {}
    left = [unit for unit in listed if unit.name not in read]
    asked = await run_concurrently(_observe_unit(unit, manager) for unit in left)
    found = {unit.name: unit for unit in (*read.values(), *asked) if unit is not None}
    return tuple(found[unit.name] for unit in listed if unit.name in found)


async def _read_files(
    listed: Sequence[ListedUnit], files: SliceFiles, manager: ManagerCalls
) -> dict[UnitName, ObservedUnit]:
    directories, top = await run_concurrently(
        manager.own_property(name) for name in ("UnitPath", "ControlGroup")
    )
    return files.begin(directories).observe(listed, top)


async def _observe_unit(unit: ListedUnit, manager: ManagerCalls) -> ObservedUnit | None:
    """One unit, or None when it is gone since it was listed, or only a name that others refer to.

    The usual unit is transient, and one cheap call more tells so; it has to come second: then what
    came first was that unit's.
    """
    found = await manager.resources(unit.name)
    transient = bool(await manager.unit_property(unit.name, "Transient"))
    fragment_path = ""
    if not transient:
        found = await manager.properties(unit.name)
        if not exists(found):
            return None
        fragment_path = found["FragmentPath"]
    found = {**_NO_GROUP, **found}
    observed = OBSERVED[kind_of(unit.name)]
    return ObservedUnit(
        name=unit.name,
        description=unit.description,
        load_state=unit.load_state,
        active_state=unit.active_state,
        properties={key: value for key, value in found.items() if key in observed},
        control_group=found["ControlGroup"],
        transient=transient,
        fragment_path=fragment_path,
        tasks=await _count_tasks(unit.name, found, manager),
        memory_bytes=None if found["MemoryCurrent"] == INFINITY else int(found["MemoryCurrent"]),
    )


async def _count_tasks(name: UnitName, found: Mapping[str, Wire], manager: ManagerCalls) -> int:
    if found["TasksCurrent"] != INFINITY:
        return int(found["TasksCurrent"])
    # no accounting: no control group, no pids controller, or switched off
    with suppress(NoSuchUnit):
        return await manager.count_processes(name) if found["ControlGroup"] else 0
    return 0
