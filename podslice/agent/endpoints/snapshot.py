"""The state of the node that the endpoints publish, and its capture."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from podslice.agent.context import AgentContext, Counters
from podslice.kernel.proc import read_process
from podslice.model.desired import Desired, PodDecision
from podslice.model.event import Kind
from podslice.model.node_state import Condition
from podslice.model.resources import RecommendedAmounts
from podslice.model.unit import Caps, Observed, PropertyValue
from podslice.policy.eviction import EvictionThreshold, SignalObservation, eviction_thresholds
from podslice.reconcile.observe import control_group, tier_groups
from podslice.usage.location import PodService
from podslice.usage.stats import NodeStats, PodStats, observe_signals, read_stats

_AT_ONCE = 32


class Snapshot(NamedTuple):
    """The state of the node."""

    node_name: str
    desired: Desired
    read_stats: Callable[[Iterable[PodDecision]], NodeStats]
    """Reads the use of the node and of some pods; each pod takes some time."""
    observe: Callable[[], Mapping[str, SignalObservation]]
    """Reads the eviction signals."""
    counters: Counters
    thresholds: tuple[EvictionThreshold, ...]
    conditions: frozenset[Condition]
    events: Mapping[Kind, int]
    """The number of reported events, by kind."""
    recommended: Mapping[str, RecommendedAmounts]
    """The recommended amounts of pods by key."""
    evicted: int = 0
    """The number of evicted pods."""
    problems: tuple[str, ...] = ()
    """Sentences on what keeps the agent from its work; without any, it is healthy."""
    reload_count: int | None = None
    """How many times systemd has read its unit files again; None where it does not count."""

    async def stats(self) -> NodeStats:
        """Read the use of the node and of all pods; the event loop continues in between.

        Raises:
            HostError: files cannot be read.
        """
        node, pods = self.read_stats(()), self.desired.pods
        found: list[PodStats] = []
        for start in range(0, len(pods), _AT_ONCE):
            await asyncio.sleep(0)
            found += self.read_stats(pods[start : start + _AT_ONCE]).pods
        return node._replace(pods=tuple(sorted(found, key=lambda each: each.decision.pod.key)))

    def pod_properties(self, decision: PodDecision) -> tuple[PropertyValue, ...]:
        """Return the present properties of a pod's slice."""
        is_initializing = decision.pod.key in self.desired.initializing
        if is_initializing and decision.init_properties is not None:
            return decision.init_properties
        return decision.properties


def container_properties(decision: PodDecision, name: str) -> tuple[PropertyValue, ...]:
    """Return the properties of a container."""
    return next((scope.properties for scope in decision.scopes if scope.name == name), ())


def capture(context: AgentContext, root: Path, services: Sequence[PodService]) -> Snapshot:
    """Return the current snapshot; `services` are those of other programs in pods."""
    assessment, world = context.assessment, context.world
    desired = assessment.desired if assessment else Desired(root=world.tree.root)
    observed = assessment.observed if assessment else Observed(caps=Caps(systemd_version=0))
    process = read_process(os.getpid())
    return Snapshot(
        node_name=os.uname().nodename,
        desired=desired,
        read_stats=partial(
            read_stats,
            observed=observed,
            config=world.config,
            cgroups=world.cgroups,
            agent_group=process.control_group if process else "",
            services=services,
        ),
        observe=partial(
            observe_signals,
            root,
            world.cgroups,
            desired.allocation,
            control_group(desired.root, observed),
            tier_groups(world, observed),
        ),
        counters=context.counters,
        thresholds=eviction_thresholds(world.config),
        conditions=context.status.conditions,
        events=context.events.journal.counts,
        recommended=context.recommended,
        evicted=len(assessment.evicted) if assessment else 0,
        problems=tuple(map(str, context.status.failures)),
        reload_count=observed.caps.reload_count,
    )
