"""The same input in any order gives the same bytes."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.cli.report import document, part
from podslice.cli.verbs.explain import pod_entry
from podslice.cli.verbs.render import unit_report
from podslice.cli.views import changes, tables
from podslice.model.pod import ContainerKind
from podslice.model.unit import Caps, Observed
from podslice.plan.make import make_plan
from podslice.policy.decide import compare_rules, decide
from podslice.policy.desire import desire
from tests.unit.builders import as_observed
from tests.unit.properties.strategies import (
    amount_orders,
    configs,
    decisions,
    nodes,
    pods,
    some,
    worlds,
)

NOTHING = Observed(caps=Caps(systemd_version=257))


def all_bytes(desired, observed):
    """Everything that is printed of a decision and of its plan."""
    printed = {
        "pods": [part(pod_entry(each)) for each in desired.pods],
        "node": part(tables.node_entry(desired.allocation, desired.requested)),
        "units": document(unit_report(desired)),
        "plan": changes.plan_document(make_plan(desired, observed)),
    }
    return json.dumps(printed).encode()


@some
@given(st.data(), worlds(), worlds(), nodes, configs)
def test_the_order_of_pods_and_of_amounts_means_nothing(data, before, world, node, config):
    other_world = data.draw(st.permutations([data.draw(amount_orders(pod)) for pod in world]))
    other_before = data.draw(st.permutations(before))
    desired = desire(decisions(world, node, config), node, config, current=before)
    other = desire(decisions(other_world, node, config), node, config, current=other_before)
    assert all_bytes(other, NOTHING) == all_bytes(desired, NOTHING)
    there = as_observed(desire(decisions(before, node, config), node, config))
    backwards = replace(there, units=dict(reversed(there.units.items())))
    assert all_bytes(other, backwards) == all_bytes(desired, there)


@some
@given(st.data(), pods(), nodes, configs)
def test_the_order_of_containers_means_nothing_to_their_pod(data, pod, node, config):
    apps = data.draw(st.permutations(pod.of_kind(ContainerKind.APP)))
    before = pod.of_kind(ContainerKind.INIT, ContainerKind.SIDECAR)
    one = decide(pod, node, config)
    other = decide(replace(pod, containers=(*apps, *before)), node, config)
    assert (other.qos, other.requests, other.limits) == (one.qos, one.requests, one.limits)
    assert other.properties == one.properties
    assert set(other.problems) == set(one.problems)
    assert {each.name: each for each in other.containers} == {
        each.name: each for each in one.containers
    }


@some
@given(st.data(), pods(), nodes, configs)
def test_the_differences_of_the_rules_come_in_one_order(data, pod, node, config):
    turned = data.draw(amount_orders(pod))
    assert compare_rules(turned, node, config) == compare_rules(pod, node, config)
