"""Counters for metrics of the agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from podslice.systemd.client import Operation

OPERATION_BUCKETS_SEC = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REACTION_BUCKETS_SEC = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
RECONCILE_BUCKETS_SEC = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Counts durations by range."""

    def __init__(self, bounds_sec: Iterable[float]) -> None:
        self.bounds_sec = tuple(sorted(bounds_sec))
        self.counts = [0] * (len(self.bounds_sec) + 1)
        """By bound: durations up to it and above the previous one; then those above all bounds."""
        self.sum_sec = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        place = sum(bound < seconds for bound in self.bounds_sec)
        self.counts[place] += 1
        self.sum_sec += seconds


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts since the agent's start, and a few current numbers."""

    operations: dict[Operation, Histogram] = field(
        default_factory=lambda: {each: Histogram(OPERATION_BUCKETS_SEC) for each in Operation}
    )
    evictions: Counter[str] = field(default_factory=Counter)
    """By signal."""
    reactions: Histogram = field(default_factory=lambda: Histogram(REACTION_BUCKETS_SEC))
    """From the observation below a threshold to the order to stop a pod."""
    drift_repaired: int = 0
    oom_kills: int = 0
    """OOM-killed processes of pods."""
    oomd_kills: int = 0
    """Kills of containers by systemd-oomd."""
    reconciles: Histogram = field(default_factory=lambda: Histogram(RECONCILE_BUCKETS_SEC))
    reconcile_errors: int = 0
    broken_manifests: int = 0
    """Current, as the following ones."""
    orphans: int = 0
    refused: int = 0
    """Pods that are not admitted."""

    def operation(self, kind: Operation, seconds: float) -> None:
        """Count a created, changed or removed control group."""
        self.operations[kind].observe(seconds)

    def evicted(self, signal: str, reaction_sec: float) -> None:
        """Count an evicted pod."""
        self.evictions[signal] += 1
        self.reactions.observe(reaction_sec)

    def reconciled(self, seconds: float, *, failed: bool) -> None:
        """Count a round."""
        self.reconciles.observe(seconds)
        self.reconcile_errors += failed
