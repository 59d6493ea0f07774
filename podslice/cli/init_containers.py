"""The end of an init container: how systemd reports it, and its record."""

from __future__ import annotations

from podslice.cli import interrupts
from podslice.cli.manual_log import manual_log
from podslice.cli.options import Planning
from podslice.cli.output import note
from podslice.cli.session import in_world, locked
from podslice.model.event import Kind
from podslice.processes.pod_phase import finish_container
from podslice.reconcile.report import Outcome, Report, describe_result
from podslice.reconcile.world import LiveWorld

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
