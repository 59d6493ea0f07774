"""Requests and limits for a new pod, from the use of a running program."""

import pytest

from podslice.features.importing.policy import (
    PresentUse,
    StatedAmount,
    at_least,
    at_most,
    propose_amounts,
)

MI = 2**20


def use(**found):
    return PresentUse(name="nginx", what="nginx.service", **{"age_sec": 100, **found})


def amounts(proposed):
    found = (proposed.cpu, proposed.memory, proposed.memory_limit)
    return [each and each.text for each in found]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # CPU in steps of a hundredth, memory in whole Mi, a quarter above the peak
        ({"cpu_usec": 4_200_000, "memory_bytes": 100 * MI, "peak_bytes": 400 * MI},
         ["50m", "100Mi", "500Mi"]),
        ({"cpu_usec": 0, "memory_bytes": 0, "peak_bytes": 0}, ["10m", "1Mi", "1Mi"]),
        ({"cpu_usec": 250_000_000, "memory_bytes": 1}, ["2500m", "1Mi", "1Mi"]),
        # half as much again where the peak is not known
        ({"memory_bytes": 100 * MI + 1}, [None, "101Mi", "151Mi"]),
        # the peak of a group that was emptied may be lower than its use
        ({"memory_bytes": 100 * MI, "peak_bytes": 40 * MI}, [None, "100Mi", "125Mi"]),
        ({}, [None, None, None]),
    ],
)  # fmt: skip
def test_amounts(found, expected):
    assert amounts(propose_amounts(use(**found))) == expected


def test_each_amount_has_its_source():
    found = propose_amounts(use(cpu_usec=4_200_000, memory_bytes=MI, peak_bytes=4 * MI))
    assert found.cpu == StatedAmount(text="50m", source="its average in 100 s is 42m")
    assert found.memory.source == "what it uses now"
    assert found.memory_limit.source == "1.25 times its peak, 4 MiB"
    without_peak = propose_amounts(use(memory_bytes=MI)).memory_limit
    assert without_peak.source == "1.5 times what it uses now; its peak is not known"


def test_a_proposal_is_within_what_is_stated():
    proposed = StatedAmount(text="2Mi", source="its peak")
    for other in (None, StatedAmount(text="2Mi")):
        assert at_most(proposed, other) is at_least(proposed, other) is proposed
    one, three = StatedAmount(text="1Mi"), StatedAmount(text="3Mi")
    assert at_most(proposed, three) is at_least(proposed, one) is proposed
    assert at_most(None, one) is at_least(None, one) is None
    assert at_most(proposed, one) == StatedAmount(text="1Mi", source="the limit; its peak: 2Mi")
    more = StatedAmount(text="3Mi", source="the request; its peak would be 2Mi")
    assert at_least(proposed, three) == more
