"""What the agent shows whoever asks it: the board, as a snapshot."""

from __future__ import annotations

import os
from pathlib import Path

from podslice.agent.board import Board
from podslice.agent.endpoints.snapshot import Snapshot
from podslice.kernel.proc import read_process
from podslice.model.desired import Desired
from podslice.model.unit import Caps, Observed
from podslice.policy.eviction.thresholds import eviction_thresholds
from podslice.reconcile.observe import control_group
from podslice.usage.eviction_signals import observe_signals
from podslice.usage.stats import gather


def snapshot(board: Board, root: Path) -> Snapshot:
    """How it is now; `root` is the host whose memory and the like are read."""
    state, config, cgroups = board.state, board.world.config, board.world.cgroups
    desired = state.desired if state else Desired(root=board.world.tree.root)
    observed = state.observed if state else Observed(caps=Caps(systemd_version=0))
    pods_group = control_group(desired.root, observed)
    process = read_process(os.getpid())
    agent_group = process.control_group if process else ""
    return Snapshot(
        node_name=os.uname().nodename,
        pods=desired.pods,
        gather=lambda pods: gather(
            pods, observed, config, cgroups=cgroups, agent_group=agent_group
        ),
        observe=lambda: observe_signals(root, cgroups, desired.allocation, pods_group),
        counters=board.counters,
        allocation=desired.allocation,
        thresholds=eviction_thresholds(config),
        conditions=board.conditions,
        events=board.journal.counts,
        evicted=len(state.evicted) if state else 0,
        problems=board.failures,
        initializing=desired.initializing,
    )
