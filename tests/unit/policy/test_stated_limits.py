"""Reasons of limits that a manifest or the node states, and where there are none."""

import pytest

from podslice.model.config import Config
from podslice.model.pod import Qos
from podslice.model.resources import Resources
from podslice.model.unit import PropertyValue
from podslice.policy.unit_properties import describe_stall, tasks_limit, why_no_swap
from tests.cases.tables import cases
from tests.unit.policy.worlds import container, pod

PERIOD = {"CPUQuotaPeriodUSec": 500_000}
QUOTA = PropertyValue(name="CPUQuotaPerSecUSec", value=200_000)
WEIGHT = PropertyValue(name="CPUWeight", value=1)


@cases
def test_the_limit_of_tasks_names_what_sets_it(own, most, why):
    each = pod(container(Resources()), resources=Resources(limits=own))
    (limit,) = tasks_limit(each, Config(pod_max_pids=most))
    assert (limit.value, limit.why) == (200, why)


def test_only_a_stated_period_of_a_quota_stalls():
    capacity = {"cpu": 2000}
    assert describe_stall((QUOTA, WEIGHT), {}, capacity) == ""
    assert describe_stall((WEIGHT,), PERIOD, capacity) == ""
    assert describe_stall((WEIGHT, QUOTA), PERIOD, capacity).endswith("for up to 450 ms")


@pytest.mark.parametrize(("cpus", "stall"), [("1", 400), ("0,3", 450), ("0-3", 450)])
def test_a_pod_on_few_cpus_uses_its_quota_more_slowly(cpus, stall):
    stated = {**PERIOD, "AllowedCPUs": cpus}
    found = describe_stall((WEIGHT, QUOTA), stated, {"cpu": 2000})
    assert found.endswith(f"for up to {stall} ms")


def test_a_container_with_a_share_of_the_swap_has_no_reason_against_it():
    each = pod(container(Resources(requests={"memory": 1000})))
    assert why_no_swap(each, each.containers[0], Qos.BURSTABLE, 1) == ""
