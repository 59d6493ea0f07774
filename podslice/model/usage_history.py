"""The history of usage of a pod, a container or a slice: two histograms, and what spoils them.

Times are seconds since the Unix epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import NamedTuple

_BUCKET = struct.Struct("<Hd")


class DecayingHistogram(NamedTuple):
    """Weights of buckets, in which later samples count more than earlier ones."""

    packed: bytes = b""
    """The index and the weight of each bucket with samples, in their order.

    A `dict` takes five times the memory, and an agent has thousands of histograms.
    """
    reference_sec: int = 0
    """The time at which a sample counts with its own weight."""

    @classmethod
    def of(cls, weights: Mapping[int, float], reference_sec: int = 0) -> DecayingHistogram:
        """Return the histogram with these weights; indexes are below 2^16."""
        packed = b"".join(starmap(_BUCKET.pack, sorted(weights.items())))
        return cls(packed=packed, reference_sec=reference_sec)

    def add(self, bucket: int, weight: float) -> DecayingHistogram:
        """Return the histogram with this weight added to a bucket."""
        weights = self.weights
        if bucket not in weights:
            return DecayingHistogram.of(weights | {bucket: weight}, self.reference_sec)
        # all others stay: this is the usual sample, one a minute for each of a thousand histograms
        at = [*weights].index(bucket) * _BUCKET.size
        entry = _BUCKET.pack(bucket, weights[bucket] + weight)
        packed = self.packed[:at] + entry + self.packed[at + _BUCKET.size :]
        return DecayingHistogram(packed=packed, reference_sec=self.reference_sec)

    @property
    def weights(self) -> dict[int, float]:
        """Return the sums of the weights of samples, as of `reference_sec`, by index of the bucket."""
        return dict(_BUCKET.iter_unpack(self.packed))


class MemoryPeaks(NamedTuple):
    """The peaks of finished windows as a histogram, and that of the present window."""

    finished: DecayingHistogram = DecayingHistogram()
    window_end_sec: int = 0
    """The end of the present window; 0 before the first sample."""
    observed_bytes: int = 0
    """The peak of the present window that was observed."""
    oom_bytes: int = 0
    """What an OOM kill in the present window suggests; 0 without one."""

    @property
    def peak_bytes(self) -> int:
        """Return the peak of the present window."""
        return max(self.observed_bytes, self.oom_bytes)


class WaitTimes(NamedTuple):
    """How long tasks waited for a CPU or memory, and for how long that was observed.

    Each is a sum in seconds, as of `at_sec`: earlier times count less.
    """

    at_sec: int = 0
    observed_sec: float = 0.0
    cpu_sec: float = 0.0
    memory_sec: float = 0.0


class UsageHistory(NamedTuple):
    """The history of one pod, container or slice."""

    first_sec: int = 0
    """The time of the first CPU sample; 0 before it."""
    last_sec: int = 0
    """The time of the last sample."""
    samples: int = 0
    """The number of CPU samples."""
    cpu: DecayingHistogram = DecayingHistogram()
    memory: MemoryPeaks = MemoryPeaks()
    waits: WaitTimes = WaitTimes()
    oom_kills: int = 0
    """The OOM kills up to `oom_kill_sec`, each within the time that a history lasts of the next."""
    oom_kill_sec: int = 0
    """The time of the last one; 0 without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHistory:
    """The histories of a pod as a whole, and of its containers by name."""

    pod: UsageHistory = UsageHistory()
    containers: Mapping[str, UsageHistory] = field(default_factory=dict)
