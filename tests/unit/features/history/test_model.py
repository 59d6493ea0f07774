"""Histograms as values; what they mean is tested with `policy`."""

import pytest

from podslice.features.history.model import DecayingHistogram

WEIGHTS = {5: 1.0, 2: 0.5, 9: 4.0}
HISTOGRAM = DecayingHistogram.of(WEIGHTS, 7)


def test_buckets_are_in_their_order():
    assert [*HISTOGRAM.weights.items()] == sorted(WEIGHTS.items())
    assert DecayingHistogram.of({2: 0.5, 9: 4.0, 5: 1.0}, 7) == HISTOGRAM
    assert DecayingHistogram().weights == DecayingHistogram.of({}).weights == {}


@pytest.mark.parametrize("bucket", [0, 2, 4, 5, 9, 65_535])
def test_a_weight_is_added_to_one_bucket(bucket):
    added = HISTOGRAM.add(bucket, 0.25)
    weights = {**WEIGHTS, bucket: WEIGHTS.get(bucket, 0.0) + 0.25}
    assert added == DecayingHistogram.of(weights, 7)
    assert added.weights == weights
