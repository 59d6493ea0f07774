"""`podslice status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import configuration, overview
from podslice.cli.arguments import (
    DIFFERENCES,
    DONE,
    OnlyNamespace,
    Output,
    ShownPods,
    pod_filter,
)
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import in_world
from podslice.cli.views import documents, status_lines
from podslice.errors import invalid
from podslice.reconcile.assess import assess
from podslice.reconcile.world import LiveWorld

if TYPE_CHECKING:
    from podslice.processes.location import Located

Pids = Annotated[
    list[int] | None,
    typer.Option(
        "--pid",
        metavar="PID",
        min=1,
        help="Show only the pod and unit of this process; may be repeated. Exit with 3 if one is not in a pod.",
    ),
]


@planning_options
def status(
    planning: Planning,
    pod: ShownPods = None,
    namespace: OnlyNamespace = None,
    output: Output = OutputFormat.TABLE,
    pid: Pids = None,
) -> int:
    """Compare desired values with systemd's and the kernel's.

    The exit status is 3 if anything differs or is not as it should be.
    """
    shown = pod_filter(pod, namespace)
    if pid and not shown.is_total:
        raise invalid("--pid cannot be combined with pods", "leave out one of the two")
    planning = configuration.tolerate(planning)
    if pid:
        return _show_located(planning, output, pid)
    found = overview.select(in_world(planning, overview.observe), shown)
    overview.emit_overview(planning, found, output, as_tree=False)
    return DIFFERENCES if overview.differs(found, planning.origin) else DONE


def _show_located(planning: Planning, output: OutputFormat, pids: list[int]) -> int:
    from podslice.processes.location import locate

    async def work(world: LiveWorld) -> tuple[Located, ...]:
        return locate(await assess(world), pids)

    found = in_world(planning, work)
    emit(
        output,
        document=lambda: documents.document(
            **configuration.document(planning.origin), **documents.located(found)
        ),
        lines=lambda _: status_lines.located(found),
        names=lambda: [each.home.unit for each in found if each.home],
    )
    return DONE if all(each.home for each in found) else DIFFERENCES
