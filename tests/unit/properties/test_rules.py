"""When the two rule sets have to agree."""

from dataclasses import replace

import pytest

pytest.importorskip("hypothesis")

from hypothesis import assume, given

from podslice.model.config import Rules
from podslice.model.pod import ContainerKind, Qos
from podslice.model.properties import PROTECTIONS
from podslice.model.resources import CPU, MEMORY, Resources, is_hugepages
from podslice.policy.aggregate import classify, default_pod, lacking_limit
from podslice.policy.decide import compare_rules, decide
from tests.unit.properties.strategies import COMPUTE, configs, nodes, pods, some


def has_lonely_pages(container):
    """Return whether it requests huge pages without cpu or memory."""
    names = {*container.resources.requests, *container.resources.limits}
    return any(map(is_hugepages, names)) and not names & {CPU, MEMORY}


def has_limit_of_sidecars(pod, resource):
    """Return whether the pod's slice has a limit for Kubernetes only."""
    lacking = lacking_limit(pod, resource, Rules.PROPOSAL)
    return bool(lacking and not lacking_limit(pod, resource, Rules.KUBERNETES))


@some
@given(pods(pod_level=False), nodes, configs)
def test_without_a_pod_level_only_lonely_huge_pages_are_judged_differently(pod, node, config):
    """Pods whose slice has other limits with Kubernetes are left out; the next test has them."""
    assume(not any(has_limit_of_sidecars(default_pod(pod), name) for name in COMPUTE))
    lonely = {f"{each.where}.resources" for each in pod.containers if has_lonely_pages(each)}
    differences = compare_rules(pod, node, config)
    assert {each.what.split(": ")[-2] for each in differences} == lonely
    assert all(
        (each.proposal, each.kubernetes) == ("warning", "error") and "huge pages" in each.what
        for each in differences
    )


@some
@given(pods(names=COMPUTE), nodes, configs)
def test_where_the_classes_are_one_only_containers_without_a_limit_differ(pod, node, config):
    """They get the pod's limit and its weight from Kubernetes, and neither from the proposal.

    For Kubernetes a container counts together with the sidecars before it, so that the pod's slice
    may have a limit; and the pod's limit has to hold init containers, which gives warnings.
    """
    stated = default_pod(pod)
    assume(classify(stated, Rules.PROPOSAL) is classify(stated, Rules.KUBERNETES))
    without = {
        f"{limit} of container {each.name}"
        for each in pod.containers
        for name, limit in (
            (CPU, "CPUQuotaPerSecUSec"),
            (CPU, "CPUQuotaPeriodUSec"),
            (MEMORY, "MemoryMax"),
        )
        if pod.resources.limits.get(name) and not each.resources.limits.get(name)
    }
    least = {
        f"CPUWeight of container {each.name}"
        for each in stated.containers
        if pod.resources.limits.get(CPU) and CPU not in each.resources.requests
    }
    of_slice = {
        property_
        for name, properties in (
            (CPU, ("CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec")),
            (MEMORY, ("MemoryMax", "MemoryLow", "MemoryMin")),
        )
        if has_limit_of_sidecars(stated, name)
        for property_ in properties
    }
    differences = {
        each.what: each
        for each in compare_rules(pod, node, config)
        if not each.what.endswith(" until the init containers have finished")
    }
    warned = {what for what in differences if what.startswith("spec.resources.")}
    assert all(differences[what].proposal == "fine" for what in warned)
    assert all(differences[what].kubernetes == "warning" for what in warned)
    assert differences.keys() - warned <= without | least | of_slice
    assert all(differences[what].proposal == "unset" for what in without & differences.keys())
    assert all(differences[what].proposal == "1" for what in least & differences.keys())


@some
@given(pods(names=COMPUTE), nodes, configs)
def test_only_limits_wait_for_init_containers(pod, node, config):
    """And what they are meanwhile is never less than the containers' own limits allow."""
    decision = decide(pod, node, replace(config, rules=Rules.PROPOSAL))
    waits = pod.of_kind(ContainerKind.INIT) and pod.resources.limits
    assert decision.init_properties is None or waits
    assert decide(pod, node, replace(config, rules=Rules.KUBERNETES)).init_properties is None
    if decision.init_properties is not None:
        always = {each.name: each.value for each in decision.properties}
        meanwhile = {each.name: each.value for each in decision.init_properties}
        bound = {"CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "MemoryMax"}
        # no more is protected than may be used
        bound |= {name for name in PROTECTIONS if meanwhile.get(name) == meanwhile.get("MemoryMax")}
        assert {name for name in always if always[name] != meanwhile.get(name)} <= bound
        assert meanwhile.keys() <= always.keys()


@some
@given(pods(names=COMPUTE), nodes, configs)
def test_guaranteed_at_the_pod_level_is_so_under_both(pod, node, config):
    requests = decide(pod, node, config).requests
    level = {name: requests.get(name, 0) + 1000 for name in COMPUTE}
    guaranteed = replace(pod, resources=Resources(requests=level, limits=level))
    for rules in Rules:
        assert decide(guaranteed, node, replace(config, rules=rules)).qos is Qos.GUARANTEED


@some
@given(pods(), nodes, configs)
def test_what_the_pod_counts_as_is_the_same_under_both(pod, node, config):
    ours, theirs = (decide(pod, node, replace(config, rules=rules)) for rules in Rules)
    assert (ours.requests, ours.limits) == (theirs.requests, theirs.limits)
    assert ours.is_valid >= theirs.is_valid
