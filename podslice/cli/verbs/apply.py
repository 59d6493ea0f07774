"""`podslice apply`."""

from __future__ import annotations

from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import FilesOrDefault, Force, Namespace, Output, Prune, number
from podslice.cli.extensions import extended, extensions
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, note
from podslice.cli.progress import emit_report, follow
from podslice.cli.session import in_world, locked
from podslice.cli.views.problem_lines import problem_line
from podslice.cli.wanted import LoadPods, load_to_apply, sources_or_default
from podslice.errors import invalid
from podslice.reconcile.assess import Request
from podslice.reconcile.converge import apply as apply_pods
from podslice.reconcile.converge import start_services
from podslice.reconcile.extension import PodRequest
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld, claims_beside_kubelet

CONFIRM_MAX_SEC = 86_400
"""A day; a longer time is most likely an error."""


@configured
@extended("apply")
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
            parser=number(1, CONFIRM_MAX_SEC),
            help="Restore reserved slices unless confirmed.",
        ),
    ] = None,
    load: LoadPods = load_to_apply,
) -> int:
    """Run `podslice apply`.

    Pods that are applied already, and reservations, are set again where they have changed.

    Examples:
        podslice apply -f web.yaml
        podslice apply --prune --confirm 300
    """
    if confirm is not None and planning.manager.is_user:
        message = "a user manager has no reserved slices to confirm"
        raise invalid(message, "omit it", where="--confirm")
    candidates, started = load(planning, filename, namespace, is_for_host=True)
    if prune and not candidates:
        sources = sources_or_default(planning, filename)
        raise invalid(
            "no pods found; --prune would remove every applied pod",
            "to remove every pod: podslice delete --all",
            where=", ".join(sources) or "the manifest directories",
        )
    request = Request(
        candidates=candidates,
        prune=prune,
        force=force,
        by_operator=True,
        starts_containers=started is not None,
    )

    async def work(world: LiveWorld) -> Report:
        further = extensions(world, PodRequest(started=started))
        with locked(world.store), manual_log("apply", world.store, world.manager) as log:
            applying = apply_pods(world, request, confirm_sec=confirm, extensions=further)
            report = await follow(applying, log)
        if report.starts:
            interrupts.begin(
                "the slices are as requested, and services continue to start; see: podslice status"
            )
            pods = dict.fromkeys(step.pod for step in report.starts)
            note(f"waiting for the services of {', '.join(pods)}")
            with manual_log("apply", world.store, world.manager) as log:
                report = await follow(start_services(further, report), log)
        claims = claims_beside_kubelet(
            world.guard, world.cgroups, world.node, world.config, world.manager
        )
        for each in await claims:
            note(problem_line(each))
        return report

    return emit_report(in_world(planning, work), output)
