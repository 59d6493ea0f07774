"""The state of the node that the endpoints publish, and its capture."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from podslice.agent.context import AgentContext, Counters
from podslice.kernel.proc import read_process
from podslice.model.desired import Desired, PodDecision
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition
from podslice.model.resources import RecommendedAmounts
from podslice.model.unit import Caps, Observed, PropertyValue
from podslice.policy.eviction import EvictionThreshold, SignalObservation, eviction_thresholds
from podslice.reconcile.observe import control_group, tier_groups
from podslice.usage.location import PodService
from podslice.usage.stats import NodeStats, PodStats, observe_signals, read_stats

_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of the node."""

    node_name: str
    pods: tuple[PodDecision, ...]
    """The applied pods."""
    read_stats: Callable[[Iterable[PodDecision]], NodeStats]
    """Reads the use of the node and of some pods; each pod takes some time."""
    observe: Callable[[], Mapping[str, SignalObservation]]
    """Reads the eviction signals."""
    counters: Counters
    allocation: Allocation
    thresholds: tuple[EvictionThreshold, ...] = ()
    conditions: frozenset[Condition] = frozenset()
    events: Mapping[Kind, int] = field(default_factory=dict)
    """The number of reported events, by kind."""
    evicted: int = 0
    """The number of evicted pods."""
    problems: tuple[str, ...] = ()
    """Sentences on what keeps the agent from its work; without any, it is healthy."""
    initializing: frozenset[str] = frozenset()
    """The pods (`namespace/name`) in their init phase."""
    recommended: Mapping[str, RecommendedAmounts] = field(default_factory=dict)
    """The recommended amounts of pods by key."""
    reload_count: int | None = None
    """How many times systemd has read its unit files again; None where it does not count."""
    own_cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The CPUs that pods have for themselves, by the pod's key."""
    available_cpus: frozenset[int] | None = None
    """The CPUs that a pod may claim for itself; None without a CPU manager."""

    async def stats(self) -> NodeStats:
        """Read the use of the node and of all pods; the event loop continues in between.

        Raises:
            HostError: files cannot be read.
        """
        node = self.read_stats(())
        found: list[PodStats] = []
        for start in range(0, len(self.pods), _AT_ONCE):
            await asyncio.sleep(0)
            found += self.read_stats(self.pods[start : start + _AT_ONCE]).pods
        return node._replace(pods=tuple(sorted(found, key=lambda each: each.decision.pod.key)))


def pod_properties(
    decision: PodDecision, initializing: frozenset[str]
) -> tuple[PropertyValue, ...]:
    """Return the present properties of a pod's slice."""
    is_initializing = decision.pod.key in initializing and decision.init_properties is not None
    return (decision.init_properties or ()) if is_initializing else decision.properties


def container_properties(decision: PodDecision, name: str) -> tuple[PropertyValue, ...]:
    """Return the properties of a container."""
    return next((scope.properties for scope in decision.scopes if scope.name == name), ())


def capture(context: AgentContext, root: Path, services: Sequence[PodService] = ()) -> Snapshot:
    """Return the current snapshot; `services` are those of other programs in pods."""
    assessment, world = context.assessment, context.world
    desired = assessment.desired if assessment else Desired(root=world.tree.root)
    observed = assessment.observed if assessment else Observed(caps=Caps(systemd_version=0))
    pods_group = control_group(desired.root, observed)
    process = read_process(os.getpid())
    agent_group = process.control_group if process else ""
    return Snapshot(
        node_name=os.uname().nodename,
        pods=desired.pods,
        read_stats=lambda pods: read_stats(
            pods,
            observed,
            world.config,
            cgroups=world.cgroups,
            agent_group=agent_group,
            services=services,
        ),
        observe=lambda: observe_signals(
            root, world.cgroups, desired.allocation, pods_group, tier_groups(world, observed)
        ),
        counters=context.counters,
        allocation=desired.allocation,
        thresholds=eviction_thresholds(world.config),
        conditions=context.status.conditions,
        events=context.events.counts,
        evicted=len(assessment.evicted) if assessment else 0,
        problems=tuple(map(str, context.status.failures)),
        initializing=desired.initializing,
        recommended=context.recommended,
        reload_count=observed.caps.reload_count,
        own_cpus=desired.own_cpus,
        available_cpus=desired.available_cpus,
    )
