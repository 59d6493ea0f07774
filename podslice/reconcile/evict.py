"""The quick way to end a pod: its slice is stopped at once, and nothing else is looked at."""

from __future__ import annotations

from podslice.model.desired import PodDecision
from podslice.model.unit import Observed
from podslice.plan import StopUnit
from podslice.reconcile.act import act_alone
from podslice.reconcile.observe import control_group
from podslice.reconcile.occupants import read_holds
from podslice.reconcile.report import StepResult
from podslice.reconcile.world import World
from podslice.systemd.client import Client


async def stop_pod(
    world: World,
    client: Client,
    pod: PodDecision,
    observed: Observed,
    *,
    why: str,
    grace_sec: int,
) -> StepResult:
    """Stop a pod's slice; what runs in it has `grace_sec` to end by itself.

    It needs no lock, for when memory runs out nobody can wait for one: an apply that is under way
    finds that a slice is missing, and the next one makes it again, or removes the pod's record. The
    `client` is one that knows what it is asked only by asking systemd.
    """
    holds = read_holds(world.cgroups, control_group(pod.slice, observed), pod.pod.uid)
    step = StopUnit(
        name=pod.slice,
        why=why,
        # 1 where the kernel does not count: a stop with a grace period does no harm
        tasks=max(holds.processes, 1),
        pod=pod.pod.key,
        grace_sec=grace_sec,
        holds=holds.words,
        processes=holds.processes,
        inside=holds.units,
        signals=(pod.slice,) if holds.is_mixed else (),
    )
    return await act_alone(step, client)
