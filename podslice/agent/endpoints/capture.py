"""Captures the state that the endpoints publish."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from podslice.agent.context import AgentContext
from podslice.agent.endpoints.snapshot import Snapshot
from podslice.kernel.proc import read_process
from podslice.model.desired import Desired
from podslice.model.pod_service import PodService
from podslice.model.unit import Caps, Observed
from podslice.policy.eviction.thresholds import eviction_thresholds
from podslice.reconcile.observe import control_group, tier_groups
from podslice.usage.eviction_signals import observe_signals
from podslice.usage.stats import read_stats


def capture(context: AgentContext, root: Path, services: Sequence[PodService] = ()) -> Snapshot:
    """Return the current snapshot.

    Args:
        context: the shared state of the agent.
        root: the root directory of the host.
        services: the services of other programs in pods.
    """
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
