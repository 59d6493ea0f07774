"""The pods of the desired state: admitted, replaced, removed, with problems."""

import pytest

from podslice.errors import Problem, Severity
from podslice.model.config import Config
from podslice.model.naming import TIERS, Tree
from podslice.model.node import Node
from podslice.model.pod import Qos
from podslice.model.resources import Resources
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.unit.policy.desired_worlds import (
    BESTEFFORT,
    BURSTABLE,
    CONFIGS,
    GI,
    GUARANTEED,
    NODE,
    PLAIN,
    desire_all,
    pods,
)
from tests.unit.policy.worlds import container, pod


def test_without_pods_there_is_no_tree():
    desired = desire((), NODE, PLAIN)
    assert desired.lasting == ()
    assert set(desired.unwanted) == {
        "kubepods.slice",
        "kubepods-burstable.slice",
        "kubepods-besteffort.slice",
    }
    assert desired.requested == {}


def test_terminating_pods_are_unwanted_in_every_class():
    leaving = pod(container(BURSTABLE), name="a")
    desired = desire_all(PLAIN, [pod(container(GUARANTEED), name="b")], terminating=[leaving])
    for qos in Qos:
        assert Tree().pod("a", qos) in desired.unwanted


def test_a_terminating_pod_is_neither_a_candidate_nor_current():
    each = pod(container(BURSTABLE), name="a")
    desired = desire_all(PLAIN, [each], current=[each], terminating=[each])
    assert desired.pods == ()


def test_a_candidate_takes_the_place_of_the_current_pod_of_its_name():
    before = pod(container(BURSTABLE), name="a")
    after = pod(container(GUARANTEED), name="a")
    desired = desire_all(PLAIN, [after], current=[before])
    assert [each.qos for each in desired.pods] == [Qos.GUARANTEED]
    assert desired.requested == {"cpu": 500, "memory": GI}


def test_a_candidate_that_does_not_fit_leaves_the_current_one():
    before = pod(container(BURSTABLE), name="a")
    after = pod(container(Resources(limits={"cpu": 9000, "memory": GI})), name="a")
    desired = desire_all(PLAIN, [after], current=[before])
    assert [each.qos for each in desired.pods] == [Qos.BURSTABLE]
    assert [refusal.reason for refusal in desired.refused] == ["OutOfcpu"]


def test_without_admission_every_pod_is_accepted():
    config = Config(eviction_hard={}, admission=False)
    big = pod(container(Resources(limits={"cpu": 9000, "memory": 64 * GI})), name="a")
    desired = desire_all(config, [big])
    assert len(desired.pods) == 1
    assert desired.refused == ()


def test_a_current_pod_is_never_refused_for_its_own_requests():
    """The node has shrunk, or a reservation has grown: nothing new is asked for."""
    there = [pod(container(Resources(requests={"cpu": 5000})), name=name) for name in "ab"]
    desired = desire_all(PLAIN, there, current=there)
    assert [each.pod.name for each in desired.pods] == ["a", "b"]
    assert desired.refused == ()


def test_more_pods_never_mean_a_lower_tier_weight_or_a_higher_tier_limit():
    config = Config(eviction_hard={}, qos_reserved={"memory": 100})
    weights, limits = [], []
    for count in range(1, 10):
        units = {unit.name: unit.values for unit in desire_all(config, list(pods(count))).units}
        weights.append(units[Tree().tier(Qos.BURSTABLE)]["CPUWeight"])
        limits.append([units[Tree().tier(qos)]["MemoryMax"] for qos in TIERS])
    assert weights == sorted(weights)
    assert limits == sorted(limits, reverse=True)
    assert all(burstable >= besteffort for burstable, besteffort in limits)


def test_a_pod_s_own_problems_come_first_and_none_twice():
    own = Problem(where="a.yaml", message="odd", severity=Severity.WARNING)
    each = pod(container(Resources(limits={"cpu": 5})), problems=(own, own))
    problems = decide(each, NODE, PLAIN).problems
    assert problems[0] == own
    assert len(problems) == len(set(problems)) == 2


def test_names_that_would_be_too_long_are_an_error_that_names_their_cause():
    long = pod(container(BURSTABLE), uid="u" * 128)
    assert decide(long, NODE, PLAIN).is_valid
    decision = decide(long, NODE, Config(cgroup_root="/" + "r" * 120))
    assert not decision.is_valid
    assert [problem.where for problem in decision.problems] == ["metadata.uid"]
    assert "255" in decision.problems[0].hint


def test_a_pod_with_an_error_still_has_its_decision():
    wrong = Problem(where="a.yaml", message="wrong")
    decision = decide(pod(container(BURSTABLE), problems=(wrong,)), NODE, PLAIN)
    assert not decision.is_valid
    assert decision.qos is Qos.BURSTABLE
    assert decide(pod(container(BURSTABLE)), NODE, PLAIN).is_valid


def test_notes_list_what_is_unset():
    decision = decide(pod(container(BURSTABLE), container(BESTEFFORT, 1)), NODE, PLAIN)
    text = "\n".join(decision.notes)
    assert "CPUQuota" in text
    assert "container0" in text
    assert "container1" in text
    assert "MemoryMax" in text
    both = Resources(requests={"cpu": 1}, limits={"cpu": 10, "memory": GI})
    assert len(decide(pod(container(both)), NODE, PLAIN).notes) == 1
    without = decide(pod(container(both)), NODE, Config(cpu_cfs_quota=False)).notes
    assert any("cpu-cfs-quota" in note for note in without)


def test_reserved_slices_are_others_and_get_only_what_is_reserved():
    config = CONFIGS[-1]
    units = {unit.name: unit for unit in desire_all(config).units}
    runtime, system = units["podruntime.slice"], units["system.slice"]
    assert not runtime.owned
    assert runtime.values == {"CPUWeight": 50, "MemoryMax": 2**30, "TasksMax": 1000}
    assert system.values == {"CPUWeight": 25}
    assert units["kubepods.slice"].values["TasksMax"] == 31_768


def test_a_reserved_slice_that_is_not_enforced_is_left_alone():
    config = Config(kube_reserved={"cpu": 1}, kube_reserved_cgroup="/podruntime.slice")
    assert "podruntime.slice" not in {unit.name for unit in desire_all(config).units}


def test_a_node_whose_capacity_is_not_known_sets_no_limit():
    desired = desire(
        [decide(pod(container(BURSTABLE)), Node(capacity={}), PLAIN)], Node(capacity={}), PLAIN
    )
    assert desired.units[0].values == {"MemoryLow": GI // 4 // 1000}


def test_a_stated_capacity_counts_instead_of_the_host_s():
    config = Config(eviction_hard={}, capacity={"memory": 4 * GI})
    big = pod(container(Resources(requests={"memory": 5 * GI})))
    desired = desire_all(config, [big])
    assert [refusal.reason for refusal in desired.refused] == ["OutOfmemory"]
    assert desired.allocation.capacity == {**NODE.capacity, "memory": 4 * GI}


def root_memory(node, **fields):
    """MemoryMax of the root slice."""
    root = desire((), node, Config(eviction_hard={}, **fields)).units[0]
    return next(each for each in root.properties if each.name == "MemoryMax")


@pytest.mark.parametrize(
    ("reserved_pages", "pages", "is_raised"), [(1, 2, False), (2, 1, False), (3, 1, True)]
)
def test_a_limit_below_the_minimum_is_raised_to_it_with_a_reason(reserved_pages, pages, is_raised):
    """Of three pages of memory some are reserved."""
    node = Node(capacity={"memory": 3 * 4096 * 1000})
    limit = root_memory(node, kube_reserved={"memory": reserved_pages * 4096 * 1000})
    assert limit.value == pages * 4096
    assert ("raised to 4096, the minimum" in limit.why) == is_raised


@pytest.mark.parametrize(
    ("hugepages", "counts", "is_named"), [(GI, True, True), (GI, False, False), (0, True, False)]
)
def test_huge_pages_in_the_root_s_limit_are_named(hugepages, counts, is_named):
    capacity = {"memory": 8 * GI, "hugepages-2Mi": hugepages}
    limit = root_memory(Node(capacity=capacity, counts_hugepages=counts))
    assert limit.value == 8 * 2**30
    assert ("with 1 GiB of huge pages, which count as memory here" in limit.why) == is_named


def test_a_name_of_255_bytes_is_the_longest():
    """Source: systemd, unit-name.h, UNIT_NAME_MAX is 256 with the final zero byte."""
    left = 255 - len("-kubepods-burstable-poda.slice")
    for length, is_valid in ((left, True), (left + 1, False)):
        config = Config(cgroup_root="/" + "r" * length)
        decision = decide(pod(container(BURSTABLE), uid="a"), NODE, config)
        assert (len(decision.slice), decision.is_valid) == (255 - left + length, is_valid)


def test_huge_pages_that_a_pod_does_not_request_have_no_note():
    node = Node(capacity=NODE.capacity, hugepage_sizes=(2**21,))
    asked = Resources(limits={"cpu": 100, "memory": GI, "hugepages-2Mi": 2**21 * 1000})
    for resources, count in ((GUARANTEED, 0), (asked, 1)):
        notes = decide(pod(container(resources)), node, PLAIN).notes
        assert sum("huge pages of 2Mi" in note for note in notes) == count


def test_cpus_beyond_the_node_s_are_warned_of():
    each = pod(container(Resources(limits={"cpu": 500_000, "memory": GI})))
    (problem,) = decide(each, NODE, PLAIN).problems
    assert problem.where == "spec.containers[0].resources.limits[cpu]"
    assert problem.message == "500 is 500 CPUs, and the node has 8"
