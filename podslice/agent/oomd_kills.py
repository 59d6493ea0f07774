"""Reports containers that systemd-oomd has killed."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from podslice.agent.context import AgentContext
from podslice.kernel.open_group import OpenGroup
from podslice.model.event import Kind
from podslice.model.naming import service_name
from podslice.model.unit import UnitName
from podslice.reconcile.assessment import Assessment


class _Container(NamedTuple):
    """A running container."""

    pod: str
    """`namespace/name`."""
    uid: str
    name: str
    group: str


@dataclass(slots=True, kw_only=True)
class _Followed:
    """A container whose control group is open."""

    container: _Container
    group: OpenGroup
    kills: int


class OomdMonitor:
    """Counts the kills by systemd-oomd per container."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._followed: dict[UnitName, _Followed] = {}
        self._killed: set[tuple[str, str]] = set()
        self._room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    def follow(self) -> None:
        """Report the kills since the last call; follow the containers that run now."""
        assessment = self._context.assessment
        if assessment is None:
            return
        running = dict(_containers(assessment))
        for unit, followed in tuple(self._followed.items()):
            self._check(unit, followed)
            if not self._is_current(followed, running.get(unit)):
                followed.group.close()
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
        for followed in self._followed.values():
            followed.group.close()
        self._followed.clear()

    def _is_current(self, followed: _Followed, container: _Container | None) -> bool:
        if container is None:
            return False
        return followed.group.is_at(self._context.world.cgroups, container.group)

    def _open(self, unit: UnitName, container: _Container) -> None:
        group = OpenGroup.open(self._context.world.cgroups, container.group)
        if group is not None:
            self._killed.discard((container.uid, container.name))
            self._followed[unit] = _Followed(
                container=container, group=group, kills=group.oomd_kills()
            )

    def _check(self, unit: UnitName, followed: _Followed) -> None:
        container, kills = followed.container, followed.group.oomd_kills()
        new, followed.kills = kills - followed.kills, kills
        if new <= 0:
            return
        self._killed.add((container.uid, container.name))
        self._context.counters.oomd_kills += new
        self._context.events.report(
            Kind.POD_OOMD_KILL,
            f"systemd-oomd killed container {container.name} of pod {container.pod}",
            pod=container.pod,
            unit=unit,
            fields={"CONTAINER": container.name},
        )


def _containers(assessment: Assessment) -> Iterator[tuple[UnitName, _Container]]:
    units = assessment.observed.units
    for pod in assessment.desired.pods:
        for scope in pod.scopes:
            for name in (scope.scope, service_name(scope.scope)):
                if name in units and units[name].control_group:
                    yield (
                        name,
                        _Container(
                            pod=pod.pod.key,
                            uid=pod.pod.uid,
                            name=scope.name,
                            group=units[name].control_group,
                        ),
                    )
