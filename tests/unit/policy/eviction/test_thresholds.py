import pytest

from podslice.model.config import Config, Threshold
from podslice.policy.eviction.thresholds import eviction_thresholds, format_signal


@pytest.mark.parametrize(
    ("signal", "milli", "text"),
    [
        ("memory.available", 100 * 2**20 * 1000, "100Mi"),
        ("memory.available", (100 * 2**20 - 1) * 1000, "102399Ki"),
        ("allocatableMemory.available", 1023 * 1000, "0"),
        ("nodefs.available", 3 * 2**30 * 1000, "3Gi"),
        ("nodefs.inodesFree", 2_000_999, "2000"),
        ("pid.available", 1_000, "1"),
    ],
)
def test_an_observation_is_rounded_down_as_by_the_kubelet(signal, milli, text):
    assert format_signal(signal, milli) == text


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
