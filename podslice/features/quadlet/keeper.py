"""The containers of the agent's pods, which a service outside of the agent's sandbox keeps."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from contextlib import suppress
from itertools import chain

from podslice.agent.context import AgentContext, AgentPart
from podslice.errors import SystemdError
from podslice.inputs.source import list_manifests
from podslice.model.config import Containers
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.unit import TransientUnit, UnitName, Value
from podslice.reconcile.assess import Assessment
from podslice.store.files import Stamp, stamp

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


def _stamps(assessment: Assessment) -> Iterator[tuple[str, Stamp]]:
    """Yield all manifests in the directories of applied pods: digests of pods leave out containers."""
    directories = {os.path.dirname(each) for each in assessment.sources.values()}  # noqa: PTH120
    for path in chain.from_iterable(map(list_paths, directories)):
        with suppress(OSError):
            yield path, stamp(os.stat(path))  # noqa: PTH116 - in each round
