"""Reports containers that systemd-oomd has killed."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import NamedTuple

from podslice.agent.context import AgentContext
from podslice.kernel.cgroup import OpenGroup
from podslice.model.event import Kind
from podslice.model.naming import service_name
from podslice.model.unit import UnitName
from podslice.reconcile.assessment import Assessment


class _Container(NamedTuple):
    """A running container of a pod."""

    pod: str
    """`namespace/name`."""
    uid: str
    name: str
    group: str


class OomdMonitor:
    """Counts the kills by systemd-oomd per container."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._followed: dict[UnitName, tuple[_Container, OpenGroup, int]] = {}
        """The containers with their open control groups, and the kills so far."""
        self._killed: set[tuple[str, str]] = set()
        self._room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def follow(self) -> None:
        """Report the kills since the last call; follow the containers that run now."""
        assessment = self._context.assessment
        if assessment is None:
            return
        running = dict(_containers(assessment))
        for unit in tuple(self._followed):
            group = self._check(unit)
            container = running.get(unit)
            if container is None or not group.is_at(self._context.world.cgroups, container.group):
                group.close()
                del self._followed[unit]
        for unit, container in running.items():
            if unit not in self._followed and len(self._followed) < self._room:
                self._open(unit, container)

    def take(self, uid: str, container: str) -> bool:
        """Return whether the last run of a container was killed; forget it."""
        was_killed = (uid, container) in self._killed
        self._killed.discard((uid, container))
        return was_killed

    def close(self) -> None:
        """Close all control groups."""
        for _, group, _ in self._followed.values():
            group.close()
        self._followed.clear()

    def _open(self, unit: UnitName, container: _Container) -> None:
        group = OpenGroup.open(self._context.world.cgroups, container.group)
        if group is not None:
            self._killed.discard((container.uid, container.name))
            self._followed[unit] = (container, group, group.oomd_kills())

    def _check(self, unit: UnitName) -> OpenGroup:
        """Report new kills in a control group; return the group."""
        container, group, before = self._followed[unit]
        kills = group.oomd_kills()
        self._followed[unit] = (container, group, kills)
        if kills > before:
            self._killed.add((container.uid, container.name))
            self._context.counters.oomd_kills += kills - before
            self._context.events.report(
                Kind.POD_OOMD_KILL,
                f"systemd-oomd killed container {container.name} of pod {container.pod}",
                pod=container.pod,
                unit=unit,
                fields={"CONTAINER": container.name},
            )
        return group


def _containers(assessment: Assessment) -> Iterator[tuple[UnitName, _Container]]:
    units = assessment.observed.units
    for pod in assessment.desired.pods:
        for scope in pod.scopes:
            for name in (scope.scope, service_name(scope.scope)):
                if name in units and (group := units[name].control_group):
                    yield name, _Container(pod.pod.key, pod.pod.uid, scope.name, group)
