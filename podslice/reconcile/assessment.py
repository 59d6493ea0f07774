"""A request, everything that an operation compares, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.model.desired import Desired, PodDecision, ReservedValues
from podslice.model.node_state import AgentState, Eviction, Foreign
from podslice.model.pod import InitProgress, Pod
from podslice.model.unit import Observed, UnitName
from podslice.plan import Plan

_NOTHING = ReservedValues()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The applied pods, the desired and the observed units, and the plan between them."""

    current: tuple[Pod, ...]
    """The applied pods, by key."""
    desired: Desired
    observed: Observed
    plan: Plan
    broken_records: tuple[str, ...] = ()
    """Files among the records that are not valid records."""
    orphans: tuple[UnitName, ...] = ()
    """Slices below the root that belong to no pod."""
    progress: Mapping[str, InitProgress] = field(default_factory=dict)
    """The progress of init containers by the uids of their pods, where there is any."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifest files of applied pods by their uids, where an agent read them."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digests of manifests by the uids of the applied pods that have records."""
    evicted: tuple[Eviction, ...] = ()
    """The marks of evicted pods."""
    recorded_values: ReservedValues = _NOTHING
    """The values that podslice set outside the root, as recorded."""
    held: ReservedValues = _NOTHING
    """The same without values that were changed externally since."""
    foreign: Foreign | None = None
    """Why nothing may be changed; None where podslice owns the root."""
    agent: AgentState | None = None
    """The state that a running agent published."""


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
