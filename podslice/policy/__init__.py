"""From pods, a node and a configuration to decisions. Pure: no I/O, no clock, no environment.

This is the face of the core for programs; everything else in here is its inside.
"""

from podslice.model.naming import Tree, scope_name
from podslice.policy.allocatable import allocate, validate_node
from podslice.policy.compare import Difference, compare_rules
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from podslice.policy.eviction.thresholds import (
    EvictionCandidate,
    EvictionThreshold,
    PodUsage,
    SignalObservation,
    eviction_thresholds,
    most_urgent,
    past_grace,
    rank,
    thresholds_met,
)
from podslice.policy.qos import classify

__all__ = [
    "Difference",
    "EvictionCandidate",
    "EvictionThreshold",
    "PodUsage",
    "SignalObservation",
    "Tree",
    "allocate",
    "classify",
    "compare_rules",
    "decide",
    "desire",
    "eviction_thresholds",
    "most_urgent",
    "past_grace",
    "rank",
    "scope_name",
    "thresholds_met",
    "validate_node",
]
