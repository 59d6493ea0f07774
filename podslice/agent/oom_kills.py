"""Reports kills for lack of memory: of pods by the kernel, and of containers by systemd-oomd."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Collection
from typing import NoReturn

from podslice.agent.context import AgentContext, AgentPart
from podslice.agent.terminations import Terminations
from podslice.kernel.cgroup import OpenGroup
from podslice.model.config import OomPolicy
from podslice.model.event import Kind
from podslice.model.pod import Pod
from podslice.model.unit import UnitName

_PAUSE_SEC = 0.03


class OomMonitor(AgentPart):
    """Counts the kernel's OOM kills per pod, and stops the pod after one if that is configured."""

    def __init__(
        self, context: AgentContext, terminations: Terminations, on_event: Callable[[], None]
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
            # such events are signs of pressure, which the evictor may relieve
            self._on_event()
            # there may be a hundred events per second
            await asyncio.sleep(_PAUSE_SEC)

    async def follow(self) -> None:
        """Start to count for new pods from their present counts; forget removed pods."""
        assessment, before = self._context.assessment, self._kills
        self._kills = {
            pod.slice: before[pod.slice]
            if pod.slice in before
            else self._context.oom_kills(pod.slice)
            for pod in (assessment.desired.pods if assessment else ())
        }

    def forget(self, name: UnitName) -> None:
        """Forget a stopped slice: the next one of its name counts from 0."""
        self._kills.pop(name, None)

    def check(self, names: Collection[UnitName]) -> None:
        """Report the kills in pods since the last check, by the names of their slices."""
        context, assessment = self._context, self._context.assessment
        if assessment is None:
            return
        for pod in assessment.desired.pods:
            if pod.slice not in names or pod.slice not in self._kills:
                continue
            before, now = self._kills[pod.slice], context.oom_kills(pod.slice)
            self._kills[pod.slice] = now
            # a new control group has fewer
            new = now - before if now >= before else now
            if not new:
                continue
            context.counters.oom_kills += new
            count = "a process" if new == 1 else f"{new} processes"
            text = f"the kernel OOM-killed {count} of pod {pod.pod.key}"
            is_whole = context.world.config.oom_policy is OomPolicy.POD and not assessment.foreign
            context.events.report(
                Kind.POD_OOM,
                text + ("; the other processes of the pod are stopped" if is_whole else ""),
                pod=pod.pod.key,
                unit=pod.slice,
                fields={"OOM_KILLS": str(now)},
            )
            if is_whole and pod.pod.uid not in context.terminating.in_progress:
                self._terminations.start(
                    pod,
                    why=f"oom-policy is pod, and a process of pod {pod.pod.key} was OOM-killed",
                    grace_sec=pod.pod.grace_period_sec,
                    is_removal=False,
                )


class OomdMonitor(AgentPart):
    """Counts the kills by systemd-oomd per container."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self._followed: dict[UnitName, tuple[Pod, str, OpenGroup, int]] = {}
        """The pod and the name of each container with its open control group, and the kills so far."""
        self._killed: set[tuple[str, str]] = set()
        # half of the descriptors are left for the rest of the agent
        self._room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2

    async def follow(self) -> None:
        """Report the kills since the last call; follow the containers that run now."""
        if self._context.assessment is None:
            return
        cgroups = self._context.world.cgroups
        running = {
            unit.name: (pod.pod, container.name, unit.control_group)
            for pod, container, unit in self._context.containers()
            if unit.control_group
        }
        # the last look at a group comes before it is closed: a container that is gone may have been
        # killed since the last round
        for unit in tuple(self._followed):
            group = self._check(unit)
            if unit not in running or not group.is_at(cgroups, running[unit][2]):
                group.close()
                del self._followed[unit]
        for unit, (pod, name, path) in running.items():
            if unit not in self._followed and len(self._followed) < self._room:
                opened = OpenGroup.open(cgroups, path)
                if opened is not None:
                    self._killed.discard((pod.uid, name))
                    self._followed[unit] = (pod, name, opened, opened.oomd_kills())

    def take(self, uid: str, container: str) -> bool:
        """Return whether the last run of a container was killed; forget it."""
        was_killed = (uid, container) in self._killed
        self._killed.discard((uid, container))
        return was_killed

    def close(self) -> None:
        """Close all control groups."""
        for _, _, group, _ in self._followed.values():
            group.close()
        self._followed.clear()

    def _check(self, unit: UnitName) -> OpenGroup:
        """Report new kills in a control group; return the group."""
        pod, name, group, before = self._followed[unit]
        kills = group.oomd_kills()
        self._followed[unit] = (pod, name, group, kills)
        if kills > before:
            self._killed.add((pod.uid, name))
            self._context.counters.oomd_kills += kills - before
            self._context.events.report(
                Kind.POD_OOMD_KILL,
                f"systemd-oomd killed container {name} of pod {pod.key}",
                pod=pod.key,
                unit=unit,
                fields={"CONTAINER": name},
            )
        return group
