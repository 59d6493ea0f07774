"""Admission: never more than the node has, and no refusal without a reason."""

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.model.resources import total
from podslice.policy.admit import admit
from tests.unit.builders import config, guaranteed, node
from tests.unit.properties.strategies import configs, decisions, nodes, some, worlds


@st.composite
def situations(draw):
    """Pods that are there and fit, candidates, some of them by the same names, and a node."""
    node, config = draw(nodes), draw(configs)
    before, _ = admit(decisions(draw(worlds()), node, config), (), node.capacity)
    return before, decisions(draw(worlds()), node, config), node.capacity


def fits(requests, used, allocatable):
    return all(
        requests[name] <= max(allocatable[name] - used.get(name, 0), 0)
        for name in requests
        if name in allocatable
    )


def sums(admitted):
    return total(each.requests for each in admitted.values())


@some
@given(situations())
def test_what_is_admitted_never_exceeds_what_there_is(situation):
    before, candidates, allocatable = situation
    accepted, refused = admit(candidates, before, allocatable)
    after = {each.pod.key: each for each in (*before, *accepted)}
    assert all(sums(after).get(name, 0) <= allocatable[name] for name in allocatable)
    names = [each.pod.key for each in accepted] + [each.pod for each in refused]
    assert sorted(names) == sorted(each.pod.key for each in candidates)


@some
@given(situations())
def test_a_pod_that_fits_beside_all_admitted_ones_is_admitted(situation):
    before, candidates, allocatable = situation
    accepted, refused = admit(candidates, before, allocatable)
    after = {each.pod.key: each for each in (*before, *accepted)}
    by_key = {each.pod.key: each for each in candidates}
    for each in refused:
        others = {key: value for key, value in after.items() if key != each.pod}
        assert not fits(by_key[each.pod].requests, sums(others), allocatable)


def test_released_requests_are_available_to_earlier_pods():
    large, small = guaranteed("b", cpu="6"), guaranteed("b", cpu="1")
    first = guaranteed("a", cpu="4", priority=9)
    accepted, refused = admit(
        decisions([first, small], node(), config()),
        decisions([large], node(), config()),
        node().capacity,
    )
    assert sorted(each.pod.name for each in accepted) == ["a", "b"]
    assert refused == ()


@some
@given(situations())
def test_new_pods_are_taken_by_priority_then_by_name(situation):
    _, candidates, allocatable = situation
    accepted, _ = admit(candidates, (), allocatable)
    taken = {}
    for each in sorted(candidates, key=lambda each: (-each.pod.priority, each.pod.key)):
        assert fits(each.requests, sums(taken), allocatable) == (each in accepted)
        if each in accepted:
            taken[each.pod.key] = each


@some
@given(st.data(), situations())
def test_the_order_of_candidates_means_nothing(data, situation):
    before, candidates, allocatable = situation
    turned = data.draw(st.permutations(candidates)), data.draw(st.permutations(before))
    assert admit(*turned, allocatable) == admit(candidates, before, allocatable)
