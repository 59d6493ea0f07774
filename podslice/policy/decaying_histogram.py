"""Histograms with exponential buckets, in which a sample loses half of its weight in a half-life."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from podslice.model.usage_history import DecayingHistogram

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

    `sample_weight` is that of one sample; a bucket with less weight than one of that age is empty.
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
    reference = (2 * at_sec + half_life_sec) // (2 * half_life_sec) * half_life_sec
    factor = 2.0 ** ((histogram.reference_sec - reference) / half_life_sec)
    return DecayingHistogram.of(_scale(histogram.weights, factor), reference)


def _scale(weights: Mapping[int, float], factor: float) -> dict[int, float]:
    scaled = {bucket: weight * factor for bucket, weight in weights.items()}
    return {bucket: weight for bucket, weight in scaled.items() if weight > 0}
