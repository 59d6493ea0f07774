"""`podslice apply`."""

from __future__ import annotations

from typing import Annotated

import typer

from podslice.cli.arguments import FilesOrDefault, Force, Ignore, Namespace, Output, Prune, Start
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, note
from podslice.cli.progress import follow
from podslice.cli.session import in_world, locked
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.wanted import note_start_at_boot, sources_or_default
from podslice.errors import invalid
from podslice.features.quadlet.started import StartedPods, emit_report, load_pods_to_apply
from podslice.features.run.services_view import PodServices
from podslice.model.event import Kind
from podslice.reconcile.assessment import Assessment, Request
from podslice.reconcile.converge import apply as apply_pods
from podslice.reconcile.guard import claims_beside_kubelet
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld

CONFIRM_MAX_SEC = 86_400
"""A day; a longer time is most likely an error."""


@planning_options
def apply(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: FilesOrDefault = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
    confirm: Annotated[
        int | None,
        typer.Option(
            "--confirm",
            metavar="SECONDS",
            min=1,
            max=CONFIRM_MAX_SEC,
            help="Restore the old values of reserved slices after this time unless podslice confirm is run.",
        ),
    ] = None,
    start: Start = False,  # noqa: FBT002
    ignore: Ignore = None,
) -> int:
    """Run `podslice apply`.

    Pods that are applied already, and reservations, are set again where they have changed.
    """
    if confirm is not None and planning.manager.is_user:
        message = "a user manager has no reserved slices to confirm"
        raise invalid(message, "omit it", where="--confirm")
    sources = sources_or_default(planning, filename)
    candidates, to_start = load_pods_to_apply(
        planning, filename, namespace, start=start, ignored=ignore, is_for_host=True
    )
    if prune and not candidates:
        raise invalid(
            "no pods found; --prune would remove every applied pod",
            "to remove every pod: podslice delete --all",
            where=", ".join(sources) or "the manifest directories",
        )
    if to_start.quadlets:
        note_start_at_boot(planning, sources)
    request = Request(
        candidates=candidates, prune=prune, force=force, by_operator=True, starts_containers=start
    )

    async def work(world: LiveWorld) -> tuple[Report, StartedPods, PodServices]:
        started = StartedPods(world, to_start)
        with locked(world.store), manual_log("apply", world.store, world.manager) as log:
            services = PodServices(world, log)

            async def prepare(state: Assessment) -> bool:
                await services.check(state)
                is_stopped = await started.prepare(state)
                return await services.move() or is_stopped

            applying = apply_pods(world, request, confirm_sec=confirm, prepare=prepare)
            report = await follow(applying, log)
            await services.finish()
            await started.write(report)
        await _start(world, started)
        claims = claims_beside_kubelet(
            world.guard, world.cgroups, world.node, world.config, world.manager
        )
        for each in await claims:
            note(problem_line(each))
        return report, started, services

    report, started, services = in_world(planning, work)
    return emit_report(
        report, output, started=started, services=services, flag=planning.manager.flag
    )


async def _start(world: LiveWorld, started: StartedPods) -> None:
    """Start the services, and log the containers that were started."""
    await started.start()
    with manual_log("apply", world.store, world.manager) as log:
        for each in started.results:
            if each.started:
                text = f"started {each.started} of pod {each.step.pod}"
                log.report(Kind.CONTAINER_STARTED, text, pod=each.step.pod, unit=each.started)
