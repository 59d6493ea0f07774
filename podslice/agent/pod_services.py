"""Follows the services of other programs in pods: adopted ones, and those that state a pod's slice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import NoReturn

from podslice.agent.context import AgentContext
from podslice.errors import HostError, SystemdError
from podslice.model.desired import PodDecision
from podslice.model.naming import SCOPE_PREFIX, podman_service
from podslice.model.unit import UnitKind, UnitName
from podslice.reconcile.observe import control_group
from podslice.store.adopted_services import AdoptedService, read_adopted
from podslice.systemd.client import Client
from podslice.usage.location import observe_adopted, observe_placed
from podslice.usage.pod_service import PodService

_SERVICE = f".{UnitKind.SERVICE}"
_CONTAINER = f"{SCOPE_PREFIX}-pod"
_ELSEWHERE_MAX = 4096
"""Names of services outside of pods to keep; transient ones have new names at each start."""


class ServicesInPods:
    """Keeps the services of other programs in pods as systemd has them.

    An adopted service has a drop-in of podslice. Another one is found when systemd signals a change
    of it, or by its control group.
    """

    def __init__(self, context: AgentContext, client: Client, on_found: Callable[[], None]) -> None:
        """`client` has no cache; `on_found` is called when a service is found in a pod."""
        self._context = context
        self._client = client
        self._on_found = on_found
        self.services: tuple[PodService, ...] = ()
        """As of the last round."""
        self._adopted: tuple[AdoptedService, ...] = ()
        self._pods: dict[UnitName, PodDecision] = {}
        """By their slices."""
        self._placed: frozenset[UnitName] = frozenset()
        """The services that state the slice of a pod."""
        self._elsewhere: set[UnitName] = set()
        self._unknown: set[UnitName] = set()
        self._has_unknown = asyncio.Event()
        self._is_stale = True

    @property
    def names(self) -> frozenset[UnitName]:
        """Return the names of the services."""
        return self._placed.union(each.unit for each in self._adopted)

    def notice(self, name: UnitName | None) -> None:
        """Observe a service again that has changed; with None any may have changed."""
        if name is None:
            self._is_stale = True
            self._elsewhere.clear()
        elif name in self.names:
            self._is_stale = True
        elif self.may_have(name):
            self._look_for([name])

    def may_have(self, name: UnitName) -> bool:
        """Return whether a service is in a pod, or may be found in one."""
        if name in self.names:
            return True
        return bool(self._pods) and name not in self._elsewhere and _may_be_placed(name)

    async def run(self) -> NoReturn:
        """Find out which of the unknown services are in pods."""
        while True:
            await self._has_unknown.wait()
            self._has_unknown.clear()
            names, self._unknown = self._unknown, set()
            try:
                found = await observe_placed(self._client, self._pods.values(), names)
            except SystemdError:
                continue  # after a lost connection any service may have changed
            own = {podman_service(pod.pod.key) for pod in self._pods.values()}
            placed = {each.unit.name for each in found} - own - self.names
            if len(self._elsewhere) > _ELSEWHERE_MAX:
                self._elsewhere.clear()
            self._elsewhere |= names - placed
            if placed:
                self._placed |= placed
                self._is_stale = True
                self._on_found()

    async def follow(self) -> None:
        """Observe the services after an assessment, where they may have changed."""
        assessment = self._context.assessment
        if assessment is None:
            return
        before, self._pods = self._pods, {pod.slice: pod for pod in assessment.desired.pods}
        if self._pods.keys() != before.keys():
            self._is_stale = True
        if new := self._pods.keys() - before.keys():
            self._elsewhere.clear()
            groups = (control_group(slice_, assessment.observed) for slice_ in new)
            self._look_for(name for group in groups for name in self._running_in(group))
        try:
            await self._observe()
        except (HostError, SystemdError) as error:
            self._is_stale = True
            self._context.status.fail("services", str(error))
        else:
            self._context.status.recover("services")

    async def _observe(self) -> None:
        keys = {pod.pod.key for pod in self._pods.values()}
        adopted = read_adopted(self._context.world.manager) if keys else ()
        adopted = tuple(each for each in adopted if each.pod in keys)
        if adopted == self._adopted and not self._is_stale:
            return
        self._adopted, self._is_stale = adopted, False
        others = self._placed.difference(each.unit for each in adopted)
        placed = await observe_placed(self._client, self._pods.values(), others)
        self._placed -= others.difference(each.unit.name for each in placed)
        self.services = (*await observe_adopted(self._client, adopted), *placed)

    def _look_for(self, names: Iterable[UnitName]) -> None:
        self._unknown.update(names)
        if self._unknown:
            self._has_unknown.set()

    def _running_in(self, group: str) -> Iterable[UnitName]:
        """Return the services with processes in a pod that podslice has not started."""
        cgroups = self._context.world.cgroups
        for each in cgroups.processes(group) if cgroups.exists(group) else ():
            name = PurePosixPath(each).relative_to(group).parts[:1]
            if name and _may_be_placed(name[0]):
                yield UnitName(name[0])


def _may_be_placed(name: str) -> bool:
    """Return whether a unit is a service that podslice has not started."""
    return name.endswith(_SERVICE) and not name.startswith(_CONTAINER)
