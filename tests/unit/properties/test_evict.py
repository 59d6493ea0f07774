"""Eviction: thresholds that do not flip, and a rank without critical pods."""

from itertools import pairwise

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.model.config import Config
from podslice.policy.allocatable import threshold_amount
from podslice.policy.eviction import (
    CRITICAL_PRIORITY,
    SIGNALS,
    PodUsage,
    Pressures,
    SignalObservation,
    by_urgency,
    choose,
    eviction_thresholds,
    judge,
    next_poll_usec,
    past_grace,
    rank,
    thresholds_met,
    used_of,
)
from tests.unit.properties.strategies import GI, configs, decisions, nodes, some, thresholds, worlds

STATED = ("memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available")

of_signals = st.dictionaries(st.sampled_from(STATED), thresholds)
eviction_configs = st.builds(
    Config,
    eviction_hard=of_signals,
    eviction_soft=of_signals,
    eviction_soft_grace_period_usec=st.dictionaries(
        st.sampled_from(STATED), st.sampled_from((0, 30_000_000))
    ),
    eviction_minimum_reclaim=of_signals,
)
availables = st.integers(0, 8 * GI)
usages = st.builds(
    PodUsage,
    memory=availables,
    storage=availables,
    inodes=st.integers(0, 9).map(lambda number: number * 1000),
    pids=st.integers(0, 9).map(lambda number: number * 1000),
)


def seen(available):
    both = (*STATED, "allocatableMemory.available")
    return dict.fromkeys(both, SignalObservation(available=available, capacity=8 * GI))


@some
@given(eviction_configs, st.lists(availables, min_size=1, max_size=8))
def test_what_was_met_stays_met_until_enough_is_free_and_no_longer(config, course):
    configured, met = eviction_thresholds(config), ()
    for available in course:
        before, met = met, thresholds_met(configured, seen(available), before=met)
        for each in configured:
            bar = threshold_amount(each.value, 8 * GI)
            if each in before and each.minimum_reclaim is not None:
                bar += threshold_amount(each.minimum_reclaim, 8 * GI)
            assert (each in met) == (available < bar)


@some
@given(eviction_configs, availables, availables)
def test_between_threshold_and_recovery_nothing_changes_whichever_side_it_came_from(
    config, first, second
):
    """No flip-flop: the same amount gives the same answer the second time."""
    configured = eviction_thresholds(config)
    met = thresholds_met(configured, seen(first))
    once = thresholds_met(configured, seen(second), before=met)
    assert thresholds_met(configured, seen(second), before=once) == once


@some
@given(eviction_configs, availables, st.integers(1, GI))
def test_more_that_is_free_never_meets_more(config, available, more):
    configured = eviction_thresholds(config)
    fewer = thresholds_met(configured, seen(available + more))
    assert set(fewer) <= set(thresholds_met(configured, seen(available)))
    assert not thresholds_met(configured, {})


@some
@given(eviction_configs, availables, st.integers(0, 60_000_000))
def test_what_is_acted_upon_is_met_and_hard_before_soft(config, available, now):
    met = thresholds_met(eviction_thresholds(config), seen(available))
    ready = past_grace(met, dict.fromkeys(met, 0), now)
    assert all(each in ready for each in met if each.is_hard)
    assert all((now >= each.grace_usec) == (each in ready) for each in met)
    urgent = next(iter(by_urgency(ready)), None)
    assert (urgent is None) == (not ready)
    if urgent is not None and any(SIGNALS[each.signal].resource == "memory" for each in ready):
        assert SIGNALS[urgent.signal].resource == "memory"


@some
@given(st.data(), worlds(max_pods=6), nodes, configs, st.sampled_from(sorted(SIGNALS)))
def test_the_rank_has_every_pod_once_except_critical_ones(data, world, node, config, signal):
    pods = decisions(world, node, config)
    usage = {pod.pod.key: data.draw(usages) for pod in pods if data.draw(st.booleans())}
    ranked = rank(signal, pods, usage)
    names = [each.decision.pod.key for each in ranked]
    assert sorted(names) == sorted(
        pod.pod.key for pod in pods if pod.pod.priority < CRITICAL_PRIORITY
    )
    assert rank(signal, data.draw(st.permutations(pods)), usage) == ranked
    if SIGNALS[signal].resource == "memory":
        places = [_place(each.decision, usage.get(each.decision.pod.key)) for each in ranked]
        assert all(earlier <= later for earlier, later in pairwise(places))


@some
@given(eviction_configs, st.lists(availables, min_size=1, max_size=8), st.integers(0, 60_000_000))
def test_a_judgement_holds_until_something_changes(config, course, transition_usec):
    """A second observation at the same time adds nothing, and pods go only for what is a condition."""
    configured, before = eviction_thresholds(config), Pressures()
    for second, available in enumerate(course):
        now = (second * 10_000_000, transition_usec)
        once = judge(configured, seen(available), before, *now)
        again = judge(configured, seen(available), once.pressures, *now)
        assert again.conditions == once.conditions
        assert set(once.due) <= set(again.due)
        assert {SIGNALS[each.signal].condition for each in once.due} <= once.conditions
        before = once.pressures


@some
@given(eviction_configs, availables)
def test_nothing_is_passed_between_two_looks_that_was_above_before(config, available):
    configured = eviction_thresholds(config)
    wait_usec = next_poll_usec(configured, seen(available))
    assert 25_000 <= wait_usec <= 10_000_000
    later = available - (wait_usec - 25_000) * 4 * GI // 10**6
    for each in configured:
        bar = threshold_amount(each.value, 8 * GI)
        if each.is_hard and SIGNALS[each.signal].resource == "memory" and available >= bar:
            assert later >= bar


@some
@given(st.data(), worlds(max_pods=6), nodes, configs, st.sampled_from(sorted(SIGNALS)))
def test_the_first_pod_with_usage_is_evicted(data, world, node, config, signal):
    pods = decisions(world, node, config)
    usage = {pod.pod.key: data.draw(usages) for pod in pods if data.draw(st.booleans())}
    chosen = choose(signal, pods, usage)
    for candidate in rank(signal, pods, usage):
        pod = candidate.decision
        used = used_of(signal, usage.get(pod.pod.key, PodUsage()))
        is_safe = SIGNALS[signal].resource == "memory" and pod.qos == "Guaranteed"
        is_of_tier = SIGNALS[signal].tier in (None, pod.qos)
        if is_of_tier and used > (_request(pod) if is_safe else 0):
            assert chosen == candidate
            return
    assert chosen is None


def _request(decision):
    """The use includes huge pages where the kernel counts them as memory, and so does the request."""
    return decision.requests.get("memory", 0) + decision.hugepages_in_memory_bytes * 1000


def _place(decision, usage):
    """Above its request, the lower priority, the larger excess."""
    excess = (usage.memory if usage else 0) - _request(decision)
    return excess <= 0, decision.pod.priority, -excess
