"""`podslice apply`."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Annotated

import typer

from podslice.cli.arguments import Files, Force, Namespace, Output, Prune
from podslice.cli.manifests import load_candidates
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat
from podslice.cli.progress import StepProgress, both
from podslice.cli.session import in_world, locked
from podslice.errors import InputError, Problem
from podslice.plan import Plan
from podslice.reconcile.converge import apply as apply_pods
from podslice.reconcile.report import Report
from podslice.reconcile.request import Request
from podslice.reconcile.world import LiveWorld

_SENT_SEC = 0.02
"""The first call is sent within this time after the plan."""

CONFIRM_MAX_SEC = 86_400
"""A day; a longer time is most likely an error."""

Confirm = Annotated[
    int | None,
    typer.Option(
        "--confirm",
        metavar="SECONDS",
        min=1,
        max=CONFIRM_MAX_SEC,
        help="Restore the old values of reserved slices after this time unless podslice confirm is run.",
    ),
]


@planning_options
def apply(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    filename: Files,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    prune: Prune = False,  # noqa: FBT002
    force: Force = False,  # noqa: FBT002
    confirm: Confirm = None,
) -> int:
    """Create and change slices as the manifests request."""
    if confirm is not None and planning.manager.is_user:
        message = "a user manager has no reserved slices to confirm"
        raise InputError(Problem(where="--confirm", message=message, hint="omit it"))
    candidates = load_candidates(planning, filename, namespace)
    if prune and not candidates:
        raise InputError(
            Problem(
                where=", ".join(filename),
                message="no pods found; --prune would remove every applied pod",
                hint="to remove every pod: podslice delete --all",
            )
        )

    async def work(world: LiveWorld) -> Report:
        progress = StepProgress()
        with locked(world.store), manual_log("apply", world.store, world.manager) as log:
            async with progress.shown():
                report = await apply_pods(
                    world,
                    Request(candidates=candidates, prune=prune, force=force, by_operator=True),
                    confirm_sec=confirm,
                    on_plan=both(both(log.start, progress.start), _import_later),
                    on_result=both(log.step, progress.step),
                )
            log.finish(report)
        return report

    return _emit(in_world(planning, work), output)


def _emit(report: Report, output: OutputFormat) -> int:
    from podslice.cli.report_output import emit_report

    return emit_report(report, output)


def _import_later(made: Plan) -> None:
    """Import what prints the report while systemd takes the first steps."""
    if made:
        loop = asyncio.get_running_loop()
        loop.call_later(_SENT_SEC, import_module, "podslice.cli.report_output")
