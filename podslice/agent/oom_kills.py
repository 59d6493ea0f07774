"""Reports processes killed by the kernel's OOM killer, and stops their pods if configured."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, NoReturn

from podslice.agent.context import AgentContext
from podslice.agent.terminations import Terminations
from podslice.kernel.cgroup import OpenGroup
from podslice.model.config import OomPolicy
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.naming import service_name
from podslice.model.unit import UnitName
from podslice.reconcile.assess import Assessment
from podslice.reconcile.observe import control_group

_PAUSE_SEC = 0.03


class OomMonitor:
    """Counts OOM kills per pod."""

    def __init__(
        self,
        context: AgentContext,
        terminations: Terminations,
        on_event: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_event` is called after memory events of any unit."""
        self._context = context
        self._terminations = terminations
        self._on_event = on_event
        self._kills: dict[UnitName, int] = {}
        self._noticed: set[UnitName] = set()
        self._has_noticed = asyncio.Event()

    def notice(self, name: UnitName) -> None:
        """Have `run` check a unit whose memory.events has changed."""
        self._noticed.add(name)
        self._has_noticed.set()

    async def run(self) -> NoReturn:
        """Check the units of memory events."""
        while True:
            await self._has_noticed.wait()
            self._has_noticed.clear()
            names, self._noticed = self._noticed, set()
            self.check(names)
            self._on_event()
            # there may be a hundred events per second
            await asyncio.sleep(_PAUSE_SEC)

    def follow(self) -> None:
        """Start to count for new pods from their present counts; forget removed pods."""
        assessment = self._context.assessment
        pods = assessment.desired.pods if assessment else ()
        before = self._kills
        self._kills = {
            pod.slice: before[pod.slice] if pod.slice in before else self._count(pod)
            for pod in pods
        }

    def check(self, names: Collection[UnitName]) -> None:
        """Check pods by the names of their slices."""
        assessment = self._context.assessment
        if assessment is None:
            return
        for pod in assessment.desired.pods:
            if pod.slice in names and pod.slice in self._kills:
                self._check(pod, assessment)

    def forget(self, name: UnitName) -> None:
        """Forget a stopped slice: the next one of its name counts from 0."""
        self._kills.pop(name, None)

    def _check(self, pod: PodDecision, assessment: Assessment) -> None:
        before, now = self._kills[pod.slice], self._count(pod)
        self._kills[pod.slice] = now
        if now < before:
            before = 0  # a new control group
        if now == before:
            return
        self._context.counters.oom_kills += now - before
        policy = self._context.world.config.oom_policy
        is_whole = policy is OomPolicy.POD and not assessment.foreign
        self._report(pod, now - before, now, is_whole=is_whole)
        if is_whole and pod.pod.uid not in self._context.terminating.in_progress:
            self._terminations.start(
                pod,
                assessment,
                why=f"oom-policy is pod, and a process of pod {pod.pod.key} was OOM-killed",
                grace_sec=pod.pod.grace_period_sec,
                is_removal=False,
            )

    def _report(self, pod: PodDecision, new: int, total: int, *, is_whole: bool) -> None:
        count = "a process" if new == 1 else f"{new} processes"
        text = f"the kernel OOM-killed {count} of pod {pod.pod.key}"
        self._context.events.report(
            Kind.POD_OOM,
            text + ("; the other processes of the pod are stopped" if is_whole else ""),
            pod=pod.pod.key,
            unit=pod.slice,
            fields={"OOM_KILLS": str(total)},
        )

    def _count(self, pod: PodDecision) -> int:
        assessment = self._context.assessment
        group = control_group(pod.slice, assessment.observed) if assessment else pod.control_group
        return self._context.world.cgroups.events(group).get("oom_kill", 0)


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
