"""What is known from before saves work, and changes no result."""

from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.policy.desire import desire
from tests.unit.properties.strategies import configs, nodes, some, worlds
from tests.unit.properties.strategies import pods as pods_of


def change_pod(draw, pods):
    """Return the pods after one of them was changed, added or removed."""
    what = draw(st.sampled_from(("nothing", "change", "add", "remove")))
    rest, last = pods[:-1], pods[-1:]
    if what == "add":
        return (*pods, draw(pods_of(f"new{len(pods)}")))
    if what == "change":
        return (*rest, *(replace(pod, resources=draw(pods_of("x")).resources) for pod in last))
    return rest if what == "remove" else pods


@some
@given(worlds(max_pods=3), nodes, configs, st.data())
def test_a_desired_state_with_what_is_known_is_the_same(pods, node, config, data):
    config = replace(config, admission=False)
    known = ()
    for _ in range(4):
        desired = desire((), node, config, current=pods, known=known)
        assert desired == desire((), node, config, current=pods)
        known = desired.pods
        pods = change_pod(data.draw, pods)
