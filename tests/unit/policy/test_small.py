"""Admission, node allocatable, the tiers and the tree: what holds whatever the numbers are."""

import itertools
import random
from dataclasses import replace
from functools import cache

import pytest

from podslice.model.config import DEFAULT_EVICTION_HARD, Config, Threshold
from podslice.model.naming import Tree, cgroup_components, slice_of_cgroup
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.resources import Resources, total
from podslice.policy.admit import admit
from podslice.policy.allocatable import allocate, threshold_amount, unrequested, validate_node
from podslice.policy.decide import decide
from podslice.policy.desire import protection, requested_bytes, tier_properties
from tests.unit.policy.worlds import container, pod

NODE = Node(capacity={"cpu": 4000, "memory": 4_000_000})
PLAIN = Config(eviction_hard={})


def decisions(amounts):
    return [
        decide(
            pod(
                container(Resources(requests={"cpu": cpu * 1000, "memory": memory * 1_000_000})),
                name=f"p{index}",
                priority=priority,
            ),
            NODE,
            PLAIN,
        )
        for index, (cpu, memory, priority) in enumerate(amounts)
    ]


def worlds():
    return itertools.product(itertools.product((0, 1, 3), (0, 2), (0, 1)), repeat=3)


@cache
def admissions():
    """The candidates of each world, and which of them are accepted and refused."""
    return [
        (candidates, *admit(candidates, (), NODE.capacity))
        for candidates in map(decisions, worlds())
    ]


def test_admitted_pods_fit_and_no_pod_is_lost():
    for candidates, accepted, refused in admissions():
        sums = total(each.requests for each in accepted)
        assert all(sums.get(name, 0) <= NODE.capacity[name] for name in NODE.capacity)
        names = [each.pod.key for each in accepted] + [each.pod for each in refused]
        assert sorted(names) == sorted(each.pod.key for each in candidates)


def test_who_is_refused_would_not_have_fitted():
    for candidates, accepted, refused in admissions():
        used = total(each.requests for each in accepted)
        by_key = {each.pod.key: each for each in candidates}
        for each in refused:
            asked = by_key[each.pod].requests
            resource = each.reason.removeprefix("OutOf")
            assert asked[resource] + used.get(resource, 0) > NODE.capacity[resource]


def test_admission_does_not_depend_on_the_order():
    for candidates, accepted, refused in admissions()[::11]:
        for order in itertools.permutations(candidates):
            assert admit(order, (), NODE.capacity) == (accepted, refused)


@pytest.mark.parametrize(("memory", "is_refused"), [(1_000_000, False), (1_000_001, True)])
def test_a_pod_gives_back_only_what_it_had(memory, is_refused):
    """What it now requests in addition must be free beside the other pods."""

    def decided(name, **requests):
        return decide(pod(container(Resources(requests=requests)), name=name), NODE, PLAIN)

    before = [decided("web", cpu=1000), decided("shop", cpu=1000, memory=3_000_000)]
    accepted, refused = admit([decided("web", cpu=1000, memory=memory)], before, NODE.capacity)
    assert (len(accepted), [each.reason for each in refused]) == (
        (0, ["OutOfmemory"]) if is_refused else (1, [])
    )


def test_a_higher_priority_is_never_refused_for_a_lower_one():
    for candidates, _, refused in admissions():
        keys = {each.pod for each in refused}
        above = [each for each in candidates if each.pod.priority]
        alone, alone_refused = admit(above, (), NODE.capacity)
        assert {each.pod for each in alone_refused} == keys & {each.pod.key for each in above}
        assert all(each.pod.key not in keys for each in alone)


def test_allocatable_is_never_negative_and_never_above_what_is_enforced():
    amounts = ({}, {"cpu": 1000}, {"memory": 3_000_000}, {"cpu": 5000, "memory": 9_000_000})
    thresholds = (
        {},
        {"memory.available": Threshold(amount=500_000)},
        {"memory.available": Threshold(percent_milli=25_000)},
        DEFAULT_EVICTION_HARD,
    )
    for kube, system, hard, ignore in itertools.product(amounts, amounts, thresholds, (0, 1)):
        config = Config(
            kube_reserved=kube,
            system_reserved=system,
            eviction_hard=hard,
            ignore_eviction_threshold=bool(ignore),
        )
        allocation = allocate(NODE, config)
        assert allocation.allocatable.keys() == allocation.enforced.keys() == NODE.capacity.keys()
        for name, milli in NODE.capacity.items():
            assert 0 <= allocation.allocatable[name] <= allocation.enforced[name] <= milli
        if ignore:
            assert allocation.allocatable == allocation.enforced
        if not validate_node(NODE, config):
            reserved = total((kube, system, allocation.eviction))
            for name, milli in NODE.capacity.items():
                taken = reserved.get(name, 0)
                if ignore:
                    taken -= allocation.eviction.get(name, 0)
                assert allocation.allocatable[name] == milli - taken


@pytest.mark.parametrize(
    ("threshold", "is_right"),
    [
        (Threshold(amount=NODE.capacity["memory"] - 1001), True),
        (Threshold(amount=NODE.capacity["memory"] - 1000), False),
        (Threshold(percent_milli=99_999), True),
    ],
)
def test_the_threshold_of_a_tier_is_less_than_the_memory_of_pods(threshold, is_right):
    config = Config(
        kube_reserved={"memory": 1000},
        eviction_hard={},
        eviction_tier={Qos.BURSTABLE: threshold, Qos.BESTEFFORT: Threshold(amount=1)},
    )
    problems = validate_node(NODE, config)
    assert [each.where for each in problems] == ([] if is_right else ["eviction-tier"])
    assert all("burstable" in each.hint for each in problems)
    other = replace(NODE, capacity={"cpu": 1000})
    assert validate_node(other, replace(config, kube_reserved={})) == []


def test_problems_of_a_node_are_per_resource():
    config = Config(kube_reserved={"cpu": 5000, "memory": 9_000_000}, eviction_hard={})
    problems = validate_node(NODE, config)
    assert [problem.message.split(" is ")[0] for problem in problems] == [
        "5 of cpu",
        "8.8 KiB of memory",
    ]
    assert {problem.where for problem in problems} == {
        "kube-reserved + system-reserved + eviction-hard"
    }
    assert all(problem.hint for problem in problems)


@pytest.mark.parametrize(
    ("threshold", "capacity", "expected"),
    [
        (Threshold(amount=5), 1_000_000, 5),
        (Threshold(percent_milli=10_000), 1_000_000, 100_000),
        (Threshold(percent_milli=10_000), 999_000, 99_000),
        (Threshold(percent_milli=500), 1_000_000, 5_000),
        (Threshold(percent_milli=100_000), 1_000_000, 1_000_000),
        (Threshold(percent_milli=0), 10**9, 0),
        (Threshold(), 10**9, 0),
    ],
)
def test_a_threshold_is_an_amount_or_a_share_in_whole_units(threshold, capacity, expected):
    assert threshold_amount(threshold, capacity) == expected


def test_more_reserved_never_means_a_higher_limit_of_a_tier():
    made = decisions([(1, 1, 0), (2, 1, 0)])
    made.append(
        decide(pod(container(Resources(limits={"cpu": 1, "memory": 1_000_000}))), NODE, PLAIN)
    )
    limits = []
    for percent in range(0, 101, 5):
        config = Config(eviction_hard={}, qos_reserved={"memory": percent})
        limits.append(
            [
                next(
                    property_.value
                    for property_ in tier_properties(
                        qos, tuple(made), 10**10, config, page_size=4096
                    )
                    if property_.name == "MemoryMax"
                )
                for qos in (Qos.BURSTABLE, Qos.BESTEFFORT)
            ]
        )
    assert limits == sorted(limits, reverse=True)
    assert all(burstable >= besteffort >= 4096 for burstable, besteffort in limits)


def test_requests_of_a_class_are_summed():
    without = decide(pod(container(Resources(requests={"cpu": 1}))), NODE, PLAIN)
    assert requested_bytes([without], Qos.BURSTABLE) == 0


@pytest.mark.parametrize(
    ("used_bytes", "value", "is_kept"),
    [(None, 10**8, False), (10**8, 10**8, False), (10**8 + 1, 96 * 2**20, True)],
)
def test_a_tier_s_limit_is_kept_at_a_usage_above_it(used_bytes, value, is_kept):
    """Rounded up to 1Mi: 10^8 bytes are 95.4Mi."""
    config = Config(eviction_hard={}, qos_reserved={"memory": 100})
    properties = tier_properties(
        Qos.BESTEFFORT, (), 10**8, config, page_size=4096, used_bytes=used_bytes
    )
    limit = next(each for each in properties if each.name == "MemoryMax")
    assert limit.value == value
    assert ("kept at the current usage" in limit.why) == is_kept


def test_the_throttling_of_a_tier_names_the_threshold_that_it_is_half_of():
    made = decide(pod(container(Resources())), NODE, PLAIN)
    config = Config(
        eviction_hard={},
        qos_reserved={"memory": 100},
        eviction_tier={Qos.BESTEFFORT: Threshold(percent_milli=10_000)},
    )
    properties = tier_properties(Qos.BESTEFFORT, (made,), 2**30, config, page_size=4096)
    high = next(each for each in properties if each.name == "MemoryHigh")
    # 2^30 / 10, rounded down
    assert high.why == "MemoryMax - half of the eviction-tier threshold 102 MiB"


def test_huge_pages_of_higher_classes_are_named_in_a_tier_s_limit():
    pages = {"hugepages-2Mi": 2**22 * 1000}
    each = pod(container(Resources(limits={"cpu": 100, "memory": 2**20 * 1000, **pages})))
    config = Config(eviction_hard={}, qos_reserved={"memory": 0})
    for counts, value in ((True, 10**8 - 2**22), (False, 10**8)):
        made = decide(each, Node(capacity=NODE.capacity, counts_hugepages=counts), config)
        properties = tier_properties(Qos.BURSTABLE, (made,), 10**8, config, page_size=4096)
        limit = next(each for each in properties if each.name == "MemoryMax")
        assert limit.value == value
        assert ("their huge pages 4 MiB" in limit.why) == counts


def test_nothing_is_protected_where_nothing_is_requested():
    made = decisions([(1, 1, 0), (0, 2, 0)])
    assert list(protection(made[:0], "")) == []
    assert [(s.value, s.why) for s in protection(made, "why")] == [(3000, "why")]


@pytest.mark.parametrize(
    ("path", "components"),
    [
        ("/", ()),
        ("", ()),
        ("/a", ("a",)),
        ("/a/b", ("a", "b")),
        ("/a/b/", ("a", "b")),
        ("/a.slice", ("a",)),
        ("/a.slice/a-b.slice", ("a", "b")),
        ("/a.slice/a-b_c.slice/", ("a", "b-c")),
    ],
)
def test_control_groups_in_both_writings(path, components):
    assert cgroup_components(path) == components


def test_both_writings_of_a_control_group_are_the_same_slice():
    names = ["a", "b-c", "d.e", "f"]
    for count in range(1, 5):
        for parts in itertools.permutations(names, count):
            plain = slice_of_cgroup("/" + "/".join(parts))
            assert slice_of_cgroup(f"/x/{plain}") == plain


@pytest.mark.parametrize("root", ["/", "/custom", "/a/b", "/a.slice/a-b.slice"])
def test_the_tree_is_one_whatever_its_root(root):
    tree = Tree(cgroup_root=root)
    stem = tree.root.removesuffix(".slice")
    assert stem.endswith("kubepods")
    assert tree.tier(Qos.GUARANTEED) == tree.root
    for qos in Qos:
        name = tree.pod("12-34", qos)
        assert name.startswith(f"{stem}-")
        assert name.endswith("-pod12_34.slice")
        assert len(tree.elsewhere("12-34", qos)) == 2
        assert name not in tree.elsewhere("12-34", qos)
    assert tree.patterns == (
        tree.root,
        f"{stem}-*.slice",
        "podslice-pod*.scope",
        "podslice-pod*.service",
        "run-podslice-pods-*.mount",
    )


def test_a_shuffled_tier_is_the_same_tier():
    made = decisions([(1, 1, 0), (2, 1, 0), (0, 0, 0)])
    config = Config(eviction_hard={}, qos_reserved={"memory": 50})
    expected = tier_properties(Qos.BURSTABLE, tuple(made), 10**10, config, page_size=4096)
    random.Random(1).shuffle(made)
    assert tier_properties(Qos.BURSTABLE, tuple(made), 10**10, config, page_size=4096) == expected


def test_what_is_not_requested_is_free_and_may_be_negative():
    allocation = allocate(NODE, PLAIN)
    free = unrequested(allocation, {"cpu": 1000, "memory": 5_000_000})
    assert free == {"cpu": 3000, "memory": -1_000_000}
    assert unrequested(allocation, {}) == allocation.allocatable
