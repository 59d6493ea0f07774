"""The usage that `top` shows, measured repeatedly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from podslice.cli import overview
from podslice.cli.arguments import PodFilter
from podslice.cli.recorded_usage import RecordedUsage
from podslice.cli.views import usage_table
from podslice.cli.views.usage_table import NodeSummary, NodeUsage
from podslice.errors import PodsliceError
from podslice.kernel.proc import read_process
from podslice.model.pod_service import PodService
from podslice.model.properties import ALLOWED_CPUS, MEMORY_MAX
from podslice.model.resources import CPU
from podslice.model.unit import INFINITY, UnitName
from podslice.processes.location import observe_services
from podslice.reconcile.assess import assess
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.world import LiveWorld
from podslice.systemd.caching_client import CachingClient
from podslice.usage import stats
from podslice.usage.health import problematic_pods
from podslice.usage.stats import NodeStats

_FORGET_SEC = 10.0
"""The maximal age of limits and problems; units are listed each time."""


class ObservedUsage(NamedTuple):
    """The usage between two measurements, with a summary of the node."""

    usage: NodeUsage
    summary: NodeSummary


class UsageObserver:
    """Observes the usage of a world repeatedly, and keeps the last measurement."""

    def __init__(self, world: LiveWorld, shown: PodFilter) -> None:
        """`shown` selects pods; the node and its slices are always measured as a whole."""
        self._shown = shown
        self._client = CachingClient(world.client, world.cgroups)
        self._world = replace(world, client=self._client)
        self._recorded = RecordedUsage(world)
        self._assessment: Assessment | None = None
        self._services: tuple[PodService, ...] = ()
        self._before: NodeStats | None = None
        self._forget_at = 0.0
        self._affected: frozenset[str] = frozenset()
        """The pods with problems, where only these are shown."""

    async def observe(self) -> ObservedUsage:
        """Return the usage since the last measurement.

        Raises:
            InputError: a requested pod is not applied.
            PodsliceError: systemd has not answered yet, or /proc cannot be read.
        """
        problems = []
        now = asyncio.get_running_loop().time()
        is_due = now >= self._forget_at
        if is_due:
            self._client.forget(None)
            self._forget_at = now + _FORGET_SEC
        try:
            assessment = self._assessment = await assess(self._world)
            keys = [pod.key for pod in assessment.current]
            self._services = await observe_services(self._world, keys)
            if is_due and self._shown.only_problems:
                self._affected = problematic_pods((await overview.observe(self._world)).problems)
        except PodsliceError as error:
            if self._assessment is None:
                raise
            # the units have most likely not changed, and usage is needed most under such pressure
            problems.append(f"units as of the last update: {error}")
            assessment = self._assessment
        if not self._before:
            self._shown = self._shown.resolve({pod.key for pod in assessment.current})
        found = self._measure(assessment, self._services)
        before, self._before = self._before or found, found
        if self._world.origin.problems:
            problems.append("the configuration files are invalid, see: podslice status")
        keys = [pod.decision.pod.key for pod in found.pods]
        recorded = {key: self._recorded.read(key) for key in keys if self._is_shown(key)}
        usage = usage_table.measure(
            found, before, _limits(assessment), recorded, allowed_cpus=_allowed_cpus(assessment)
        )
        pods = tuple(pod for pod in usage.pods if self._is_shown(pod.name))
        return ObservedUsage(
            usage=usage._replace(pods=pods),
            summary=summarize_node(assessment, problems),
        )

    def _is_shown(self, pod: str) -> bool:
        is_affected = not self._shown.only_problems or pod in self._affected
        return is_affected and self._shown.selects(pod)

    def _measure(self, assessment: Assessment, services: Sequence[PodService]) -> NodeStats:
        agent = read_process(assessment.agent.pid) if assessment.agent else None
        return stats.read_stats(
            assessment.desired.pods,
            assessment.observed,
            self._world.config,
            cgroups=self._world.cgroups,
            agent_group=agent.control_group if agent else "",
            services=services,
        )


def _limits(assessment: Assessment) -> dict[UnitName, int]:
    """Return the memory limits that systemd reports."""
    reported = {
        name: unit.properties.get(MEMORY_MAX) for name, unit in assessment.observed.units.items()
    }
    return {
        name: value
        for name, value in reported.items()
        if isinstance(value, int) and value < INFINITY
    }


def _allowed_cpus(assessment: Assessment) -> dict[UnitName, str]:
    """Return the CPUs to which systemd limits units."""
    units = assessment.observed.units.items()
    return {name: str(unit.properties.get(ALLOWED_CPUS, "")) for name, unit in units}


def summarize_node(assessment: Assessment, problems: list[str]) -> NodeSummary:
    """Return the node's capacity, conditions and evicted pods, with these and the agent's problems."""
    if assessment.agent and (assessment.agent.problems or assessment.agent.failures):
        problems.append("the agent has problems, see: podslice status")
    return NodeSummary(
        cpus_milli=assessment.desired.allocation.capacity.get(CPU, 0),
        conditions=assessment.agent.conditions if assessment.agent else (),
        evicted=[each.pod for each in assessment.evicted],
        problems=problems,
    )


async def observe_interval(
    world: LiveWorld, shown: PodFilter, interval_sec: float
) -> ObservedUsage:
    """Return the usage during an interval that begins now.

    Raises:
        InputError, PodsliceError: as `UsageObserver.observe`.
    """
    observer = UsageObserver(world, shown)
    await observer.observe()
    await asyncio.sleep(interval_sec)
    return await observer.observe()
