"""What the agent counts of its own doings, for whoever measures it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from podslice.systemd.timed_client import Operation

OPERATION_BUCKETS_SEC = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REACTION_BUCKETS_SEC = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
RECONCILE_BUCKETS_SEC = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """How many times something took how long."""

    def __init__(self, bounds_sec: Iterable[float]) -> None:
        self.bounds_sec = tuple(sorted(bounds_sec))
        self.counts = [0] * (len(self.bounds_sec) + 1)
        """By bound: what took no longer than it, and longer than the one before; then the rest."""
        self.sum_sec = 0.0

    def observe(self, seconds: float) -> None:
        """It took so long, once."""
        place = sum(bound < seconds for bound in self.bounds_sec)
        self.counts[place] += 1
        self.sum_sec += seconds


def _operations() -> dict[Operation, Histogram]:
    return {each: Histogram(OPERATION_BUCKETS_SEC) for each in Operation}


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts since the agent's start; the plain numbers say what is so now."""

    operations: dict[Operation, Histogram] = field(default_factory=_operations)
    evictions: Counter[str] = field(default_factory=Counter)
    """By signal."""
    reactions: Histogram = field(default_factory=lambda: Histogram(REACTION_BUCKETS_SEC))
    """From the look that showed a shortage to the order to stop a pod."""
    drift_repaired: int = 0
    oom_kills: int = 0
    """Processes that the kernel has killed in pods."""
    reconciles: Histogram = field(default_factory=lambda: Histogram(RECONCILE_BUCKETS_SEC))
    reconcile_errors: int = 0
    broken_manifests: int = 0
    orphans: int = 0
    refused: int = 0
    """Pods that are not admitted."""

    def operation(self, kind: Operation, seconds: float) -> None:
        """One control group was made, changed or removed."""
        self.operations[kind].observe(seconds)

    def evicted(self, signal: str, reaction_sec: float) -> None:
        """A pod had to go."""
        self.evictions[signal] += 1
        self.reactions.observe(reaction_sec)

    def drift(self) -> None:
        """A unit that somebody else had changed is as it should be again."""
        self.drift_repaired += 1

    def oom_killed(self, processes: int) -> None:
        """The kernel has killed for want of memory."""
        self.oom_kills += processes

    def reconciled(self, seconds: float, *, failed: bool) -> None:
        """A round is over."""
        self.reconciles.observe(seconds)
        self.reconcile_errors += failed
