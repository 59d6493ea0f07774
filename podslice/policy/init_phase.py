"""The init phase, in which a pod's own limits do not apply: until its init containers succeed."""

from __future__ import annotations

from podslice.model.config import Rules
from podslice.model.pod import ContainerKind, InitProgress, Pod


def is_initializing(pod: Pod, progress: InitProgress, rules: Rules) -> bool:
    """Return whether the pod is in its init phase, which Kubernetes' rules do not have.

    Source: Pod-Level Resource Limits, "Init Containers".
    """
    return rules is Rules.PROPOSAL and not progress.over and bool(pending(pod, progress))


def pending(pod: Pod, progress: InitProgress) -> tuple[str, ...]:
    """Return the init containers that have not exited with 0, in the order in which they run."""
    return tuple(
        [
            each.name
            for each in pod.containers
            if each.kind is ContainerKind.INIT and each.name not in progress.done
        ]
    )


def finish(pod: Pod, progress: InitProgress, container: str) -> InitProgress:
    """Return the progress after an init container exits with 0; the last one ends the phase.

    The phase does not begin again if a later manifest adds init containers.
    """
    further = progress._replace(done=progress.done | {container})
    return further._replace(over=further.over or not pending(pod, further))
