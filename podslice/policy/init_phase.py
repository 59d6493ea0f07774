"""The init phase: until its init containers have ended well, a pod's own limits do not bind."""

from __future__ import annotations

from dataclasses import replace

from podslice.model.config import Rules
from podslice.model.pod import ContainerKind, InitProgress, Pod


def is_initializing(pod: Pod, progress: InitProgress, rules: Rules) -> bool:
    """Whether the pod is in its init phase; under the rules of Kubernetes there is none.

    Source: seed 002, "Init Containers".
    """
    return rules is Rules.PROPOSAL and not progress.over and bool(pending(pod, progress))


def pending(pod: Pod, progress: InitProgress) -> tuple[str, ...]:
    """The init containers that have not ended with 0 yet, in the order in which they run."""
    names = (container.name for container in pod.of_kind(ContainerKind.INIT))
    return tuple(name for name in names if name not in progress.done)


def finish(pod: Pod, progress: InitProgress, container: str) -> InitProgress:
    """The progress once an init container has ended with 0; with the last one the phase is over.

    What is over stays over, whatever init containers a later manifest adds.
    """
    further = replace(progress, done=progress.done | {container})
    return replace(further, over=further.over or not pending(pod, further))
