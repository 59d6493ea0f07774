"""`podslice __init_done`, run by systemd after a detached init container."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from podslice.cli import interrupts
from podslice.cli.arguments import DONE, PodName
from podslice.cli.host import tolerate
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning, planning_options
from podslice.cli.output import note
from podslice.cli.session import in_world, locked
from podslice.features.run.pod_phase import finish_container
from podslice.model.event import Kind
from podslice.reconcile.report import Outcome, Report, describe_result
from podslice.reconcile.world import LiveWorld


@planning_options
def init_done(
    planning: Planning, pod: PodName, container: Annotated[str, typer.Argument(metavar="CONTAINER")]
) -> int:
    """Record the result of a detached init container that systemd reports."""
    if any(os.environ.get(name) != value for name, value in SUCCESS.items()):
        return DONE
    return finish(tolerate(planning), pod, container)


VERB = "__init_done"
"""The internal verb that systemd runs after a detached init container."""

SUCCESS = {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": "0"}
"""How systemd reports an exit status of 0. Source: systemd.exec(5), Environment Variables."""


def finish(planning: Planning, key: str, container: str) -> int:
    """Record that an init container has ended with 0, and return the exit code."""

    async def work(world: LiveWorld) -> Report:
        with locked(world.store), manual_log("run", world.store, world.manager) as log:
            interrupts.begin(f"the end of container {container} may not be recorded")
            log.announce(pods=[key])
            report = await finish_container(world, key, container)
            text = f"init container {container} of pod {key} has exited with 0"
            log.report(Kind.PHASE_CHANGED, text, pod=key, fields={"CONTAINER": container})
        return report

    report = in_world(planning, work)
    for result in report.results:
        if result.outcome is not Outcome.DONE:
            note(describe_result(result))
    return report.exit_code
