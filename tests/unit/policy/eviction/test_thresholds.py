import pytest

from podslice.model.config import Config, Threshold
from podslice.model.node import Node
from podslice.model.resources import Resources
from podslice.policy.decide import decide
from podslice.policy.eviction import PodUsage, choose, eviction_thresholds, format_signal, rank
from tests.cases.tables import cases
from tests.unit.policy.worlds import container, pod

NODE = Node(capacity={"cpu": 8000, "memory": 32 * 2**30 * 1000})


@cases
def test_an_observation_is_formatted_for_people(signal, milli, text):
    assert format_signal(signal, milli) == [text]


def test_an_observation_just_below_its_threshold_reads_differently():
    wanted = 100 * 2**20 * 1000
    assert format_signal("memory.available", wanted - 1000, wanted) == ["104857599 B", "100Mi"]


def test_thresholds_come_hard_ones_first_each_by_signal():
    """Hard thresholds come before soft ones, and signals in the order of their names.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, ParseThresholdConfig: hard, then soft;
    addAllocatableThresholds adds the one for the pods' sum.
    """
    low, high = Threshold(amount=1000), Threshold(amount=2000)
    found = eviction_thresholds(
        Config(
            eviction_hard={"pid.available": low, "memory.available": low, "nodefs.available": low},
            eviction_soft={"nodefs.inodesFree": high, "memory.available": high},
        )
    )
    assert [(each.signal, each.is_hard) for each in found] == [
        ("memory.available", True),
        ("nodefs.available", True),
        ("pid.available", True),
        ("allocatableMemory.available", True),
        ("memory.available", False),
        ("nodefs.inodesFree", False),
    ]


def test_a_soft_threshold_without_a_grace_period_applies_immediately():
    soft = {"memory.available": Threshold(amount=1000)}
    (found,) = eviction_thresholds(Config(eviction_hard={}, eviction_soft=soft))
    assert found.grace_usec == 0


@pytest.mark.parametrize("signal", ["nodefs.inodesFree", "memory.available"])
def test_the_least_usage_is_above_a_request_of_none(signal):
    """A thousandth counts: it ranks before the priority, and makes a pod eligible."""
    using, idle = (
        decide(pod(container(Resources()), name=name, priority=priority), NODE, Config())
        for name, priority in (("using", 1), ("idle", 0))
    )
    usage = {using.pod.key: PodUsage(inodes=1, memory=1)}
    assert rank(signal, (idle, using), usage)[0].decision is using
    chosen = choose(signal, (idle, using), usage)
    assert chosen is not None
    assert chosen.decision is using


def test_equal_excesses_rank_by_name_with_and_without_a_request():
    first, second = (
        decide(pod(container(Resources(requests=requests)), name=name), NODE, Config())
        for name, requests in (("a", {}), ("b", {"memory": 5000}))
    )
    usage = {first.pod.key: PodUsage(memory=2000), second.pod.key: PodUsage(memory=7000)}
    ranked = rank("memory.available", (second, first), usage)
    assert [each.decision for each in ranked] == [first, second]
