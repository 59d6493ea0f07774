"""Classes against a straightforward transcription of what Kubernetes does, in every small world."""

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from podslice.model.config import Rules
from podslice.model.pod import ContainerKind, Pod, Qos
from podslice.model.resources import Resources
from podslice.policy.aggregate import classify, default_pod, why_qos
from tests.unit.policy.worlds import container, levels, pod

ALL_LEVELS = tuple(levels())
CPU_ONLY = tuple(levels(with_memory=False))
MEASURES = ("cpu", "memory")


def collect(levels):
    """qos.go, collectPodLevelResources and collectContainerLevelResources."""
    requests, limits, is_guaranteed = Counter(), Counter(), True
    for level in levels:
        requests.update(above_zero(level.requests))
        found = above_zero(level.limits)
        limits.update(found)
        if found.keys() != set(MEASURES):
            is_guaranteed = False
    return requests, limits, is_guaranteed


def above_zero(amounts):
    """qos.go, processResourceList."""
    return {name: milli for name, milli in amounts.items() if name in MEASURES and milli > 0}


def compute_pod_qos(pod):
    """Kubernetes v1.36, pkg/apis/core/v1/helper/qos/qos.go, ComputePodQOS."""
    levels = [pod.resources] if pod.resources else [each.resources for each in pod.containers]
    requests, limits, is_guaranteed = collect(levels)
    if not requests and not limits:
        return Qos.BESTEFFORT
    if is_guaranteed:
        is_guaranteed = all(limits.get(name) == milli for name, milli in requests.items())
    if is_guaranteed and len(requests) == len(limits):
        return Qos.GUARANTEED
    return Qos.BURSTABLE


def proposed_qos(pod):
    """Pod-Level Resource Limits, "Proposal", sentence by sentence."""

    def is_guaranteed(stated):
        return all(
            stated.limits.get(name, 0) > 0 and stated.requests.get(name) == stated.limits[name]
            for name in MEASURES
        )

    def has_something(stated):
        return any(
            amounts.get(name, 0) > 0
            for amounts in (stated.requests, stated.limits)
            for name in MEASURES
        )

    # "All of the containers included in the pod define memory and CPU resource requests equal to
    # resource limits", or "the pod includes a pod-level memory and CPU resource request which is
    # equal to the resource limit"
    if all(is_guaranteed(each.resources) for each in pod.containers):
        return Qos.GUARANTEED
    if is_guaranteed(pod.resources):
        return Qos.GUARANTEED
    # "if at least one container has a resource request, or the pod itself has a resource request"
    if any(has_something(each.resources) for each in pod.containers):
        return Qos.BURSTABLE
    if has_something(pod.resources):
        return Qos.BURSTABLE
    return Qos.BESTEFFORT


def with_one_container():
    for first in ALL_LEVELS:
        yield pod(container(first))


def with_two_containers():
    """In one order: `test_the_order_of_containers_does_not_matter` has the other."""
    for first, second in itertools.combinations_with_replacement(ALL_LEVELS, 2):
        yield pod(container(first), container(second, 1))


def with_an_init_container():
    for kind in (ContainerKind.INIT, ContainerKind.SIDECAR):
        for first, second in itertools.product(ALL_LEVELS, CPU_ONLY):
            yield pod(container(first), container(second, kind=kind))


def with_a_pod_level():
    for first, level in itertools.product(ALL_LEVELS, repeat=2):
        yield pod(container(first), resources=level)


@cache
def defaulted(world):
    return tuple(map(default_pod, world()))


WORLDS = (with_one_container, with_two_containers, with_an_init_container, with_a_pod_level)


@pytest.mark.parametrize("world", WORLDS)
def test_kubernetes_rules_classify_as_kubernetes_does(world):
    for each in defaulted(world):
        assert classify(each, Rules.KUBERNETES) is compute_pod_qos(each), each


@pytest.mark.parametrize("world", WORLDS)
def test_the_proposals_rules_classify_as_in_the_proposal(world):
    for each in defaulted(world):
        assert classify(each, Rules.PROPOSAL) is proposed_qos(each), each


@pytest.mark.parametrize("world", [with_one_container, with_two_containers])
def test_the_rules_agree_where_there_is_no_pod_level(world):
    for each in defaulted(world):
        assert classify(each, Rules.PROPOSAL) is classify(each, Rules.KUBERNETES)


def test_the_order_of_containers_does_not_matter():
    for first, second in itertools.combinations(ALL_LEVELS, 2):
        one = default_pod(pod(container(first), container(second, 1)))
        other = default_pod(pod(container(second), container(first, 1)))
        assert classify(one) is classify(other)


def test_a_pod_without_containers_requests_nothing():
    assert classify(Pod(name="a", uid="a")) is Qos.BESTEFFORT


def test_a_pod_without_containers_has_the_class_of_its_level():
    each = Pod(name="a", uid="a", resources=Resources(requests={"cpu": 1}))
    assert classify(each) is Qos.BURSTABLE
    assert "cpu" in why_qos(each, Qos.BURSTABLE, Rules.PROPOSAL)


@pytest.mark.parametrize("rules", Rules)
def test_every_class_has_its_reason(rules):
    for each in map(default_pod, itertools.islice(with_a_pod_level(), 0, None, 7)):
        why = why_qos(each, classify(each, rules), rules)
        assert why
        assert "\n" not in why


REASONS = [
    (pod(container(Resources())), "proposal", "no container no pod level"),
    (
        pod(container(Resources(limits={"cpu": 1, "memory": 1}))),
        "proposal",
        "every container cpu memory",
    ),
    (
        pod(container(Resources()), resources=Resources(limits={"cpu": 1, "memory": 1})),
        "proposal",
        "pod level cpu memory",
    ),
    (pod(container(Resources(limits={"cpu": 1}))), "proposal", "container0 memory limit"),
    (
        pod(container(Resources(requests={"cpu": 1}, limits={"cpu": 2, "memory": 1}))),
        "proposal",
        "container0 cpu request limit",
    ),
    (
        pod(
            container(Resources(limits={"cpu": 1, "memory": 1})),
            resources=Resources(limits={"cpu": 2}),
        ),
        "kubernetes",
        "pod level alone cpu request limit",
    ),
    (
        pod(container(Resources()), resources=Resources(requests={"cpu": 1})),
        "kubernetes",
        "pod level alone cpu limit",
    ),
]


@pytest.mark.parametrize(("each", "rules", "expected"), REASONS)
def test_the_reason_names_what_decides(each, rules, expected):
    each = default_pod(each)
    rules = Rules(rules)
    why = why_qos(each, classify(each, rules), rules)
    assert [word for word in expected.split() if word not in why] == []


LIMITED = Resources(limits={"cpu": 1})


@pytest.mark.parametrize(
    ("rules", "resources", "expected"),
    [
        (
            Rules.PROPOSAL,
            LIMITED,
            "at the pod level the cpu request is not the limit, and in container container0 ",
        ),
        (Rules.PROPOSAL, Resources(), "in container container0 "),
        (
            Rules.KUBERNETES,
            LIMITED,
            "the pod level alone decides: the cpu request is not the limit",
        ),
        (Rules.KUBERNETES, Resources(), "in container container0 "),
    ],
)
def test_the_reason_names_the_first_container_only(rules, resources, expected):
    short = Resources(requests={"cpu": 1})
    each = default_pod(pod(container(short), container(short, 1), resources=resources))
    why = why_qos(each, Qos.BURSTABLE, rules)
    assert why == (f"{expected}cpu has no limit" if expected.endswith(" ") else expected)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (Resources(requests={"cpu": 1}), "the pod level alone decides, and is empty"),
        (Resources(), "neither a container nor the pod level requests cpu or memory"),
    ],
)
def test_an_empty_pod_level_is_the_reason_where_it_decides(stated, expected):
    emptied = replace(pod(container(stated), container(Resources())), has_empty_level=True)
    qos = classify(emptied, Rules.KUBERNETES)
    assert qos is Qos.BESTEFFORT
    assert why_qos(emptied, qos, Rules.KUBERNETES) == expected
