"""Stop a pod's slice at once, without assessing anything else."""

from __future__ import annotations

from podslice.model.desired import PodDecision
from podslice.model.unit import Observed
from podslice.plan import StopUnit
from podslice.reconcile.act import act_alone
from podslice.reconcile.observe import control_group
from podslice.reconcile.occupants import read_occupants
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
    """Stop a pod's slice; its processes have `grace_sec` to exit.

    It needs no lock, since eviction can't wait for one: an apply in progress finds that a slice is
    missing, and the next one creates it again, or removes the pod's record. The `client` must not
    cache.
    """
    occupants = read_occupants(world.cgroups, control_group(pod.slice, observed), pod.pod.uid)
    step = StopUnit(
        name=pod.slice,
        why=why,
        # at least 1, where the kernel does not count: a grace period does no harm
        tasks=max(occupants.processes, 1),
        pod=pod.pod.key,
        grace_sec=grace_sec,
        occupants=occupants,
        signals=(pod.slice,) if occupants.is_mixed else (),
    )
    return await act_alone(step, client)
