"""Histograms beyond the rows of `tests/cases`: their ends, expiry and changes of the reference."""

import pytest

from podslice.features.history.model import DecayingHistogram, UsageHistory
from podslice.features.history.samples import (
    CPU_BUCKETS,
    HALF_LIFE_SEC,
    KEPT_SEC,
    MEMORY_BUCKETS,
    add_cpu,
    add_memory,
    add_sample,
    percentile_bucket,
    without_expired,
    without_old,
)
from tests.unit.features.history.rows import HOUR_SEC, START_SEC


def add(histogram, bucket, hour):
    at_sec = START_SEC + hour * HOUR_SEC
    return add_sample(histogram, bucket, 1.0, at_sec, half_life_sec=HOUR_SEC)


def test_a_bucket_ends_where_the_next_one_starts_and_the_last_one_has_no_end():
    assert CPU_BUCKETS.end(0) == CPU_BUCKETS.start(1) == 10
    assert CPU_BUCKETS.end(174) == CPU_BUCKETS.end(175) == CPU_BUCKETS.start(175)


@pytest.mark.parametrize(
    ("scheme", "unit", "share", "value"),
    [(CPU_BUCKETS, 1e3, 0.2, 1), (MEMORY_BUCKETS, 1e9, 0.5, 2)],
)
def test_a_percentile_is_at_most_5_percent_too_high(scheme, unit, share, value):
    """Figures of the VPA recommender, logic/estimator_test.go, TestPercentileEstimator."""
    histogram = DecayingHistogram()
    for sample in (1, 2, 3):
        histogram = add(histogram, scheme.find(sample * unit), 0)
    assert 1 < scheme.end(percentile_bucket(histogram, share)) / (value * unit) <= 1.05


def test_a_change_of_the_reference_scales_weights():
    histogram = add(add(DecayingHistogram(), 2, 0), 1, 101)
    assert histogram.reference_sec == START_SEC + 101 * HOUR_SEC
    assert histogram.weights == {2: 2.0**-101, 1: 1.0}
    # what is too small for a number is dropped
    assert add(histogram, 1, 1300).weights == {1: 1.0}


def test_a_bucket_expires_after_eight_half_lives_of_a_sample():
    before = DecayingHistogram.of({1: 1.0, 2: 1.5, 3: 9.0}, START_SEC)
    last_sec = START_SEC + 8 * HALF_LIFE_SEC
    assert without_expired(before, 1.0, last_sec) is before
    after = without_expired(before, 1.0, last_sec + 1)
    assert (after.weights, after.reference_sec) == ({2: 1.5, 3: 9.0}, START_SEC)
    assert without_expired(before, 1.0, last_sec + HALF_LIFE_SEC).weights == {3: 9.0}
    assert without_expired(before, 1.0, last_sec + 3 * HALF_LIFE_SEC).weights == {3: 9.0}
    assert without_expired(before, 1.0, last_sec + 4 * HALF_LIFE_SEC).weights == {}
    assert without_expired(before, 1.0, last_sec + 10_000 * HALF_LIFE_SEC).weights == {}


def test_samples_expire_with_their_history():
    history = add_memory(add_cpu(UsageHistory(), 100, START_SEC), 2**20, START_SEC + 60)
    assert history.last_sec == START_SEC + 60
    history = add_memory(history, 2**20, START_SEC + 2 * 86_400)
    assert history.memory.finished.weights
    after = without_old(history, START_SEC + KEPT_SEC + 2 * HALF_LIFE_SEC)
    assert (after.cpu.weights, after.memory.finished.weights) == ({}, {})
    assert without_old(history, START_SEC + KEPT_SEC).cpu == history.cpu
