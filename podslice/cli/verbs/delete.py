"""`podslice delete`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

from podslice.cli import configuration
from podslice.cli.arguments import FAILED, Names, Namespace, Output, code_of, key_of
from podslice.cli.manifests import load_manifests
from podslice.cli.manual_log import ManualLog, manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, note
from podslice.cli.progress import StepProgress, both
from podslice.cli.report_output import emit_report
from podslice.cli.session import in_world, locked
from podslice.cli.started_pods import StartedPods
from podslice.cli.views.problem_lines import problem_line
from podslice.errors import InputError, Problem
from podslice.model.config import Source
from podslice.model.event import Kind
from podslice.reconcile.converge import delete as delete_pods
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld

GRACE_MAX_SEC = 10**6
"""More than eleven days; a longer time is most likely an error."""


ManifestFiles = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", metavar="FILE", help="Delete the pods of these manifests."),
]
Every = Annotated[bool, typer.Option("--all", help="Delete every applied pod.")]
GracePeriod = Annotated[
    int | None,
    typer.Option(
        "--grace-period",
        metavar="SECONDS",
        min=0,
        max=GRACE_MAX_SEC,
        help="Kill processes that still run after this time; overrides the pods' grace periods.",
    ),
]


@planning_options
def delete(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: Names = None,
    filename: ManifestFiles = None,
    namespace: Namespace = None,
    every: Every = False,  # noqa: FBT002
    grace_period: GracePeriod = None,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Stop pods and remove their slices."""
    planning = configuration.tolerate(planning)
    if planning.origin.source is Source.DEFAULT:
        note("pods are only stopped; the values of other units change with the next podslice apply")
    keys = _keys(pod or [], filename or [], namespace, every=every)

    async def work(world: LiveWorld) -> tuple[Report, StartedPods]:
        progress = StepProgress()
        named = None if every else keys
        started = StartedPods(world, grace_sec=grace_period, named=named)
        with locked(world.store), manual_log("delete", world.store, world.manager) as log:
            evicted = {mark.pod for mark in world.store.load().evicted}
            marked = evicted if every else evicted & keys
            async with progress.shown():
                report = await delete_pods(
                    world,
                    named,
                    grace_sec=grace_period,
                    prepare=started.prepare,
                    on_plan=both(lambda made: log.start(made, marked), progress.start),
                    on_result=both(log.step, progress.step),
                )
            log.finish(report)
            _log_readmitted(log, marked)
        return report, started

    report, started = in_world(planning, work)
    code = emit_report(report, output, planning.origin, started=started)
    for key in (missing := sorted(keys - report.matched - started.removed_pods)):
        note(problem_line(_not_applied(key)))
    return FAILED if missing else code


def _log_readmitted(log: ManualLog, keys: Collection[str]) -> None:
    for key in sorted(keys):
        log.report(Kind.POD_READMITTED, f"the eviction mark of pod {key} is removed", pod=key)


def _not_applied(key: str) -> Problem:
    return Problem(where="", message=f"pod {key} is not applied", hint="see: podslice status")


def _keys(names: list[str], files: list[str], namespace: str | None, *, every: bool) -> set[str]:
    """Return the keys of the named pods and of the pods in the files.

    Raises:
        InputError: a file is invalid, or no pod is specified and not `every` one is meant.
    """
    keys = {key_of(name, namespace) for name in names}
    if files:
        loaded = load_manifests(files, namespace)
        if code_of(loaded.problems):
            raise InputError(loaded.problems)
        keys |= {each.key for each in loaded.pods}
    if not keys and not every:
        raise InputError(
            Problem(where="", message="no pod specified", hint="specify pods, -f FILE or --all")
        )
    return keys
