"""Verbs that look at what is there: status, tree."""

from __future__ import annotations

from podslice.cli import documents, text
from podslice.cli.arguments import DIFFERENCES, DONE, Output
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import Format, emit, note
from podslice.cli.session import in_world
from podslice.reconcile import State, World, look
from podslice.status import UnitStatus, unit_statuses


@planning_options
def status(planning: Planning, output: Output = Format.TABLE) -> int:
    """Show desired values, systemd's, the kernel's, and live usage; exit 3 when they differ."""
    return _show_status(planning, output, as_tree=False)


@planning_options
def tree(planning: Planning, output: Output = Format.TABLE) -> int:
    """Show the slices as a tree, with what each may use and what it uses."""
    return _show_status(planning, output, as_tree=True)


def _show_status(planning: Planning, output: Format, *, as_tree: bool) -> int:
    async def work(world: World) -> tuple[State, tuple[UnitStatus, ...]]:
        state = await look(world)
        return state, unit_statuses(state.desired, state.observed, world.cgroups)

    state, units = in_world(planning, work)
    lines = text.tree if as_tree else text.status
    emit(
        output,
        document=lambda: documents.document(**documents.status(state, units)),
        lines=lambda wide: lines(units, wide=wide) if units else ["no pods"],
        names=lambda: [unit.name for unit in units],
    )
    for name in state.orphans:
        note(f"{name} is no pod's: it was not made by podslice, or its pod is unknown")
    if as_tree:
        return DONE
    return DIFFERENCES if state.plan or state.broken_records else DONE
