"""Everything that an operation compares, and the plan that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.model.desired import Desired
from podslice.model.kubelet import Foreign
from podslice.model.node_state import AgentState, Eviction
from podslice.model.pod import InitProgress, Pod
from podslice.model.reserved_values import ReservedValues
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
