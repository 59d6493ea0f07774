"""Differences between the rule sets: every one, whatever the configured rules are."""

from podslice.model.config import Config, Rules
from podslice.model.resources import Resources
from podslice.policy.decide import Difference, compare_rules
from tests.unit.policy.desired_worlds import GI, GUARANTEED, NODE, PLAIN, pods
from tests.unit.policy.worlds import container, pod


def test_the_configured_rules_do_not_matter():
    for each in pods():
        differences = compare_rules(each, NODE, PLAIN)
        for rules in Rules:
            config = Config(eviction_hard={}, rules=rules)
            assert compare_rules(each, NODE, config) == differences


def test_a_pod_of_another_class_has_another_slice():
    """The containers are Guaranteed, the pod level is not: Kubernetes goes by the pod level alone."""
    level = Resources(requests={"cpu": 500, "memory": GI}, limits={"cpu": 1000, "memory": 2 * GI})
    each = pod(container(GUARANTEED), uid="a1", resources=level)
    assert compare_rules(each, NODE, PLAIN)[:2] == (
        Difference(what="qos_class", proposal="Guaranteed", kubernetes="Burstable"),
        Difference(
            what="slice",
            proposal="kubepods-poda1.slice",
            kubernetes="kubepods-burstable-poda1.slice",
        ),
    )


def test_a_problem_is_marked_as_one():
    """The values of a problem are severities; a table of values can not show them."""
    level = Resources(requests={"cpu": 100})
    small = pod(container(Resources(requests={"cpu": 200})), uid="a1", resources=level)
    (problem,) = [each for each in compare_rules(small, NODE, PLAIN) if each.is_problem]
    assert (problem.proposal, problem.kubernetes) == ("warning", "error")
    assert not any(each.is_problem for pod in pods() for each in compare_rules(pod, NODE, PLAIN))


def test_a_difference_of_a_property_names_it():
    """A view formats the value as that of the property, without reading the text."""
    level = Resources(requests={"cpu": 500}, limits={"cpu": 1000, "memory": 2 * GI})
    each = pod(container(Resources()), container(GUARANTEED, 1), uid="a1", resources=level)
    found = {each.what: each.property for each in compare_rules(each, NODE, PLAIN)}
    assert found["MemoryMax of container container0"] == "MemoryMax"
