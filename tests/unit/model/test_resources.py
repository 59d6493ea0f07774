import itertools

import pytest

from podslice.model.resources import (
    Resources,
    cpu_milli,
    format_amount,
    format_amounts,
    human_amounts,
    is_bytes,
    is_hugepages,
    is_pod_level_resource,
    memory_bytes,
    total,
    whole,
)
from tests.cases.tables import cases

VALUES = (None, 0, 1, 2)
LISTS = [
    {name: milli for name, milli in (("cpu", cpu), ("memory", memory)) if milli is not None}
    for cpu, memory in itertools.product(VALUES, repeat=2)
]


def test_nothing_stated_is_falsy_and_zero_is_a_statement():
    assert not Resources()
    assert Resources(requests={"cpu": 0})
    assert Resources(limits={"cpu": 0})


def test_sums_do_not_depend_on_order():
    for lists in itertools.product(LISTS, repeat=3):
        sums = {tuple(sorted(total(order).items())) for order in itertools.permutations(lists)}
        assert len(sums) == 1


def test_a_sum_has_exactly_the_stated_resources():
    for first, second in itertools.product(LISTS, repeat=2):
        both = total((first, second))
        assert both.keys() == first.keys() | second.keys()
        assert all(both[name] == first.get(name, 0) + second.get(name, 0) for name in both)


def test_arguments_stay_as_they_are():
    first, second = {"cpu": 1}, {"cpu": 2}
    total((first, second))
    assert (first, second) == ({"cpu": 1}, {"cpu": 2})


@pytest.mark.parametrize(
    ("milli", "expected"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (-1500, -1)]
)
def test_whole_units_are_rounded_up(milli, expected):
    assert whole({"memory": milli}, "memory") == expected
    assert memory_bytes({"memory": milli}) == expected


def test_what_is_not_stated_is_none():
    assert whole({}, "memory") is memory_bytes({}) is cpu_milli({}) is None
    assert cpu_milli({"cpu": 0}) == 0


@cases
def test_amounts_are_written_as_people_do(resource, milli, expected):
    assert format_amount(resource, milli) == expected


def test_lists_are_written_sorted():
    assert format_amounts({"memory": 1024 * 1000, "cpu": 500}) == "cpu=500m,memory=1Ki"
    assert format_amounts({}) == ""


def test_the_pod_level_takes_cpu_memory_and_huge_pages():
    """helpers_test.go, TestIsSupportedPodLevelResource."""
    names = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "pid")
    assert [is_pod_level_resource(name) for name in names] == [True, True, False, True, True, False]
    assert [is_hugepages(name) for name in names] == [False, False, False, True, True, False]


@cases
def test_resources_that_are_counted_in_bytes(resource, expected):
    assert is_bytes(resource) is expected


def test_amounts_in_sentences_have_three_digits_unless_they_would_read_the_same():
    assert human_amounts("memory", 24_565_300 * 1024 * 1000) == ["23.4 GiB"]
    assert human_amounts("cpu", 1500, 2000) == ["1500m", "2"]
    gib = 2**30 * 1000
    assert human_amounts("memory", gib, 2 * gib, gib) == ["1 GiB", "2 GiB", "1 GiB"]
    assert human_amounts("memory", gib + 4096 * 1000, gib) == ["1048580Ki", "1Gi"]
