"""Samples of usage, and the history with each of them.

Histograms have exponential buckets, in which a sample loses half of its weight in a half-life.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from podslice.features.history.model import DecayingHistogram, MemoryPeaks, UsageHistory, WaitTimes

HALF_LIFE_SEC = 86_400
"""The time in which a sample loses half of its weight.

Source: VPA recommender, model/aggregations_config.go, DefaultCPUHistogramDecayHalfLife.
"""
HALF_LIVES_KEPT = 8
"""After that many half-lives a sample no longer counts.

Source: VPA recommender, model/aggregations_config.go, DefaultMemoryAggregationIntervalCount.
"""
_EXPONENT_MAX = 100
"""Weights are at most 2 to this power; then the time of reference is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketScheme:
    """The buckets of a histogram: the first one begins at 0, and each is wider than the one before.

    Source: VPA recommender, util/histogram_options.go, NewExponentialHistogramOptions.
    """

    first_width: float
    """The width of the first bucket, in the unit of the values."""
    growth: float
    """The width of each bucket relative to the one before."""
    maximum: float
    """The last bucket begins here or above, and has no end."""

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return math.ceil(self._position(self.maximum)) + 1

    def find(self, value: float) -> int:
        """Return the index of the bucket that a value belongs to."""
        if value < self.first_width:
            return 0
        index = int(self._position(value))
        return index if value < self.maximum else min(index, self.count - 1)

    def start(self, index: int) -> float:
        """Return the least value of a bucket."""
        return self.first_width * (self.growth**index - 1) / (self.growth - 1)

    def end(self, index: int) -> float:
        """Return the end of a bucket, which stands for its values; the last one has its start."""
        return self.start(min(index + 1, self.count - 1))

    def _position(self, value: float) -> float:
        # the sum of a geometric series, first_width * (growth^n - 1) / (growth - 1), solved for n
        return math.log(value * (self.growth - 1) / self.first_width + 1) / math.log(self.growth)


CPU_BUCKETS = BucketScheme(first_width=10, growth=1.05, maximum=1_000_000)
"""In thousandths of a CPU: 0.01 to 1000 CPUs.

Source: VPA recommender, model/aggregations_config.go, cpuHistogramOptions.
"""
MEMORY_BUCKETS = BucketScheme(first_width=1e7, growth=1.05, maximum=1e12)
"""In bytes: 10 MB to 1 TB.

Source: VPA recommender, model/aggregations_config.go, memoryHistogramOptions.
"""


def add_sample(
    histogram: DecayingHistogram,
    bucket: int,
    weight: float,
    at_sec: int,
    *,
    half_life_sec: int = HALF_LIFE_SEC,
) -> DecayingHistogram:
    """Return the histogram with a sample in a bucket.

    The weight grows with the time since the reference; only relative weights matter.

    Source: VPA recommender, util/decaying_histogram.go, AddSample.
    """
    # 2^x grows without a bound; the ratios of the weights are the same from a later reference
    if at_sec > histogram.reference_sec + half_life_sec * _EXPONENT_MAX:
        histogram = _shift(histogram, at_sec, half_life_sec)
    grown = weight * 2.0 ** ((at_sec - histogram.reference_sec) / half_life_sec)
    return histogram.add(bucket, grown)


def percentile_bucket(histogram: DecayingHistogram, share: float) -> int | None:
    """Return the first bucket up to which this share of the weight lies; None of an empty histogram.

    Source: VPA recommender, util/histogram.go, Percentile.
    """
    weights = histogram.weights
    threshold = share * sum(weights.values())
    reached, found = 0.0, None
    for bucket, weight in weights.items():
        reached, found = reached + weight, bucket
        if reached >= threshold:
            break
    return found


def without_expired(
    histogram: DecayingHistogram, sample_weight: float, now_sec: int
) -> DecayingHistogram:
    """Return the histogram without the buckets whose samples are all older than the kept half-lives.

    `sample_weight` is the weight of one sample; a bucket with less weight than a sample of that age
    counts as empty.
    """
    exponent = (now_sec - histogram.reference_sec) / HALF_LIFE_SEC - HALF_LIVES_KEPT
    least = sample_weight * 2.0 ** min(exponent, 2 * _EXPONENT_MAX)
    weights = histogram.weights
    kept = {bucket: weight for bucket, weight in weights.items() if weight >= least}
    if len(kept) == len(weights):
        return histogram
    return DecayingHistogram.of(kept, histogram.reference_sec)


def _shift(histogram: DecayingHistogram, at_sec: int, half_life_sec: int) -> DecayingHistogram:
    """Return the same histogram with the reference at a multiple of the half-life about `at_sec`."""
    # rounded to the nearest multiple, so that the factor is a power of 2 and exact
    reference = (2 * at_sec + half_life_sec) // (2 * half_life_sec) * half_life_sec
    factor = 2.0 ** ((histogram.reference_sec - reference) / half_life_sec)
    scaled = {bucket: weight * factor for bucket, weight in histogram.weights.items()}
    kept = {bucket: weight for bucket, weight in scaled.items() if weight > 0}
    return DecayingHistogram.of(kept, reference)


KEPT_SEC = HALF_LIFE_SEC * HALF_LIVES_KEPT
"""The time after which a sample no longer counts, and a history without samples is removed."""
CPU_WEIGHT = 0.1
"""The weight of a CPU sample. Source: VPA recommender, model/aggregations_config.go, minSampleWeight."""
PEAK_WEIGHT = 1.0
"""The weight of a window's peak.

Source: VPA recommender, model/aggregate_container_state.go, AddSample.
"""
WINDOW_SEC = 86_400
"""The length of a window, which has one memory peak.

Source: VPA recommender, model/aggregations_config.go, DefaultMemoryAggregationInterval.
"""
_OOM_BYTES = 100 * 2**20
_OOM_PERCENT = 120


def add_cpu(history: UsageHistory, milli: int, at_sec: int) -> UsageHistory:
    """Return the history with a CPU sample, the average of a minute in thousandths of a CPU.

    Source: VPA recommender, model/aggregate_container_state.go, addCPUSample.
    """
    return history._replace(
        first_sec=history.first_sec or at_sec,
        last_sec=at_sec,
        samples=history.samples + 1,
        cpu=add_sample(history.cpu, CPU_BUCKETS.find(milli), CPU_WEIGHT, at_sec),
    )


def add_memory(history: UsageHistory, used_bytes: int, at_sec: int) -> UsageHistory:
    """Return the history with a memory sample: each window of a day counts with its peak.

    Source: VPA recommender, model/container.go, addMemorySample.
    """
    memory = _window_at(history.memory, at_sec)
    if used_bytes > memory.observed_bytes:
        memory = memory._replace(observed_bytes=used_bytes)
    return history._replace(memory=memory, last_sec=at_sec)


def add_oom_kills(
    history: UsageHistory, kills: int, at_sec: int, *, request_bytes: int = 0
) -> UsageHistory:
    """Return the history with OOM kills: the use was at least the request and the peak, and not enough.

    The need is estimated as max(used × 1.2, used + 100 MiB). An earlier estimate is not part of what
    was used, so that several kills do not add up.

    Source: VPA recommender, model/container.go, RecordOOM.
    """
    memory = _window_at(history.memory, at_sec)
    used = max(request_bytes, memory.observed_bytes)
    needed = max(used * _OOM_PERCENT // 100, used + _OOM_BYTES)
    # kills count as long as a sample does
    recent = history.oom_kills if at_sec - history.oom_kill_sec < KEPT_SEC else 0
    return history._replace(
        memory=memory._replace(oom_bytes=max(memory.oom_bytes, needed)),
        last_sec=at_sec,
        oom_kills=recent + kills,
        oom_kill_sec=at_sec,
    )


def add_waits(
    history: UsageHistory, observed_sec: float, cpu_sec: float, memory_sec: float, at_sec: int
) -> UsageHistory:
    """Return the history with the time that tasks waited within the last `observed_sec`."""
    before = history.waits
    # the clock may have been set back
    factor = math.exp2(-max(at_sec - before.at_sec, 0) / HALF_LIFE_SEC)
    waits = WaitTimes(
        at_sec=at_sec,
        observed_sec=before.observed_sec * factor + observed_sec,
        cpu_sec=before.cpu_sec * factor + cpu_sec,
        memory_sec=before.memory_sec * factor + memory_sec,
    )
    return history._replace(waits=waits)


def peaks_of(memory: MemoryPeaks) -> DecayingHistogram:
    """Return the peaks of all windows; the present window counts from its end."""
    if not memory.peak_bytes:
        return memory.finished
    bucket = MEMORY_BUCKETS.find(memory.peak_bytes)
    return add_sample(memory.finished, bucket, PEAK_WEIGHT, memory.window_end_sec)


def is_expired(history: UsageHistory, now_sec: int) -> bool:
    """Return whether no sample of a history counts any longer; an empty one is expired, too.

    Source: VPA recommender, model/aggregate_container_state.go, isExpired.
    """
    return now_sec - history.last_sec >= KEPT_SEC


def without_old(history: UsageHistory, now_sec: int) -> UsageHistory:
    """Return the history without samples that no longer count."""
    if is_expired(history, now_sec):
        return UsageHistory()
    memory = history.memory
    finished = without_expired(memory.finished, PEAK_WEIGHT, now_sec)
    return history._replace(
        cpu=without_expired(history.cpu, CPU_WEIGHT, now_sec),
        memory=memory._replace(finished=finished),
        oom_kills=history.oom_kills if now_sec - history.oom_kill_sec < KEPT_SEC else 0,
    )


def _window_at(memory: MemoryPeaks, at_sec: int) -> MemoryPeaks:
    """Return the peaks with the window that contains a time as the present one.

    A window begins with the first sample after the previous one, at a multiple of its length.
    """
    if at_sec < memory.window_end_sec:
        return memory
    # windows without samples have no peak, and are skipped
    begin = memory.window_end_sec or at_sec
    passed = (at_sec - begin) // WINDOW_SEC + 1
    end = begin + passed * WINDOW_SEC
    return MemoryPeaks(finished=peaks_of(memory), window_end_sec=end)
