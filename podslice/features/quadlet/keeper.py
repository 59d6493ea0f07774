"""The containers of the agent's pods, which a service outside of the agent's sandbox keeps.

Also why such containers do not run, for `podslice status`.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from podslice.agent.context import AgentContext, AgentPart
from podslice.errors import SystemdError
from podslice.features.quadlet.files import may_have_quadlets
from podslice.inputs.source import list_manifests
from podslice.model.config import Containers
from podslice.model.naming import KUBE_RESERVED_SLICE, podman_service
from podslice.model.node_state import ContainerFailure
from podslice.model.unit import TransientUnit, UnitName, Value
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
    """Return the recorded failures, without the failures of services that are active."""
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


VERB = "__containers"
"""The internal verb that writes quadlets, and starts and stops services."""
_PART = "containers"


class ContainerKeeper(AgentPart):
    """Starts the service when pods, evictions or manifests have changed."""

    def __init__(self, context: AgentContext, program: str) -> None:
        """`program` is the path of podslice."""
        self._context = context
        self._program = program
        self._kept: Hashable = None
        """The state for which the service was started last."""
        self._runs = 0

    async def follow(self) -> None:
        # the present state, compared with that of the last run
        world, assessment = self._context.world, self._context.assessment
        is_kept = world.config.containers is Containers.QUADLET
        if not is_kept or assessment is None or assessment.foreign is not None:
            return
        state = _state_of(assessment)
        if state == self._kept:
            return
        try:
            await world.client.start(self._unit())
        except SystemdError as error:
            self._context.status.fail(_PART, f"the containers of pods are not updated: {error}")
            return
        self._context.status.recover(_PART)
        self._kept = state

    def _unit(self) -> TransientUnit:
        """Return the service; each run has a name of its own, since an earlier one may wait."""
        self._runs += 1
        manager = self._context.world.manager
        arguments = (self._program, VERB, *manager.options)
        properties: dict[str, Value] = {
            "Description": "Containers of the pods of podslice-agent.service",
            "Type": "exec",
            "CollectMode": "inactive-or-failed",
            "ExecStart": ((self._program, arguments, False),),
        }
        if not manager.is_user:
            properties["Slice"] = KUBE_RESERVED_SLICE
        name = UnitName(f"podslice-containers-{os.getpid()}-{self._runs}.service")
        return TransientUnit(name=name, properties=properties)


def list_paths(directory: str) -> list[str]:
    """Return the manifests in a directory; none of one that cannot be read."""
    with suppress(OSError):
        return [f"{directory}/{name}" for name in list_manifests(directory)]
    return []


def _state_of(assessment: Assessment) -> Hashable:
    """Return what decides which containers run, and how."""
    return (
        frozenset(assessment.digests.items()),
        frozenset(assessment.sources.items()),
        frozenset(mark.uid for mark in assessment.evicted),
        frozenset(assessment.desired.own_cpus.items()),
        frozenset(_stamps(assessment)),
    )


def _stamps(assessment: Assessment) -> Iterator[tuple[str, int, int, int]]:
    """Yield all manifests in the directories of applied pods: digests of pods leave out containers."""
    directories = {os.path.dirname(each) for each in assessment.sources.values()}  # noqa: PTH120
    for path in chain.from_iterable(map(list_paths, directories)):
        try:
            status = os.stat(path)  # noqa: PTH116 - in each round
        except OSError:
            continue
        yield path, status.st_ino, status.st_size, status.st_ctime_ns
