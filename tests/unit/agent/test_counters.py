import pytest

from podslice.agent.context import Counters, Histogram, Operation


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [(0.0, [1, 0, 0]), (1.0, [1, 0, 0]), (1.5, [0, 1, 0]), (2.0, [0, 1, 0]), (9.0, [0, 0, 1])],
)
def test_a_bound_is_inclusive(seconds, counts):
    """Source: Prometheus, "Histograms and summaries": `le` is inclusive."""
    histogram = Histogram((2.0, 1.0))
    histogram.observe(seconds)
    assert histogram.counts == counts
    assert histogram.sum_sec == seconds


def test_counters_are_not_shared():
    Counters().evictions["pid.available"] += 1
    assert not Counters().evictions
    assert Counters().operations[Operation.CREATE] is not Counters().operations[Operation.CREATE]
