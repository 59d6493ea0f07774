"""What a pod claims of exclusive CPUs, and the stage that assigns them, with a small one."""

from dataclasses import replace

import pytest

from podslice.model.config import Config, CpuManagerPolicy
from podslice.model.desired import Refusal
from podslice.model.pod import Qos
from podslice.model.properties import ALLOWED_CPUS, ALLOWED_MEMORY_NODES, CPU_QUOTA
from podslice.model.resources import Resources
from podslice.model.unit import PropertyValue, UnitName, slice_unit
from podslice.policy.decide import decide, units_of
from podslice.policy.desire import desire
from podslice.policy.exclusive import (
    CpuAssignment,
    CpuClaim,
    claim_cpus,
    exclusive,
    with_lasting_cpus,
    without_own_cpus,
)
from tests.unit.policy.desired_worlds import BESTEFFORT, GI, NODE
from tests.unit.policy.worlds import container, pod

STATIC = Config(eviction_hard={}, cpu_manager_policy=CpuManagerPolicy.STATIC)
TWO = Resources(limits={"cpu": 2000, "memory": GI})
HALF = Resources(limits={"cpu": 500, "memory": GI})
LEVEL = Resources(requests={"cpu": 2000, "memory": GI}, limits={"cpu": 2000, "memory": GI})
A, B = pod(container(TWO), name="a"), pod(container(TWO), name="b")


@pytest.mark.parametrize(
    ("claiming", "qos", "claim"),
    [
        (
            pod(container(TWO), container(HALF, 1)),
            Qos.GUARANTEED,
            CpuClaim(containers={"container0": 2}),
        ),
        (pod(container(TWO)), Qos.BURSTABLE, CpuClaim()),
        (pod(container(HALF), resources=LEVEL), Qos.GUARANTEED, CpuClaim(pod=2)),
        (
            pod(container(Resources(requests={"cpu": 1000}, limits={"cpu": 2000}))),
            Qos.GUARANTEED,
            CpuClaim(),
        ),
        (pod(container(BESTEFFORT)), Qos.GUARANTEED, CpuClaim()),
        (pod(container(Resources(limits={"cpu": 2001}))), Qos.GUARANTEED, CpuClaim()),
    ],
)
def test_whole_cpus_of_guaranteed_pods_are_claimed(claiming, qos, claim):
    assert claim_cpus(claiming, qos) == claim
    assert exclusive(claiming, qos, STATIC) == claim
    assert exclusive(claiming, qos, without_own_cpus(STATIC)) == CpuClaim()


def test_a_claim_is_true_where_it_has_cpus():
    assert [
        bool(each) for each in (CpuClaim(), CpuClaim(pod=1), CpuClaim(containers={"a": 1}))
    ] == [False, True, True]


def quotas(config, *containers):
    units = decide(pod(*containers, name="a"), NODE, config).units
    return [unit.values.get(CPU_QUOTA) for unit in units]


def test_no_quota_throttles_a_claim():
    assert quotas(STATIC, container(TWO), container(HALF, 1)) == [None, None, 500_000]
    assert quotas(without_own_cpus(STATIC), container(TWO)) == [2_000_000, 2_000_000]
    assert quotas(STATIC, container(HALF)) == [500_000, 500_000]


def cpus(values, *, nodes="0"):
    return (
        PropertyValue(name=ALLOWED_CPUS, value=values, why="stage"),
        PropertyValue(name=ALLOWED_MEMORY_NODES, value=nodes, why="stage"),
    )


def stage(in_force, accepted, node, config, now):
    """Refuse `b`; the other pods have CPU 1, but their second containers CPUs 1 and 2."""
    assert (node, config) == (NODE, STATIC)

    def place(decision):
        containers = tuple(
            replace(each, properties=(*each.properties, *cpus("1-2" if index else "1")))
            for index, each in enumerate(decision.containers)
        )
        placed = replace(decision, containers=containers)
        return replace(placed, units=tuple(units_of(placed)))

    return CpuAssignment(
        own={pod.pod.key: frozenset({1}) for pod in (*in_force, *accepted) if pod.pod.name != "b"},
        available=frozenset({3}),
        refused=tuple(Refusal(pod.pod.key, "No", "no") for pod in accepted if pod.pod.name == "b"),
        lacking=(Refusal("default/c", "No", str(dict(now))),),
        place=place,
        limit=lambda units: (slice_unit(UnitName("host.slice"), "first"), *units),
    )


def test_the_stage_is_between_the_decisions_and_the_units():
    decisions = [decide(each, NODE, STATIC) for each in (A, B)]
    desired = desire(decisions, NODE, STATIC, stage=stage, cpus={"a": "1"})
    assert desired.own_cpus == {"default/a": {1}}
    assert desired.available_cpus == {3}
    assert desired.refused == (Refusal("default/b", "No", "no"),)
    assert desired.lacking_cpus == (Refusal("default/c", "No", "{'a': '1'}"),)
    assert [each.pod.name for each in desired.pods] == ["a"]
    assert desired.units[0].name == "host.slice"
    assert desired.units[-1].values[ALLOWED_CPUS] == "1"
    assert "default/b" not in {unit.pod for unit in desired.units}
    assert desired.requested["cpu"] == 2000


def test_a_pod_in_force_stays_where_its_candidate_is_refused():
    other = replace(B, priority=7)
    desired = desire([decide(other, NODE, STATIC)], NODE, STATIC, current=[B], stage=stage)
    assert [each.pod.priority for each in desired.pods] == [0]
    assert [each.pod for each in desired.refused] == ["default/b"]
    assert desired.lacking_cpus == (Refusal("default/c", "No", "{}"),)


def test_without_a_stage_nothing_is_exclusive():
    desired = desire([decide(A, NODE, STATIC)], NODE, STATIC, cpus={"a": "1"})
    assert (desired.own_cpus, desired.available_cpus, desired.lacking_cpus) == ({}, None, ())
    assert not [unit for unit in desired.units if ALLOWED_CPUS in unit.values]


def test_files_of_containers_have_the_exclusive_cpus():
    mixed = pod(container(TWO), container(HALF, 1), name="a")
    changed = pod(container(TWO), name="c")
    decisions = [decide(each, NODE, STATIC) for each in (mixed, replace(changed, priority=1), B)]
    desired = desire(
        [decide(each, NODE, STATIC) for each in (mixed, changed)], NODE, STATIC, stage=stage
    )
    found = list(with_lasting_cpus(decisions, desired))
    stated = [{each.name: each.value for each in one.properties} for one in found[0].containers]
    assert [each.get(ALLOWED_CPUS) for each in stated] == ["1", None]
    assert [each.get(ALLOWED_MEMORY_NODES) for each in stated] == ["0", None]
    assert "MemoryMax" in stated[1]
    assert found[1:] == decisions[1:]
