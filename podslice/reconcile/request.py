"""The pods to apply, the pods to remove, and how."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from podslice.model.desired import PodDecision
from podslice.model.pod import Pod


class OngoingTerminations(NamedTuple):
    """The uids of pods that another task of this process stops; the collections may change."""

    in_progress: Collection[str] = ()
    """Pods within their grace period: they and their units are left alone."""
    expired: Collection[str] = ()
    """Pods whose grace period is over: their remaining processes are killed."""


_NONE = OngoingTerminations()


class Request(NamedTuple):
    """The pods to apply, the pods to remove, and how; by default nothing changes."""

    candidates: tuple[PodDecision, ...] = ()
    """The pods to apply."""
    to_remove: Callable[[Pod], bool] = lambda _: False
    """Whether an applied pod is to be removed."""
    prune: bool = False
    """Remove the applied pods that are not candidates, too."""
    grace_sec: int | None = None
    """The grace period of removed pods; None: as each pod states."""
    force: bool = False
    """Limit slices to less memory than they use."""
    by_operator: bool = False
    """Requested by a person. Otherwise reserved slices keep unconfirmed values."""
    starts_containers: bool = False
    """The containers are started afterwards, init containers, too."""
    releases_reserved: bool = False
    """Return the former values of reserved slices once no pods remain."""
    expects_unused: bool = False
    """Expect the former values of reserved slices where podslice has applied nothing."""
    known: tuple[PodDecision, ...] = ()
    """Decisions of an earlier assessment of the same world, to save time."""
    terminating: OngoingTerminations = _NONE
