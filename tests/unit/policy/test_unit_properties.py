"""Properties of pods and containers, and the sentences that say where they come from."""

import itertools
import re
from dataclasses import replace
from functools import cache

import pytest

from podslice.model.config import Config, Rules, SwapBehavior, WeightMapping
from podslice.model.node import Node
from podslice.model.pod import ContainerKind, Qos
from podslice.model.quantity import parse_quantity
from podslice.model.resources import Resources
from podslice.policy.aggregate import default_pod, effective
from podslice.policy.convert import Curve
from podslice.policy.decide import decide
from podslice.policy.unit_properties import explain_sum, init_properties, why_no_limit
from tests.unit.policy.worlds import KINDS, container, levels, pod

NODE = Node(capacity={"cpu": 8000, "memory": 32 * 2**30 * 1000})
# thousandths of a CPU, and bytes: what is below would be lost in rounding
SCALE = {"cpu": 100, "memory": 2**20 * 1000}


def scaled(resources):
    return Resources(
        requests={name: milli * SCALE[name] for name, milli in resources.requests.items()},
        limits={name: milli * SCALE[name] for name, milli in resources.limits.items()},
    )


KUBERNETES = Config(rules=Rules.KUBERNETES, memory_swap_behavior=SwapBehavior.UNLIMITED)
ALL = tuple(map(scaled, levels()))
FEW = ALL[::17]
"""With different pairs of amounts of memory, too: there are 13, with which 17 has no factor in common."""


@cache
def small_pods():
    """The valid pods of two containers: no request is above the pod's limit."""
    pods = (
        pod(container(first), container(second, 1), resources=level)
        for first, second, level in itertools.product(FEW, FEW, (Resources(), *FEW))
    )
    return [each for each in pods if decide(each, NODE, Config()).is_valid]


def values(properties):
    return {property_.name: property_.value for property_ in properties}


@pytest.mark.parametrize("rules", Rules)
def test_a_pod_has_the_limits_of_its_class(rules):
    """Kubelet pod level resource management, "Pod level cgroups", with a pod level."""
    config = Config(rules=rules)
    for each in small_pods():
        decision = decide(each, NODE, config)
        counted = effective(default_pod(each))
        found = values(decision.properties)
        if decision.qos is Qos.BESTEFFORT:
            assert found == {"CPUWeight": 1}
            continue
        for resource, name in (("cpu", "CPUQuotaPerSecUSec"), ("memory", "MemoryMax")):
            expected = (
                decision.qos is Qos.GUARANTEED
                or each.resources.limits.get(resource)
                or all(c.resources.limits.get(resource) for c in each.containers)
            )
            limit = counted.limits.get(resource)
            assert (name in found) == bool(expected and limit), (each, resource)
            if name in found:
                unit = 1000 if resource == "cpu" else 1 / 1000
                assert found[name] == limit * unit
        request = counted.requests.get("memory")
        assert found.get("MemoryLow", 0) == (request or 0) // 1000


@pytest.mark.parametrize("rules", Rules)
def test_a_container_has_its_own_limits_and_under_kubernetes_else_the_pod_s(rules):
    config = replace(KUBERNETES, rules=rules)
    for each in small_pods():
        decision = decide(each, NODE, config)
        for stated, decided in zip(each.containers, decision.containers, strict=True):
            found = values(decided.properties)
            if decision.qos is Qos.BESTEFFORT:
                assert found == {"CPUWeight": 1}
                continue
            limit = stated.resources.limits.get("memory")
            if not limit and rules is Rules.KUBERNETES:
                limit = each.resources.limits.get("memory")
            assert found.get("MemoryMax", 0) == (limit or 0) // 1000


def test_the_rules_of_kubernetes_only_add_the_pod_s_limits_to_containers():
    for each in small_pods():
        ours, theirs = decide(each, NODE, Config()), decide(each, NODE, KUBERNETES)
        if ours.qos is not theirs.qos:
            continue
        for one, other in zip(ours.containers, theirs.containers, strict=True):
            left, right = values(one.properties), values(other.properties)
            assert left.pop("CPUWeight") <= right.pop("CPUWeight")  # its own, or the pod's limit's
            assert left.items() <= right.items()
            assert right.items() - left.items() <= values(theirs.properties).items()


def amounts_in(text):
    """Return the amounts of a sum as it is written, without those in brackets."""
    plain = re.sub(r" \([^)]*\)", "", text)
    return [parse_quantity(word).milli for word in re.findall(r"(?<![\w.-])\d[\w.]*", plain)]


def pods_with_every_kind():
    kinds = itertools.product(KINDS, repeat=2)
    for (kind, other), first, second in itertools.product(kinds, FEW, FEW):
        for overhead in ({}, {"cpu": 50, "memory": 2**20 * 1000}):
            yield pod(
                container(first),
                container(first, 1, kind),
                container(second, 2, other),
                overhead=overhead,
            )
    for first, level in itertools.product(ALL, ALL[::3]):
        yield pod(container(first), resources=level, overhead={"cpu": 50})


def test_the_described_sum_is_the_effective_amount():
    for stated in pods_with_every_kind():
        each = default_pod(stated)
        counted = effective(each)
        for part, resource in itertools.product(("requests", "limits"), ("cpu", "memory")):
            text = explain_sum(each, stated, part, resource)
            amounts = amounts_in(text)
            amount = getattr(counted, part).get(resource)
            if not amounts:
                assert not amount, (text, each)
                assert text == f"{part}.{resource} none"
            else:
                assert amounts[-1] == (amount or 0), (text, each)
                assert text.startswith((f"{part}.{resource}", f"spec.resources.{part}.{resource}"))


def test_a_sum_adds_up_as_it_is_written():
    for stated in itertools.islice(pods_with_every_kind(), 0, None, 3):
        each = default_pod(stated)
        for part, resource in itertools.product(("requests", "limits"), ("cpu", "memory")):
            terms, equals, result = explain_sum(each, stated, part, resource).rpartition(" = ")
            if equals and " = " not in terms:
                assert sum(amounts_in(terms)) == amounts_in(result)[0]


def test_defaulted_amounts_are_marked():
    first = Resources(limits={"cpu": 100})
    stated = pod(container(first), container(Resources(requests={"cpu": 50}), 1))
    assert explain_sum(default_pod(stated), stated, "requests", "cpu") == (
        "requests.cpu 100m (limit) + 50m = 150m"
    )


def test_a_pod_level_request_has_its_origin():
    level = Resources(limits={"cpu": 1000})
    of_limit = pod(container(Resources()), resources=level)
    of_containers = pod(container(Resources(requests={"cpu": 50})), resources=level)
    texts = [
        explain_sum(default_pod(each), each, "requests", "cpu")
        for each in (of_limit, of_containers)
    ]
    assert "limit" in texts[0]
    assert "containers' sum" in texts[1]


def test_an_init_container_that_decides_is_named():
    stated = pod(
        container(Resources(requests={"cpu": 100})),
        container(Resources(requests={"cpu": 500}), kind=ContainerKind.INIT),
    )
    text = explain_sum(default_pod(stated), stated, "requests", "cpu")
    assert text == "requests.cpu 500m (init container init0)"


def test_overhead_is_named():
    stated = pod(container(Resources(requests={"cpu": 100})), overhead={"cpu": 50})
    text = explain_sum(default_pod(stated), stated, "requests", "cpu")
    assert text == "requests.cpu 100m + overhead 50m = 150m"
    assert explain_sum(default_pod(stated), stated, "limits", "cpu") == "limits.cpu none"


def reason(decided, name):
    return next(each.why for each in decided.properties if each.name == name)


GI = 2**30 * 1000


@pytest.mark.parametrize(
    ("resources", "level"),
    [
        (Resources(), Resources()),
        (Resources(requests={"cpu": 1000}), Resources()),
        (Resources(requests={"memory": GI}), Resources(limits={"cpu": 1000})),
    ],
    ids=["BestEffort", "own request", "limit of the pod"],
)
def test_scopes_have_the_runtime_s_curve_and_slices_the_kubelet_s(resources, level):
    """1024 shares are 100 for runc and 39 for the kubelet, 2 shares 1 for both.

    Source: opencontainers/cgroups, utils.go, ConvertCPUSharesToCgroupV2Value; Kubernetes,
    pkg/kubelet/cm/cgroup_v2_manager_linux.go, getCPUWeight.
    """
    config = Config(rules=Rules.KUBERNETES, cpu_weight_mapping=WeightMapping.KUBELET)
    overhead = {"cpu": 1000}
    decision = decide(pod(container(resources), resources=level, overhead=overhead), NODE, config)
    assert reason(decision, "CPUWeight").endswith(Curve.LINEAR)
    weight = 1 if decision.qos is Qos.BESTEFFORT else 100
    for scope in (*decision.containers, decision.overhead):
        assert values(scope.properties)["CPUWeight"] == weight
        assert reason(scope, "CPUWeight").endswith(Curve.OCI)


def test_rounding_and_clamping_are_named():
    fine = decide(pod(container(Resources(limits={"cpu": 100, "memory": GI}))), NODE, Config())
    assert "rounded up" not in reason(fine, "CPUQuotaPerSecUSec")
    assert "clamped" not in reason(fine, "CPUWeight")
    odd = decide(pod(container(Resources(limits={"cpu": 5, "memory": GI}))), NODE, Config())
    assert reason(odd, "CPUQuotaPerSecUSec").endswith(
        "→ 5000 µs per second, rounded up to 10000: systemd stores whole percents"
    )
    assert " = 0, clamped to 1: systemd accepts 1 to 10000" in reason(odd, "CPUWeight")


def test_a_protection_above_the_limit_is_limited_to_it():
    both = Resources(requests={"memory": GI}, limits={"memory": GI})
    equal = decide(pod(container(both)), NODE, Config())
    assert "limited to MemoryMax" not in reason(equal, "MemoryLow")
    level = Resources(requests={"memory": 2 * GI}, limits={"memory": GI})
    above = decide(pod(container(both), resources=level), NODE, Config())
    assert reason(above, "MemoryLow").endswith(" = 2 GiB, limited to MemoryMax")


def test_containers_without_a_limit_are_named():
    one = pod(container(Resources()), container(Resources(limits={"memory": GI}), 1))
    assert why_no_limit(one, "memory", Rules.PROPOSAL) == "container container0 has no memory limit"
    assert why_no_limit(one, "cpu", Rules.PROPOSAL) == (
        "containers container0, container1 have no cpu limit"
    )


def test_only_the_proposal_has_other_limits_in_the_init_phase():
    limits = Resources(limits={"cpu": 1000, "memory": 2**30 * 1000})
    each = pod(container(limits), container(limits, 1, ContainerKind.INIT), resources=limits)
    assert decide(each, NODE, Config()).init_properties is not None
    assert decide(each, NODE, KUBERNETES).init_properties is None
    counted = (ALL[0], 1, ContainerKind.INIT)
    besteffort = pod(
        container(ALL[0]), container(*counted), resources=Resources(limits={"hugepages-2Mi": 2**24})
    )
    assert init_properties(besteffort, besteffort, Qos.BESTEFFORT, Config()) is None


def test_a_limit_needs_no_reason():
    memory = Resources(limits={"memory": 2**30 * 1000})
    at_pod = pod(container(Resources()), resources=memory)
    in_containers = pod(container(memory))
    for each in (at_pod, in_containers):
        assert why_no_limit(each, "memory", Rules.PROPOSAL) == ""
        assert why_no_limit(each, "cpu", Rules.PROPOSAL) == "container container0 has no cpu limit"
