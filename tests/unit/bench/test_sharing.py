import pytest

pytest.importorskip("podslice.features.simulate")

from tests.bench.sharing import at_percent, check, is_long_for
from tests.bench.sharing_pods import (
    CPU_MILLI,
    SHARED,
    SPLIT,
    Part,
    Pod,
    Scale,
    by_quotas,
    operations,
)


def test_quotas_are_whole_percents():
    """Else systemd would round them, and the containers had more than the pod together."""
    for size in Scale().sizes:
        assert Pod(name="p", size=size, way=SPLIT).limit(0) % 10 == 0
        assert Pod(name="p", size=size, way=SPLIT).limit(0) * size == CPU_MILLI


@pytest.mark.parametrize(
    ("parts", "size", "split", "shared"),
    [
        pytest.param((Part(0, 1, 300),), 3, 600, 300, id="one thread has one CPU at most"),
        pytest.param((Part(0, 2, 300),), 3, 600, 200, id="two threads have the pod's budget"),
        pytest.param((Part(0, 4, 300),), 6, 1200, 200, id="more have no more"),
        pytest.param((Part(0, 1, 100), Part(1, 1, 100), Part(2, 1, 100)), 3, 200, 200, id="equal"),
        pytest.param(
            (Part(0, 1, 200), Part(1, 1, 40)), 3, 400, 40 / 0.75 + 160, id="the longest decides"
        ),
        pytest.param((Part(0, 1, 100, 100),), 6, 400, 200, id="a wait is hidden by the quota's"),
        pytest.param((Part(0, 1, 100, 900),), 6, 1000, 1000, id="who waits needs no CPU"),
    ],
)
def test_what_follows_from_the_quotas(parts, size, split, shared):
    assert by_quotas(parts, size) == pytest.approx({SPLIT: split, SHARED: shared})


def test_nothing_can_be_faster_than_there_are_containers():
    for size in (3, 6):
        for parts in operations(size).values():
            expected = by_quotas(parts, size)
            assert 1 <= expected[SPLIT] / expected[SHARED] <= size


def step(ms, *used, throttled=0, pod=None):
    containers = [{"used_ms": each, "throttled": throttled} for each in used]
    whole = {"used_ms": sum(used) if pod is None else pod, "throttled": 0}
    return {"ms": ms, "containers": containers, "pod": whole}


@pytest.mark.parametrize(
    ("way", "found", "message"),
    [
        (SPLIT, step(1200, 305, throttled=9), None),
        (SHARED, step(300, 305), None),
        (SHARED, step(300, 250), "300 ms of work were 250"),
        (SHARED, step(300, 450), "300 ms of work were 450"),
        (SHARED, step(300, 305, throttled=1), "container 0 was held back"),
        (SPLIT, step(300, 305), "container 0 had more than its share"),
        (SHARED, step(300, 305, pod=900), "the pod had more than its budget"),
    ],
)
def test_other_work_than_expected_is_an_error(way, found, message):
    if message is None:
        check("work", (Part(0, 1, 300),), 6, way, found, is_exact=True)
        return
    with pytest.raises(RuntimeError, match=message):
        check("work", (Part(0, 1, 300),), 6, way, found, is_exact=True)


def test_only_upper_bounds_depend_on_other_work_of_the_host():
    check("work", (Part(0, 1, 300),), 6, SPLIT, step(300, 700), is_exact=False)
    with pytest.raises(RuntimeError, match="300 ms of work were 250"):
        check("work", (Part(0, 1, 300),), 6, SPLIT, step(300, 250), is_exact=False)
    with pytest.raises(RuntimeError, match="container 0 was held back"):
        check("work", (Part(0, 1, 300),), 6, SHARED, step(300, 305, throttled=1), is_exact=False)


def test_work_is_long_for_a_share_that_it_has_to_wait_for():
    assert is_long_for(Part(0, 1, 90), 6)
    assert not is_long_for(Part(0, 1, 90), 3)


def test_percentiles():
    numbers = list(range(1, 136))
    assert (at_percent(numbers, 50), at_percent(numbers, 99)) == (68, 134)
    assert at_percent([5], 99) == 5
