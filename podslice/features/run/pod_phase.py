"""The init phase of a pod: read, end or restart it."""

from __future__ import annotations

from typing import NamedTuple

from podslice.errors import HostError, InputError, Problem
from podslice.features.run.target import find_pod
from podslice.model.config import Rules
from podslice.model.desired import PodDecision
from podslice.model.pod import NO_PROGRESS, ContainerKind, InitProgress
from podslice.policy.desire import finish
from podslice.reconcile.assess import assess
from podslice.reconcile.converge import settle
from podslice.reconcile.report import Report
from podslice.reconcile.world import LiveWorld


class Phase(NamedTuple):
    """The phase of a pod, and the progress of its init containers."""

    pod: PodDecision
    progress: InitProgress
    initializing: bool

    @property
    def init_containers(self) -> tuple[tuple[str, bool], ...]:
        """The init containers in order, each with whether it has exited with 0."""
        containers = self.pod.pod.of_kind(ContainerKind.INIT)
        return tuple((each.name, each.name in self.progress.done) for each in containers)


async def read_phase(world: LiveWorld, key: str) -> Phase:
    """Return the phase of a pod.

    Raises:
        HostError: the pod is not applied.
    """
    assessment = await assess(world)
    pod = find_pod(assessment, key)
    return Phase(
        pod=pod,
        progress=assessment.progress.get(pod.pod.uid, NO_PROGRESS),
        initializing=key in assessment.desired.initializing,
    )


async def finish_container(world: LiveWorld, key: str, container: str) -> Report:
    """Record that an init container is done; the last one ends the init phase.

    The caller holds the lock. A pod that no longer exists is ignored.

    Raises:
        ForeignRoot: the root belongs to a kubelet.
    """
    await world.claim(world.client)
    try:
        phase = await read_phase(world, key)
    except HostError:
        return Report()
    after = finish(phase.pod.pod, phase.progress, container)
    world.store.save_progress(phase.pod.pod.uid, after)
    if not after.over or phase.progress.over:
        return Report()
    return await settle(world, key)


async def set_phase(world: LiveWorld, key: str, *, initializing: bool) -> Report:
    """End the init phase of a pod, or restart it. The caller holds the lock.

    Raises:
        ForeignRoot: the root belongs to a kubelet.
        HostError: the pod is not applied.
        InputError: the pod has no init phase.
    """
    await world.claim(world.client)
    phase = await read_phase(world, key)
    if why := why_no_phase(phase, world.config.rules):
        hint = f"there is nothing to set; see: podslice phase {key}"
        raise InputError(Problem(where=f"pod {key}", message=why, hint=hint))
    progress = NO_PROGRESS if initializing else phase.progress._replace(over=True)
    world.store.save_progress(phase.pod.pod.uid, progress)
    return await settle(world, key)


def why_no_phase(phase: Phase, rules: Rules) -> str:
    """Return why a pod has no init phase; empty where it has one."""
    if rules is Rules.KUBERNETES:
        return "under the rules of Kubernetes a pod's limits bind from the start"
    return "" if phase.init_containers else "it has no init containers, so its limits always bind"
