"""Histories of usage as documents; figures of the VPA recommender, util/histogram_test.go."""

import copy
import json

import pytest

from podslice.features.history.day import Day, Point
from podslice.features.history.model import (
    DecayingHistogram,
    MemoryPeaks,
    PodHistory,
    UsageHistory,
    WaitTimes,
    format_pod_history,
    parse_pod_history,
)

FULL = UsageHistory(
    first_sec=1_700_006_400,
    last_sec=1_700_092_800,
    samples=1440,
    cpu=DecayingHistogram.of({0: 2500.0, 3: 10_000.0}, 1_700_006_400),
    memory=MemoryPeaks(
        finished=DecayingHistogram.of({7: 1.0}, 1_700_006_400),
        window_end_sec=1_700_179_200,
        observed_bytes=104_857_600,
        oom_bytes=209_715_200,
    ),
    waits=WaitTimes(at_sec=1_700_092_800, observed_sec=600.0, cpu_sec=1.5, memory_sec=0.25),
    oom_kills=2,
    oom_kill_sec=1_700_092_800,
)


def document(**changes):
    """The document of a pod, with values at paths such as `pod.cpu.weight` replaced."""
    made = copy.deepcopy(format_pod_history(PodHistory(pod=FULL, containers={"main": FULL})))
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = made
        for name in parents:
            target = target[name]
        target[last] = value
    return made


def of_weights(weights, total):
    return parse_pod_history(
        document(pod__cpu={"reference_sec": 0, "weight": total, "buckets": weights})
    ).pod.cpu.weights


def test_a_document_is_read_as_it_was_written():
    day = Day.of([Point(1_700_091_900, 1050, 104_857_600), Point(1_700_092_800, 0, 0)])
    history = PodHistory(pod=FULL, containers={"main": UsageHistory(), "log": FULL}, day=day)
    read = parse_pod_history(json.loads(json.dumps(format_pod_history(history))))
    assert (read.containers["main"], read.day) == (UsageHistory(), day)
    assert read.pod.cpu.weights == pytest.approx({0: 2500.0, 3: 10_000.0}, rel=1e-3)
    again = parse_pod_history(format_pod_history(read))
    assert again.pod.cpu.weights == pytest.approx(read.pod.cpu.weights)
    assert {**vars_of(read.pod), "cpu": 0} == {**vars_of(FULL), "cpu": 0}


def vars_of(history):
    return {name: getattr(history, name) for name in UsageHistory.__slots__}


@pytest.mark.parametrize(
    ("weights", "written"),
    [
        ({}, {}),
        ({1: 1.0}, {"1": 10_000}),
        ({1: 1.0, 2: 100_000.0}, {"2": 10_000}),  # relatively small values are dropped
        ({1: 1.0, 2: 10_000.0, 3: 50.0}, {"1": 1, "2": 10_000, "3": 50}),
        ({1: 0.5, 2: 10_000.0, 3: 0.49}, {"1": 1, "2": 10_000}),
    ],
)
def test_weights_are_whole_numbers_relative_to_the_largest(weights, written):
    history = PodHistory(pod=UsageHistory(cpu=DecayingHistogram.of(weights)))
    made = format_pod_history(history)["pod"]["cpu"]
    assert (made["buckets"], made["weight"]) == (written, sum(weights.values()))


def test_the_weights_that_are_read_have_the_total():
    assert of_weights({"0": 1, "1": 2}, 6.0) == {0: 2.0, 1: 4.0}
    assert of_weights({"0": 0}, 6.0) == {}
    assert of_weights({"1023": 1}, 1) == {1023: 1.0}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"version": 2}, "version 2 is not supported"),
        ({"pod": []}, "a mapping is missing"),
        ({"containers": None}, "a mapping is missing"),
        ({"containers__main": 1}, "a mapping is missing"),
        ({"pod__cpu__buckets": {"-1": 1}}, "'-1' is not the index of a bucket"),
        ({"pod__cpu__buckets": {"1024": 1}}, "'1024' is not the index of a bucket"),
        ({"pod__cpu__buckets": {"١": 1}}, "is not the index of a bucket"),
        ({"pod__cpu__buckets": {"9" * 5000: 1}}, "is not the index of a bucket"),
        ({"pod__cpu__buckets": {"1": -1}}, "1 is not a whole number"),
        ({"pod__cpu__weight": -1.0}, "weight is not a number"),
        ({"pod__cpu__weight": float("nan")}, "weight is not a number"),
        ({"pod__cpu__weight": float("inf")}, "weight is not a number"),
        ({"pod__samples": "9"}, "samples is not a whole number"),
        ({"pod__samples": 1.5}, "samples is not a whole number"),
        ({"pod__samples": 2**63}, "samples is not a whole number"),
        ({"pod__memory__window_end_sec": None}, "window_end_sec is not a whole number"),
        ({"pod__waits__cpu_sec": "1"}, "cpu_sec is not a number"),
        ({"day": {}}, "day is not the list of a day's values"),
        ({"day": [[0, 0, 0]] * 97}, "day is not the list of a day's values"),
        ({"day": [[0, 0]]}, "each value of day has 3 numbers"),
        ({"day": [0]}, "each value of day has 3 numbers"),
        ({"day": [[0, -1, 0]]}, "cpu_milli is not a whole number"),
        ({"day": [[0, 0, 2**63]]}, "memory_bytes is not a whole number"),
    ],
)
def test_a_damaged_document_is_an_error(changes, error):
    with pytest.raises(ValueError, match=error):
        parse_pod_history(document(**changes))
    for found in ([], None, "text"):
        with pytest.raises(ValueError, match="a mapping is missing"):
            parse_pod_history(found)


def test_an_earlier_document_has_no_day():
    found = document()
    del found["day"]
    assert parse_pod_history(found).day == Day()


def test_a_clock_that_is_set_back_begins_again():
    day = Day().add(9000, 100, 10).add(9100, 50, 20)
    assert day.points == [Point(9000, 100, 20)]
    assert day.add(950, 30, 30).points == [Point(900, 30, 30)]
    assert day.add(9000 + 86_400, 30, 30).points == [Point(9000 + 86_400, 30, 30)]
