"""Recommendations of pods with their containers, and of reservations; values are in `tests/cases`."""

import pytest

from podslice.features.history.model import PodHistory, UsageHistory
from podslice.features.history.recommendation import (
    only_amounts,
    recommend,
    recommend_pod,
    recommend_reservation,
    slice_usage,
    used_amounts,
)
from podslice.features.history.samples import (
    KEPT_SEC,
    add_cpu,
    add_memory,
    add_oom_kills,
    add_waits,
    is_expired,
    without_old,
)
from podslice.features.node.providers import Reservation
from podslice.model.pod import ContainerKind
from podslice.model.resources import CPU, MEMORY, RecommendedAmounts
from podslice.model.unit import UnitName
from tests.unit.builders import container, decisions, pod
from tests.unit.features.history.rows import START_SEC, to_history

MI = 2**20
EMPTY = UsageHistory()


@pytest.fixture(scope="module")
def busy():
    """A day of 1 CPU and 100 MiB."""
    return to_history({"series": [{"hours": 24, "cpu": 1000, "memory": 100}]})[0]


@pytest.fixture(scope="module")
def idle():
    """A day of 100m and 100 MiB."""
    return to_history({"series": [{"hours": 24, "cpu": 100, "memory": 100}]})[0]


@pytest.fixture(scope="module")
def now_sec(busy):
    return busy.last_sec


def names(found):
    return [*found.containers]


# Pods.


def test_the_containers_are_those_of_the_manifest_that_have_a_history(busy, idle, now_sec):
    (decision,) = decisions(
        pod(
            "web",
            containers=(
                container("setup", kind=ContainerKind.INIT),
                container("proxy", kind=ContainerKind.SIDECAR),
                container("app", "cpu=500m", "cpu=2,memory=1Gi"),
                container("new"),
            ),
        )
    )
    history = PodHistory(
        pod=busy, containers={"app": busy, "proxy": idle, "setup": busy, "x": busy}
    )
    found = recommend_pod("default/web", history, now_sec, decision=decision)
    assert (found.key, found.decision, names(found)) == ("default/web", decision, ["proxy", "app"])
    proxy, app = found.containers.values()
    assert (proxy.cpu_request.current, proxy.cpu_request.recommended) == (None, 127)
    # the limit counts as the request that is not stated
    assert (app.cpu_request.current, app.memory_request.current) == (500, 1024 * MI * 1000)
    assert app.memory_limit.current == 1024 * MI * 1000
    assert found.amounts.cpu_request.current == 500
    # the slice of the pod has no limit, because not all containers have one
    assert found.amounts.memory_limit.current is None


def test_the_limit_of_a_pod_is_that_of_its_slice(busy, now_sec):
    (decision,) = decisions(pod("web", containers=(container("a", "", "memory=1Gi"),)))
    found = recommend_pod("default/web", PodHistory(pod=busy), now_sec, decision=decision)
    assert found.amounts.memory_limit.current == 1024 * MI * 1000


def test_a_pod_that_is_not_applied_has_no_present_amounts(busy, now_sec):
    found = recommend_pod("default/web", PodHistory(pod=busy, containers={"app": busy}), now_sec)
    assert (found.decision, names(found)) == (None, ["app"])
    for amounts in (found.amounts, *found.containers.values()):
        for each in (amounts.cpu_request, amounts.memory_request, amounts.memory_limit):
            assert (each.current, each.veto) == (None, None)


def test_together_containers_need_less_than_in_sum(busy, idle, now_sec):
    history = PodHistory(pod=busy, containers={"app": busy, "log": idle})
    found = recommend_pod("default/web", history, now_sec)
    assert found.sum_of_requests == {CPU: 1169 + 127, MEMORY: 242 * MI * 1000}
    assert found.saving == {CPU: 127, MEMORY: 121 * MI * 1000}


def test_the_least_saving_is_shown(now_sec):
    half, whole = (add_cpu(EMPTY, milli, now_sec) for milli in (50, 100))
    found = recommend_pod(
        "default/web", PodHistory(pod=whole, containers={"a": half, "b": half}), now_sec
    )
    # buckets that end at 55.26m and 110.27m, × 1.15
    assert (found.sum_of_requests, found.saving) == ({CPU: 64 + 64}, {CPU: 1})


@pytest.mark.parametrize("containers", [{}, {"app": EMPTY}])
def test_without_samples_of_all_containers_there_is_no_sum(busy, now_sec, containers):
    found = recommend_pod("default/web", PodHistory(pod=busy, containers=containers), now_sec)
    assert (found.sum_of_requests, found.saving) == ({}, {})
    more = {**containers, "log": busy}
    found = recommend_pod("default/web", PodHistory(pod=busy, containers=more), now_sec)
    assert bool(found.sum_of_requests) is not bool(containers)


def test_a_single_container_saves_nothing(busy, now_sec):
    found = recommend_pod("default/web", PodHistory(pod=busy, containers={"app": busy}), now_sec)
    assert found.saving == {}
    found = recommend_pod("default/web", PodHistory(containers={"app": busy}), now_sec)
    assert found.saving == {}


def test_the_amounts_alone(busy, now_sec):
    found = only_amounts(recommend(busy, now_sec, requests={}, limits={}))
    memory = 121 * MI * 1000
    assert found == RecommendedAmounts(cpu_request=1169, memory_request=memory, memory_limit=memory)
    assert (found.requests, found.limits) == ({CPU: 1169, MEMORY: memory}, {MEMORY: memory})
    nothing = only_amounts(recommend(EMPTY, now_sec, requests={}, limits={}))
    assert (nothing.requests, nothing.limits) == ({}, {})


def test_the_age_samples_and_waits_of_a_history_are_part_of_it(busy, now_sec):
    waiting = add_waits(busy, 600.0, 60.0, 6.0, now_sec)
    found = recommend(waiting, now_sec, requests={}, limits={})
    assert (found.age_sec, found.samples, found.confidence_days) == (86_400, 1441, 1.0)
    assert (found.cpu_wait_share, found.memory_wait_share) == (0.1, 0.01)
    short = add_waits(add_cpu(EMPTY, 100, now_sec), 1.0, 0.5, 0.25, now_sec)
    found = recommend(short, now_sec, requests={}, limits={})
    assert (found.age_sec, found.samples) == (0, 1)
    assert (found.cpu_wait_share, found.memory_wait_share) == (0.5, 0.25)
    nothing = recommend(add_memory(EMPTY, MI, now_sec), now_sec, requests={}, limits={})
    assert (nothing.age_sec, nothing.samples) == (0, 0)
    assert (nothing.cpu_wait_share, nothing.memory_wait_share) == (0.0, 0.0)


# Samples.


def test_earlier_waits_count_half_after_a_day():
    first = add_waits(EMPTY, 600.0, 100.0, 10.0, START_SEC)
    waits = add_waits(first, 600.0, 0.0, 0.0, START_SEC + 86_400).waits
    assert (waits.at_sec, waits.observed_sec) == (START_SEC + 86_400, 900.0)
    assert (waits.cpu_sec, waits.memory_sec) == (50.0, 5.0)
    # a clock that is set back changes no weight
    waits = add_waits(first, 600.0, 0.0, 0.0, START_SEC - 86_400).waits
    assert (waits.observed_sec, waits.cpu_sec) == (1200.0, 100.0)


def test_oom_kills_are_counted_as_long_as_a_history_lasts():
    once = add_oom_kills(EMPTY, 2, START_SEC)
    assert (once.oom_kills, once.oom_kill_sec, once.last_sec) == (2, START_SEC, START_SEC)
    last = START_SEC + KEPT_SEC - 1
    assert add_oom_kills(once, 1, last).oom_kills == 3
    assert without_old(once, last).oom_kills == 2
    assert add_oom_kills(once, 1, last + 1).oom_kills == 1
    assert without_old(once, last + 1).oom_kills == 0


def test_old_samples_and_kills_expire_one_by_one():
    history = add_oom_kills(add_cpu(EMPTY, 100, START_SEC), 2, START_SEC)
    last = START_SEC + KEPT_SEC - 1
    history = add_cpu(history, 5000, last)
    kept = without_old(history, last)
    assert (kept.oom_kills, len(kept.cpu.weights)) == (2, 2)
    older = without_old(history, last + 1)
    assert (older.oom_kills, older.oom_kill_sec, len(older.cpu.weights)) == (0, START_SEC, 2)
    assert len(without_old(history, last + 2).cpu.weights) == 1


def test_the_first_sample_is_the_begin_of_a_history():
    history = add_cpu(add_cpu(EMPTY, 100, START_SEC), 100, START_SEC + 60)
    assert (history.first_sec, history.last_sec, history.samples) == (START_SEC, START_SEC + 60, 2)


def test_a_history_expires_eight_days_after_its_last_sample():
    """Figures of the VPA recommender, TestAggregateContainerStateIsExpired."""
    history = add_cpu(EMPTY, 100, START_SEC)
    assert not is_expired(history, START_SEC + 7 * 86_400)
    assert not is_expired(history, START_SEC + 8 * 86_400 - 1)
    assert is_expired(history, START_SEC + 8 * 86_400)
    assert without_old(add_memory(history, MI, START_SEC), START_SEC + 8 * 86_400) == EMPTY


# Reservations.


def test_what_a_slice_has_used(busy, now_sec):
    used = used_amounts(add_cpu(busy, 2000, now_sec), now_sec, 0.99)
    assert (used.cpu_milli, used.cpu_peak_milli) == (1016, 2093)
    assert used.memory_bytes == used.memory_peak_bytes == 110265643
    nothing = used_amounts(EMPTY, now_sec, 0.99)
    assert (nothing.cpu_milli, nothing.memory_peak_bytes) == (None, None)


def test_the_reservation_of_several_slices_is_their_sum(busy, idle, now_sec):
    units = [
        slice_usage(UnitName(name), history, now_sec)
        for name, history in (("a.slice", busy), ("b.slice", idle), ("c.slice", EMPTY))
    ]
    assert [(each.unit, each.age_sec, each.samples) for each in units] == [
        ("a.slice", 86_400, 1441),
        ("b.slice", 86_400, 1441),
        ("c.slice", 0, 0),
    ]
    # (1016 + 110) × 1.15; 2 × 110265643 × 1.15, in whole Mi
    assert recommend_reservation(units) == Reservation(cpu_milli=1295, memory_bytes=242 * MI)
    only_cpu = slice_usage(UnitName("d.slice"), add_cpu(EMPTY, 2, now_sec), now_sec)
    assert only_cpu.age_sec == 0
    # the bucket that ends at 10m, × 1.15
    assert recommend_reservation([only_cpu]) == Reservation(cpu_milli=12, memory_bytes=0)
    assert recommend_reservation(units[2:]) is None
    late = slice_usage(UnitName("a.slice"), busy, now_sec + KEPT_SEC)
    assert (late.age_sec, late.samples, recommend_reservation([late])) == (0, 0, None)
    assert recommend_reservation(()) is None
