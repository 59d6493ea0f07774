"""Containers of quadlets that do not run as they should, for `podslice status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from podslice.features.quadlet.files import may_have_quadlets
from podslice.model.config import Containers
from podslice.model.naming import podman_service
from podslice.model.node_state import ContainerFailure
from podslice.reconcile.assess import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.store.files import ValueFile
from podslice.systemd.journal import reading_command
from podslice.usage.health import RESTARTS_MIN, HealthKind, HealthProblem, pod_problem
from podslice.usage.unit_status import ACTIVATING


class ContainerFailures:
    """The record of why containers that the agent keeps do not run; it exists while there is a reason."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of the store."""
        kind = dict[str, tuple[ContainerFailure, ...]]
        self._file = ValueFile(root / "container-failures.json", kind)

    def save(self, failures: Sequence[ContainerFailure]) -> None:
        """Replace the record; without any failure, remove it.

        Raises:
            HostError: it can't be written.
        """
        self._file.save({"failures": tuple(failures)} if failures else None)

    def load(self) -> tuple[ContainerFailure, ...]:
        """Return the failures; none where the record is damaged."""
        return (self._file.read() or {}).get("failures", ())


async def find_health(world: LiveWorld, assessment: Assessment) -> Mapping[str, object]:
    """Return why containers do not run that an agent keeps, and pods that systemd restarts."""
    return {
        "containers": await _find_failures(world, assessment),
        "restarting": await _find_restarting_pods(world, assessment),
    }


async def _find_failures(world: LiveWorld, assessment: Assessment) -> tuple[ContainerFailure, ...]:
    """Return the recorded failures, without those of services that have started since."""
    if assessment.agent is None or world.config.containers is not Containers.QUADLET:
        return ()
    failures = ContainerFailures(world.store.root).load()
    listed = await world.client.list_units([each.unit for each in failures if each.unit])
    active = {each.name for each in listed if each.active_state == "active"}
    return tuple(each for each in failures if each.unit not in active)


async def _find_restarting_pods(
    world: LiveWorld, assessment: Assessment
) -> tuple[HealthProblem, ...]:
    """Return the problems of pods whose services systemd starts again and again."""
    if not may_have_quadlets(world.manager):
        return ()
    services = {podman_service(pod.key): pod.key for pod in assessment.current}
    return tuple(
        pod_problem(
            HealthKind.POD_RESTARTING,
            services[each.name],
            f"podman cannot keep it active: {each.restarts} restarts",
            f"to see why: {reading_command(each.name, world.manager)}",
        )
        for each in await world.client.observe(sorted(services))
        if each.active_state == ACTIVATING and each.restarts >= RESTARTS_MIN
    )
