"""`podslice status`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from podslice.cli import overview
from podslice.cli.arguments import (
    DIFFERENCES,
    DONE,
    Names,
    OnlyNamespace,
    OnlyProblems,
    Output,
    number,
)
from podslice.cli.host import tolerate
from podslice.cli.options import Planning, configured
from podslice.cli.output import OutputFormat, emit
from podslice.cli.overview import Overview, observe_pod
from podslice.cli.pods import PodFilter, pod_filter
from podslice.cli.report import configuration_entry, document
from podslice.cli.session import in_world
from podslice.cli.views import status_view
from podslice.cli.views.pod_page import PodDetail
from podslice.cli.views.status_report import LocatedReport, located_entries
from podslice.errors import invalid
from podslice.reconcile.assess import assess
from podslice.reconcile.world import LiveWorld
from podslice.usage.location import Located, locate, observe_services


@configured
def status(  # noqa: PLR0913, PLR0917 - a verb has as many arguments as options
    planning: Planning,
    pod: Names = None,
    namespace: OnlyNamespace = None,
    problems: OnlyProblems = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
    pid: Annotated[
        list[int] | None,
        typer.Option(
            "--pid",
            metavar="PID",
            parser=number(1),
            help="Show only the pod and unit of this process; may be repeated. Exit with 3 if one is not in a pod.",
        ),
    ] = None,
    exit_zero: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--exit-zero", help="Exit with 0 also if there are problems, for display."),
    ] = False,
) -> int:
    """Run `podslice status`.

    The exit status is 3 if there is a problem with the node or a pod that is shown.

    Examples:
        podslice status
        podslice status web
    """
    code = DONE if exit_zero else DIFFERENCES
    shown = pod_filter(pod, namespace, only_problems=problems)
    if pid and shown != PodFilter():
        raise invalid(
            "--pid cannot be combined with POD, -n or --problems", "leave out one of the two"
        )
    if pid:
        planning = tolerate(planning)
        return DONE if _show_located(planning, output, pid) else code
    planning = tolerate(planning, is_listed=output.has_lines)
    found, shown, detail = in_world(planning, partial(_observe, shown, output))
    found = overview.select(found, shown)
    overview.emit_overview(planning, found, output, shown, as_tree=False, detail=detail)
    return code if found.problems else DONE


async def _observe(
    shown: PodFilter, output: OutputFormat, world: LiveWorld
) -> tuple[Overview, PodFilter, PodDetail | None]:
    """Return the overview, the pods to show, and details if that is one pod."""
    found = await overview.observe_for(output, world)
    shown = shown.resolve(found.pods)
    if len(shown.keys) != 1 or shown.only_problems:
        return found, shown, None

    return found, shown, await observe_pod(world, found, shown.keys[0])


def _show_located(planning: Planning, output: OutputFormat, pids: list[int]) -> bool:
    """Print the location of processes; return whether all are in pods."""

    async def work(world: LiveWorld) -> tuple[Located, ...]:
        state = await assess(world)
        services = await observe_services(world, (pod.key for pod in state.current))
        return locate(state, pids, services=services)

    found = in_world(planning, work)
    emit(
        output,
        document=lambda: document(
            LocatedReport(
                configuration=configuration_entry(planning.origin),
                processes=located_entries(found),
            )
        ),
        lines=lambda display: status_view.located(found, display),
        names=lambda: [each.home.unit for each in found if each.home],
    )
    return all(each.home for each in found)
