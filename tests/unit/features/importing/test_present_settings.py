"""Requests and limits from settings: what is stated, and that policy gives the settings back."""

import pytest

from tests.cases.tables import cases

pytest.importorskip("hypothesis")

from hypothesis import assume, given
from hypothesis import strategies as st

from podslice.features.importing.policy import (
    PresentSetting,
    PresentSettings,
    PresentUse,
    SettingKind,
    import_container,
    import_pod,
    settings_of,
)
from podslice.model.config import MemoryProtection, WeightMapping
from podslice.model.pod import Container, Pod
from podslice.model.quantity import INT64_MAX, parse_quantity
from podslice.model.resources import Resources
from podslice.model.unit import INFINITY, InspectedUnit, ObservedUnit, UnitName
from podslice.policy.aggregate import aggregate, default_pod
from podslice.policy.decide import decide
from tests.unit.builders import config, node
from tests.unit.properties.strategies import COMPUTE, resources, some

MI = 2**20
UNSET = {
    "CPUWeight": INFINITY,
    "CPUQuotaPerSecUSec": INFINITY,
    "CPUQuotaPeriodUSec": INFINITY,
    "MemoryMin": 0,
    "MemoryLow": 0,
    "MemoryHigh": INFINITY,
    "MemoryMax": INFINITY,
    "TasksMax": 4915,
}
USE = PresentUse(
    name="web", what="web.service", age_sec=100, cpu_usec=4_200_000, memory_bytes=90 * MI
)


def present(further=None, **properties):
    unit = ObservedUnit(name=UnitName("web.service"), properties={**UNSET, **properties})
    return settings_of(InspectedUnit(observed=unit, further=further or {}))


def texts(amounts):
    return {name: amount.text for name, amount in amounts.items()}


@pytest.mark.parametrize(
    ("properties", "requests", "limits"),
    [
        ({}, {}, {}),
        ({"CPUWeight": 50}, {"cpu": "500m"}, {}),
        ({"CPUWeight": 200, "CPUQuotaPerSecUSec": 500_000}, {"cpu": "500m"}, {"cpu": "500m"}),
        ({"CPUQuotaPerSecUSec": 1_500_000}, {}, {"cpu": "1500m"}),
        ({"CPUQuotaPerSecUSec": 125_500}, {}, {"cpu": "130m"}),
        # no protection is not a request of the whole limit
        ({"MemoryMax": 512 * MI}, {"memory": "0"}, {"memory": "512Mi"}),
        ({"MemoryLow": 64 * MI}, {"memory": "64Mi"}, {}),
        ({"MemoryLow": 64 * MI, "MemoryMax": 32 * MI}, {"memory": "32Mi"}, {"memory": "32Mi"}),
        ({"MemoryMin": 64_000_000}, {"memory": "64M"}, {}),
        ({"CPUWeight": 0}, {"cpu": "10m"}, {}),
    ],
)
def test_settings_become_requests_and_limits(properties, requests, limits):
    found = import_container(present(**properties), None, config())
    assert (texts(found.requests), texts(found.limits)) == (requests, limits)


def test_requests_that_no_setting_states_are_the_present_use():
    found = import_container(present(MemoryMax=64 * MI), USE, config())
    assert texts(found.requests) == {"cpu": "50m", "memory": "64Mi"}
    assert found.requests["memory"].source == "the limit; what it uses now: 90Mi"
    assert texts(found.limits) == {"memory": "64Mi"}
    stated = import_container(present(CPUWeight=100, MemoryLow=MI), USE, config())
    assert texts(stated.requests) == {"cpu": "1", "memory": "1Mi"}
    assert [each.source for each in stated.requests.values()] == [
        "CPUWeight=100; by its use it would be 50m",
        "MemoryLow=1Mi; by its use it would be 90Mi",
    ]
    assert not stated.limits


def test_each_amount_names_its_setting():
    found = import_container(
        present(CPUWeight=9, CPUQuotaPerSecUSec=125_000, MemoryLow=MI, MemoryMax=2 * MI),
        None,
        config(),
    )
    assert {name: each.source for name, each in found.requests.items()} == {
        "cpu": "CPUWeight=9",
        "memory": "MemoryLow=1Mi",
    }
    assert {name: each.source for name, each in found.limits.items()} == {
        "cpu": "CPUQuota=12.50%, rounded up to a whole percent",
        "memory": "MemoryMax=2Mi",
    }


@cases
def test_the_memory_request_is_the_property_of_the_configuration(protection, text, source, further):
    by = config(memory_protection=MemoryProtection(protection))
    found = import_container(present(MemoryLow=MI, MemoryMin=2 * MI), None, by)
    assert (found.requests["memory"].text, found.requests["memory"].source) == (text, source)
    assert found.further == (further,)


def test_the_other_protection_becomes_that_of_the_configuration():
    found = import_container(present(MemoryMin=MI), None, config())
    assert found.requests["memory"].source == (
        "MemoryMin=1Mi; memory-protection sets MemoryLow for it"
    )


def test_settings_without_a_field_are_listed():
    found = import_container(
        present(
            {"IOWeight": "50", "IODeviceWeight": ""},
            MemoryHigh=MI,
            CPUQuotaPeriodUSec=10_000,
            CPUWeight=0,
            MemoryLow=INFINITY,
        ),
        None,
        config(),
    )
    assert found.requests["cpu"].source == (
        "CPUWeight=idle, for which there is no request: the least weight"
    )
    assert sorted(found.further) == [
        "CPUQuotaPeriodSec=10000us",
        "IODeviceWeight",
        "IOWeight=50",
        "MemoryHigh=1Mi",
        "MemoryLow=infinity",
    ]


@cases
def test_a_pod_s_request_is_at_least_the_sum_of_its_containers(of_slice, weights, requests, of_pod):
    containers = [(present(CPUWeight=weight), None) for weight in weights]
    level, found = import_pod(present(**of_slice), containers, config())
    assert [texts(each.requests) for each in found] == [{"cpu": each} for each in requests]
    assert [each.requests["cpu"].source for each in found] == [
        f"CPUWeight={weight}" for weight in weights
    ]
    assert (texts(level.requests), level.further) == (of_pod, ())


def test_requests_that_do_not_fit_are_the_roundest():
    containers = [(present(CPUWeight=9), None)] * 2
    level, found = import_pod(present(CPUWeight=9), containers, config())
    assert [texts(each.requests) for each in found] == [{"cpu": "100m"}] * 2
    assert (level.requests, level.further) == ({}, ("CPUWeight=9",))


def test_shares_of_a_runtime_become_a_request():
    def of_shares(value):
        setting = PresentSetting(value=value, text=f"--cpu-shares={value}")
        settings = PresentSettings(taken={SettingKind.CPU_SHARES: setting})
        found = import_container(settings, None, config()).requests["cpu"]
        return found.text, found.source

    assert of_shares(512) == ("500m", "--cpu-shares=512")
    assert of_shares(42) == ("42m", "--cpu-shares=42, rounded up")


def test_extreme_settings_are_taken_as_they_are():
    assert present(MemoryMax=INT64_MAX).taken
    assert not present(MemoryMax=INT64_MAX + 1).taken
    least = import_container(present(CPUWeight=1), None, config())
    assert least.requests["cpu"].source == "CPUWeight=1"
    exact = import_container(present(CPUQuotaPerSecUSec=1_500_000), None, config())
    assert exact.limits["cpu"].source == "CPUQuota=150%"


def test_requests_above_the_pod_s_limit_are_scaled_down():
    containers = [(present(CPUWeight=weight, MemoryLow=96 * MI), None) for weight in (100, 300)]
    containers.append((present(), None))
    slice_ = present(CPUQuotaPerSecUSec=2_000_000, MemoryMax=128 * MI, CPUWeight=100)
    level, found = import_pod(slice_, containers, config())
    assert [texts(each.requests) for each in found[:2]] == [
        {"cpu": "500m", "memory": "64Mi"},
        {"cpu": "1500m", "memory": "64Mi"},
    ]
    assert not found[2].requests
    assert found[0].requests["cpu"].source == "CPUWeight=100: 1, scaled down to the pod's limit"
    assert texts(level.limits) == {"cpu": "2", "memory": "128Mi"}
    # the weight of the slice is less than that of the sum
    assert (level.requests, level.further) == ({}, ("CPUWeight=100",))


def test_a_pod_without_protected_memory_states_a_request_of_0():
    level, _ = import_pod(present(MemoryMax=MI), [(present(), None)], config())
    assert (texts(level.requests), texts(level.limits)) == ({"memory": "0"}, {"memory": "1Mi"})
    # otherwise the sum of its containers applies
    with_sum, _ = import_pod(present(MemoryMax=MI), [(present(MemoryLow=MI), None)], config())
    assert with_sum.requests == {}


def test_a_pod_s_request_below_the_sum_is_not_stated():
    containers = [(present(CPUWeight=100, MemoryLow=MI), None)] * 2
    level, found = import_pod(present(CPUWeight=50, MemoryLow=MI), containers, config())
    assert level.requests == {}
    assert sorted(level.further) == ["CPUWeight=50", "MemoryLow=1Mi"]
    assert found[0].requests["memory"].text == "1Mi"


def is_whole(stated):
    """Return whether the memory is in whole bytes, as units have it."""
    found = (amounts.get("memory", 0) for amounts in (stated.requests, stated.limits))
    return not any(amount % 1000 for amount in found)


LEVELS = resources(COMPUTE).filter(is_whole)


@st.composite
def pods(draw):
    """Pods with several containers, with or without a pod level that covers them."""
    stated = draw(st.lists(LEVELS, min_size=1, max_size=3))
    containers = tuple(
        Container(name=f"c{number}", resources=each, where=f"spec.containers[{number}]")
        for number, each in enumerate(stated)
    )
    level = draw(LEVELS) if draw(st.booleans()) else Resources()
    return Pod(name="web", uid="web", containers=containers, resources=level)


CONFIGS = st.builds(
    config,
    cpu_weight_mapping=st.sampled_from(WeightMapping),
    memory_protection=st.sampled_from([MemoryProtection.LOW, MemoryProtection.MIN]),
)


def amounts_of(found):
    return Resources(
        requests={name: parse_quantity(each.text).milli for name, each in found.requests.items()},
        limits={name: parse_quantity(each.text).milli for name, each in found.limits.items()},
    )


def values(properties):
    return {each.name: each.value for each in properties}


@some
@given(pod=pods(), by=CONFIGS)
def test_policy_gives_the_settings_back(pod, by):
    """A pod that is imported from its own units has units with the same properties.

    Unless its request is less than its containers', or more than their limits: Kubernetes refuses
    the former, and the latter is not reached.
    """
    before = decide(pod, node(), by)
    sums = aggregate(default_pod(pod)).requests
    assume(before.is_valid)
    assume(all(amount >= sums.get(name, 0) for name, amount in before.requests.items()))
    quota = values(before.properties).get("CPUQuotaPerSecUSec", INFINITY)
    assume(before.requests.get("cpu", 0) * 1000 <= quota)
    level, found = import_pod(
        present(**values(before.properties)),
        [(present(**values(each.properties)), None) for each in before.containers],
        by,
    )
    again = Pod(
        name="web",
        uid="web",
        resources=amounts_of(level),
        containers=tuple(
            Container(name=each.name, resources=amounts_of(imported), where=each.where)
            for each, imported in zip(pod.containers, found, strict=True)
        ),
    )
    after = decide(again, node(), by)
    assert values(after.properties) == values(before.properties)
    for one, other in zip(before.containers, after.containers, strict=True):
        assert values(other.properties) == values(one.properties)


@some
@given(stated=LEVELS, by=CONFIGS)
def test_policy_gives_the_settings_of_a_service_back(stated, by):
    """A pod of one container, from a service alone."""
    container = Container(name="main", resources=stated, where="spec.containers[0]")
    before = decide(Pod(name="web", uid="web", containers=(container,)), node(), by)
    properties = values(before.containers[0].properties)
    found = amounts_of(import_container(present(**properties), None, by))
    again = Container(name="main", resources=found, where=container.where)
    after = decide(Pod(name="web", uid="web", containers=(again,)), node(), by)
    assert values(after.containers[0].properties) == properties
