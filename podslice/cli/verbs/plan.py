"""`podslice plan`."""

from __future__ import annotations

from podslice.cli.arguments import (
    DIFFERENCES,
    DONE,
    FAILED,
    FilesOrDefault,
    Force,
    Ignore,
    Namespace,
    Output,
    Prune,
    Start,
)
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, note_problems
from podslice.cli.session import in_world_or_offline
from podslice.cli.views import changes, documents, status_view
from podslice.cli.views.changes import plan_lines
from podslice.features.quadlet.started import PlannedServices, StartedPods, load_pods_to_apply
from podslice.features.run.services_view import (
    PlannedDropIn,
    PodServices,
    planned_lines,
    services_document,
)
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment, Request
from podslice.reconcile.world import LiveWorld, World


@planning_options
def plan(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: FilesOrDefault = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
    start: Start = False,  # noqa: FBT002
    ignore: Ignore = None,
) -> int:
    """Run `podslice plan`."""
    candidates, to_start = load_pods_to_apply(
        planning, filename, namespace, start=start, ignored=ignore
    )
    request = Request(candidates=candidates, prune=prune, force=force, by_operator=True)

    async def work(world: World) -> tuple[Assessment, PlannedServices, tuple[PlannedDropIn, ...]]:
        state = await assess(world, request)
        drop_ins = PodServices(world).plan(state) if isinstance(world, LiveWorld) else ()
        return state, await StartedPods(world, to_start).plan(state), drop_ins

    state, services, drop_ins = in_world_or_offline(planning, work)
    made = state.plan
    emit(
        output,
        document=lambda: documents.document(
            **{**changes.plan_document(made), **services.document(), **services_document(drop_ins)},
            **status_view.foreign_document(state.foreign),
            **status_view.reserved_document(state.held),
        ),
        lines=lambda display: plan_lines(
            made, display, (*services.lines(display), *planned_lines(drop_ins, display))
        ),
        names=lambda: [
            *(step.name for step in made.steps),
            *services.names,
            *(each.path for each in drop_ins),
        ],
    )
    note_problems(services.problems)
    if state.foreign:
        note(f"apply would be refused: {state.foreign}")
    if made.refused or made.is_blocked or state.foreign or services.problems:
        return FAILED
    return DIFFERENCES if made or services or drop_ins else DONE
