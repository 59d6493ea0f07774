"""`podslice release`."""

from __future__ import annotations

from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import Output, RestartService
from podslice.cli.host import tolerate
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import OutputFormat
from podslice.cli.session import in_world, locked
from podslice.features.run.service_adoption import PlacedService, release_services, restart_due
from podslice.features.run.services_view import emit_services, log_services
from podslice.reconcile.world import LiveWorld


@planning_options
def release(
    planning: Planning,
    unit: Annotated[
        list[str], typer.Argument(metavar="UNIT", help="Adopted services; nginx is nginx.service.")
    ],
    restart: RestartService = False,  # noqa: FBT002
    output: Output = OutputFormat.TABLE,
) -> int:
    """Run `podslice release`.

    A service that runs stays in the pod until it is restarted.
    """
    planning = tolerate(planning)

    async def work(world: LiveWorld) -> tuple[PlacedService, ...]:
        interrupts.begin("drop-ins may have been removed; see: systemctl daemon-reload")
        with locked(world.store), manual_log("release", world.store, world.manager) as log:
            released = await release_services(world, unit)
            log_services(log, released)
        return await restart_due(world, released) if restart else released

    return emit_services(in_world(planning, work), planning.manager, output)
