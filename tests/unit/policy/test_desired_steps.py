"""The desired state in steps: a pause after each pass over the pods, and after so many pods."""

from __future__ import annotations

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
    ("count", "is_known", "decisions", "units"),
    [
        (101, True, 2, 1),  # the first and the 101st; the units of the first 100
        (30, False, 30, 0),  # each takes a step
    ],
)
def test_work_pauses_after_each_pass_and_each_hundred_pods(count, is_known, decisions, units):
    pods = [pod(container(BURSTABLE), name=f"pod-{number}") for number in range(count)]
    known = [decide(each, NODE, PLAIN) for each in pods] if is_known else []
    pauses = list(desiring((), NODE, PLAIN, current=pods, known=known))
    assert len(pauses) == decisions + len(PASSES) + units
