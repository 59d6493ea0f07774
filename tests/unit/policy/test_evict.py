import pytest

from podslice.policy.evict import format_signal


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
def test_an_observation_is_told_rounded_down_as_the_kubelet_tells_it(signal, milli, text):
    assert format_signal(signal, milli) == text
