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


def test_each_event_has_its_counter():
    counters = Counters()
    counters.operation(Operation.CREATE, 0.5)
    counters.operation(Operation.CREATE, 0.25)
    counters.evicted("memory.available", 0.125)
    counters.drift_repaired += 1
    counters.oom_kills += 3
    counters.reconciled(0.5, failed=False)
    counters.reconciled(1.5, failed=True)
    assert counters.operations[Operation.CREATE].sum_sec == 0.75
    assert sum(counters.operations[Operation.UPDATE].counts) == 0
    assert counters.evictions == {"memory.available": 1}
    assert counters.reactions.sum_sec == 0.125
    assert (counters.drift_repaired, counters.oom_kills) == (1, 3)
    assert (counters.reconciles.sum_sec, counters.reconcile_errors) == (2.0, 1)


def test_counters_are_not_shared():
    Counters().evicted("pid.available", 1.0)
    assert not Counters().evictions
    assert Counters().operations[Operation.CREATE] is not Counters().operations[Operation.CREATE]
