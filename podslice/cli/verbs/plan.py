"""`podslice plan`."""

from __future__ import annotations

from podslice.cli.arguments import (
    DIFFERENCES,
    DONE,
    FAILED,
    Files,
    Force,
    Namespace,
    Output,
    Prune,
)
from podslice.cli.manifests import load_candidates
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note
from podslice.cli.session import in_world_or_offline
from podslice.cli.views import change_documents, conditions, documents
from podslice.cli.views.report_lines import plan_lines
from podslice.reconcile.assess import assess
from podslice.reconcile.request import Request


@planning_options
def plan(
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
) -> int:
    """Show what apply would change, and why."""
    candidates = load_candidates(planning, filename, namespace)
    request = Request(candidates=candidates, prune=prune, force=force, by_operator=True)
    state = in_world_or_offline(planning, lambda world: assess(world, request))
    made = state.plan
    emit(
        output,
        document=lambda: documents.document(
            **change_documents.plan(made),
            **conditions.foreign(state.foreign),
            **conditions.reserved(state.held),
        ),
        lines=lambda display: plan_lines(made, display),
        names=lambda: [step.name for step in made.steps],
    )
    if state.foreign:
        note(f"apply would be refused: {state.foreign}")
    if made.refused or made.is_blocked or state.foreign:
        return FAILED
    return DIFFERENCES if made else DONE
