"""The desired state in steps: a pause after each pass over the pods, and after so many pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from podslice.policy.decide import decide
from podslice.policy.desire import desiring
from tests.unit.policy.desired_worlds import BURSTABLE, NODE, PLAIN
from tests.unit.policy.worlds import container, pod

PASSES = (
    *("separate pods with other requests", "admit", "join", "find init phases", "apply phases"),
    *("find unwanted pods", "find unwanted volumes"),
)
"""What takes one step for all pods together."""


@pytest.mark.parametrize(
    ("count", "known", "decisions", "units"),
    [
        (101, [{}], 2, 1),  # the first and the 101st; the units of the first 100
        (101, [{"where": "elsewhere"}], 2, 1),  # equal pods, read again
        (30, [{"priority": 1}], 30, 0),  # each takes a step, as after a change of each
        (30, [], 30, 0),
    ],
    ids=["known", "equal", "changed", "new"],
)
def test_work_pauses_after_each_pass_and_each_hundred_pods(count, known, decisions, units):
    pods = [pod(container(BURSTABLE), name=f"pod-{number}") for number in range(count)]
    known = [
        decide(replace(each, **fields) if fields else each, NODE, PLAIN)
        for fields in known
        for each in pods
    ]
    pauses = list(desiring((), NODE, PLAIN, current=pods, known=known))
    assert len(pauses) == decisions + len(PASSES) + units
