"""`podslice status`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from podslice.cli import configuration, overview
from podslice.cli.arguments import DIFFERENCES, DONE, Output
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat, emit
from podslice.cli.session import in_world
from podslice.cli.views import documents, status_lines
from podslice.reconcile.assess import assess
from podslice.reconcile.world import World

if TYPE_CHECKING:
    from podslice.processes.location import Located

Pids = Annotated[
    list[int] | None,
    typer.Option(
        "--pid",
        metavar="PID",
        min=1,
        help="Tell only where this process is; exit 3 when it is in no pod. May be repeated.",
    ),
]


@planning_options
def status(planning: Planning, output: Output = OutputFormat.TABLE, pid: Pids = None) -> int:
    """Show desired values, systemd's, the kernel's, and live usage; exit 3 when they differ."""
    planning = configuration.tolerate(planning)
    if pid:
        return _show_located(planning, output, pid)
    found = in_world(planning, overview.observe)
    overview.emit_overview(planning, found, output, as_tree=False)
    return DIFFERENCES if overview.differs(found, planning.origin) else DONE


def _show_located(planning: Planning, output: OutputFormat, pids: list[int]) -> int:
    from podslice.processes.location import locate

    async def work(world: World) -> tuple[Located, ...]:
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
