"""Verbs that look at what is there: status, tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import DIFFERENCES, DONE, Output
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import Format, emit, note
from podslice.cli.session import in_world
from podslice.cli.views import conditions, documents
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Source
from podslice.model.reserved import Pending
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.report import told_skipped, told_unconfirmed
from podslice.reconcile.rollback import pending
from podslice.reconcile.world import Asked, World
from podslice.usage.status import EMPTY, UnitStatus, unit_statuses

if TYPE_CHECKING:
    from podslice.processes.location import Located, Placement
    from podslice.processes.runtimes import RuntimeContainer

Pids = Annotated[
    list[int] | None,
    typer.Option(
        "--pid",
        metavar="PID",
        min=1,
        help="Tell only where this process is; exit 3 when it is in no pod. May be repeated.",
    ),
]


@planning_options
def status(planning: Planning, output: Output = Format.TABLE, pid: Pids = None) -> int:
    """Show desired values, systemd's, the kernel's, and live usage; exit 3 when they differ."""
    planning = configuration.tolerate(planning)
    if pid:
        return _show_located(planning, output, pid)
    return _show_status(planning, output, as_tree=False)


@planning_options
def tree(planning: Planning, output: Output = Format.TABLE) -> int:
    """Show the slices as a tree, with what each may use, what it uses, and what runs in it."""
    return _show_status(configuration.tolerate(planning), output, as_tree=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """All that one look shows."""

    state: Assessment
    units: tuple[UnitStatus, ...]
    placement: Placement
    cgroups: CgroupFs
    unconfirmed: Pending | None


async def _see(world: World) -> _Seen:
    from podslice.processes.location import look_inside

    state = await assess(replace(world, asked=Asked()), is_idle=True)
    return _Seen(
        state=state,
        units=unit_statuses(state.desired, state.observed, world.cgroups),
        placement=look_inside(state, world.cgroups, await _ask_runtimes(world, state)),
        cgroups=world.cgroups,
        unconfirmed=await _unconfirmed(world),
    )


async def _unconfirmed(world: World) -> Pending | None:
    return None if world.client is None else await pending(world.store, world.client)


async def _ask_runtimes(world: World, state: Assessment) -> tuple[RuntimeContainer, ...]:
    """The containers of podman and docker that say that they are of some pod."""
    if not state.current:
        return ()
    from podslice.processes.runtimes import containers

    return await containers(state.current, user=world.user, on_note=world.on_note)


def _show_status(planning: Planning, output: Format, *, as_tree: bool) -> int:
    from podslice.cli.views import status

    seen = in_world(planning, _see)
    state, units, placement = seen.state, seen.units, seen.placement
    table = status.tree if as_tree else status.status

    def lines(wide: bool) -> Iterator[str]:  # noqa: FBT001 - as `emit` calls it
        rows = status.rows(units, placement, seen.cgroups.usage, wide=wide)
        yield from table(tuple(rows), wide=wide) if units else ["no pods"]
        yield from status.strays(placement.strays)
        yield from status.reserved(state.held)

    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin),
            **documents.status(state, units, placement),
            **conditions.foreign(state.foreign),
            **conditions.reserved(state.held),
            **conditions.unconfirmed(seen.unconfirmed),
        ),
        lines=lines,
        names=lambda: [unit.name for unit in units if unit.state != EMPTY],
    )
    for pod in sorted(state.desired.initializing):
        note(f"pod {pod} is in its init phase; see: podslice phase {pod}")
    if state.foreign:
        note(str(state.foreign))
    for skipped in state.plan.skipped:
        if skipped.unit in state.recorded_values.units:
            note(told_skipped(skipped))
    if seen.unconfirmed:
        note(told_unconfirmed(seen.unconfirmed))
    manifests = state.sources.values()
    for told in status.notices(state.evicted, state.agent, manifests, user=planning.user):
        note(told)
    for name in state.orphans:
        note(f"{name} is no pod's: it was not made by podslice, or its pod is unknown")
    if as_tree:
        return DONE
    is_wrong = planning.origin.source is not Source.FILES
    is_wrong |= bool(state.plan or state.broken_records or placement.strays or state.foreign)
    return DIFFERENCES if is_wrong else DONE


def _show_located(planning: Planning, output: Format, pids: list[int]) -> int:
    from podslice.cli.views import status
    from podslice.processes.location import locate

    async def work(world: World) -> tuple[Located, ...]:
        return locate(await assess(world), pids)

    found = in_world(planning, work)
    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin), **documents.located(found)
        ),
        lines=lambda _: status.located(found),
        names=lambda: [each.home.unit for each in found if each.home],
    )
    return DONE if all(each.home for each in found) else DIFFERENCES
