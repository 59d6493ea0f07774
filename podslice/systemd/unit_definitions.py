"""The files of a unit and the units that are started before it, from systemd's replies."""

from __future__ import annotations

from podslice.model.unit import UnitName
from podslice.model.unit_definition import UnitDefinition
from podslice.systemd.manager_calls import ManagerCalls
from podslice.systemd.tasks import run_concurrently

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
