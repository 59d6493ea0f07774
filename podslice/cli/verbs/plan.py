"""`podslice plan`."""

from __future__ import annotations

from podslice.cli.arguments import (
    DIFFERENCES,
    DONE,
    FAILED,
    FilesOrDefault,
    Force,
    Namespace,
    Output,
    Prune,
)
from podslice.cli.extensions import extended, extensions
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit, note, note_problems
from podslice.cli.session import in_world_or_offline
from podslice.cli.views import changes
from podslice.cli.wanted import LoadPods, load_to_apply
from podslice.plan import PodStep
from podslice.reconcile.assess import Assessment, Request, assess
from podslice.reconcile.extension import PodRequest
from podslice.reconcile.world import World


@planning_options
@extended("plan")
def plan(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: FilesOrDefault = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
    load: LoadPods = load_to_apply,
) -> int:
    """Run `podslice plan`.

    Examples:
        podslice plan -f web.yaml
        podslice plan --kube-reserved memory=1Gi
    """
    candidates, started = load(planning, filename, namespace)
    request = Request(candidates=candidates, prune=prune, force=force, by_operator=True)

    async def work(world: World) -> tuple[Assessment, list[PodStep]]:
        state = await assess(world, request)
        planned = [
            await each.plan(state) for each in extensions(world, PodRequest(started=started))
        ]
        return state, [step for each in planned for step in (*each.before, *each.after)]

    state, around = in_world_or_offline(planning, work)
    made, steps = state.plan, [step for step in around if step.problem is None]
    emit(
        output,
        document=lambda: changes.plan_document(made, steps, foreign=state.foreign, held=state.held),
        lines=lambda display: changes.plan_lines(made, display, steps),
        names=lambda: [
            *(step.name for step in made.steps),
            *(step.path or step.name for step in steps),
        ],
    )
    problems = [step.problem for step in around if step.problem is not None]
    note_problems(problems)
    if state.foreign:
        note(f"apply would be refused: {state.foreign}")
    if made.refused or made.is_blocked or state.foreign or problems:
        return FAILED
    return DIFFERENCES if made or steps else DONE
