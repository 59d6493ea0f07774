"""The overview that `status` and `tree` print: units, values, usage and processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from podslice.cli import configuration
from podslice.cli.arguments import PodFilter
from podslice.cli.options import Planning
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.views import conditions, documents, status_lines
from podslice.cli.views.style import Display
from podslice.kernel.cgroup import CgroupFs
from podslice.model.config import Origin, Source
from podslice.model.manager import Manager
from podslice.model.reserved_values import PendingTrial
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.histories import container_histories
from podslice.reconcile.report import describe_skipped, describe_unconfirmed
from podslice.reconcile.request import Request
from podslice.reconcile.rollback import pending
from podslice.reconcile.world import LiveWorld
from podslice.usage.unit_status import EMPTY, EXITED, UnitStatus, unit_statuses

if TYPE_CHECKING:
    from podslice.processes.location import Placement
    from podslice.processes.runtimes import RuntimeContainer


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of the world, with the status and the processes of every unit."""

    state: Assessment
    units: tuple[UnitStatus, ...]
    placement: Placement
    cgroups: CgroupFs
    unconfirmed: PendingTrial | None


async def observe(world: LiveWorld) -> Overview:
    """Observe everything once."""
    from podslice.processes.location import read_placement

    state = await assess(world, Request(by_operator=True, expects_unused=True))
    return Overview(
        state=state,
        units=unit_statuses(
            state.desired,
            state.observed,
            world.cgroups,
            container_histories(world.store, state.desired.pods),
        ),
        placement=read_placement(state, world.cgroups, await _list_runtimes(world, state)),
        cgroups=world.cgroups,
        unconfirmed=await pending(world.store, world.client),
    )


def select(found: Overview, shown: PodFilter) -> Overview:
    """Return the overview of some pods, with the slices above them.

    Raises:
        InputError: a requested pod is neither applied nor evicted.
    """
    if shown.is_total:
        return found
    state, placement = found.state, found.placement
    shown.require({*(pod.key for pod in state.current), *(mark.pod for mark in state.evicted)})
    return replace(
        found,
        units=tuple(_with_parents(found.units, shown)),
        placement=replace(
            placement,
            others=tuple(each for each in placement.others if shown.selects(each.pod)),
            strays=tuple(each for each in placement.strays if each.pod and shown.selects(each.pod)),
        ),
    )


def _with_parents(units: Sequence[UnitStatus], shown: PodFilter) -> Iterator[UnitStatus]:
    """Yield the units of the pods and the slices above them, in tree order."""
    above: list[UnitStatus] = []
    for unit in units:
        above = [each for each in above if each.depth < unit.depth]
        if unit.pod is None:
            above.append(unit)
        elif shown.selects(unit.pod):
            yield from above
            above = []
            yield unit


async def _list_runtimes(world: LiveWorld, state: Assessment) -> tuple[RuntimeContainer, ...]:
    """Return the containers of podman and docker whose labels name a pod."""
    if not state.current:
        return ()
    from podslice.processes.runtimes import containers

    return await containers(state.current, manager=world.manager, on_note=world.on_note)


def emit_overview(
    planning: Planning, found: Overview, output: OutputFormat, *, as_tree: bool
) -> None:
    """Print the overview, and notes about problems on standard error."""
    state = found.state

    def lines(display: Display) -> Iterator[str]:
        wide = display.wide
        rows = status_lines.rows(found.units, found.placement, found.cgroups.usage, wide=wide)
        table = status_lines.tree if as_tree else status_lines.status
        yield from table(tuple(rows), wide=wide) if found.units else ["no pods"]
        yield from status_lines.strays(found.placement.strays)
        yield from status_lines.reserved(state.held)

    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin),
            **documents.status(state, found.units, found.placement),
            **conditions.foreign(state.foreign),
            **conditions.reserved(state.held),
            **conditions.unconfirmed(found.unconfirmed),
        ),
        lines=lines,
        names=lambda: [unit.name for unit in found.units if unit.state not in (EMPTY, EXITED)],
    )
    for text in _notes(found, manager=planning.manager):
        note(text)


def _notes(found: Overview, *, manager: Manager) -> Iterator[str]:
    state = found.state
    for pod in sorted(state.desired.initializing):
        yield f"pod {pod} is in its init phase; see: podslice phase {pod}"
    if state.foreign:
        yield str(state.foreign)
    for skipped in state.plan.skipped:
        if skipped.unit in state.recorded_values.units:
            yield describe_skipped(skipped)
    if found.unconfirmed:
        yield "; ".join(describe_unconfirmed(found.unconfirmed))
    manifests = state.sources.values()
    yield from status_lines.notices(state.evicted, state.agent, manifests, manager=manager)
    for name in state.orphans:
        yield f"{name} is an orphan: not created by podslice, or its pod is unknown"


def differs(found: Overview, origin: Origin) -> bool:
    """Return whether anything is not as it should be."""
    state = found.state
    return origin.source is not Source.FILES or bool(
        state.plan or state.broken_records or found.placement.strays or state.foreign
    )
