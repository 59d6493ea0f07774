"""What the node and the configuration of exclusive CPUs must have."""

from dataclasses import replace

import pytest

from podslice.model.config import Config, CpuManagerPolicy, TopologyManagerPolicy
from podslice.model.node import Node, regular_topology
from podslice.model.properties import ALLOWED_CPUS
from podslice.policy.allocatable import allocate, check_host, validate_node
from podslice.policy.decide import decide
from tests.unit.policy.desired_worlds import BURSTABLE, GI
from tests.unit.policy.worlds import container, pod

TOPOLOGY = regular_topology(sockets=1, numa=1, cores=4, threads=2)
NODE = Node(capacity={"cpu": 8000, "memory": 32 * GI}, cpus=frozenset(range(8)), topology=TOPOLOGY)
STATIC = Config(
    eviction_hard={}, cpu_manager_policy=CpuManagerPolicy.STATIC, reserved_cpus=frozenset({0, 4})
)


def test_reserved_cpus_count_as_reserved():
    assert allocate(NODE, STATIC).system_reserved == {"cpu": 2000}
    assert allocate(NODE, STATIC).allocatable["cpu"] == 6000


def test_problems_of_the_node():
    config = replace(STATIC, reserved_cpus=frozenset({7, 8}))
    assert [str(each) for each in validate_node(NODE, config)] == [
        "reserved-cpus: the node does not have 8; its CPUs are 0-7"
    ]
    without = replace(NODE, controllers=frozenset({"cpu"}))
    assert [each.where for each in validate_node(without, STATIC)] == ["cpu-manager-policy"]
    assert validate_node(without, Config(eviction_hard={})) == []
    other = replace(STATIC, cpu_topology=TOPOLOGY, capacity={"cpu": 8000})
    assert validate_node(without, other) == []
    assert validate_node(without, replace(STATIC, capacity={"cpu": 8000})) == []
    assert validate_node(replace(NODE, controllers=frozenset({"cpuset"})), STATIC) == []


NO_CPUSET = replace(NODE, controllers=frozenset({"cpu"}))
ANOTHER = "cpu-topology: it is for plans of another machine"
NO_CONTROLLER = "cpu-manager-policy: the cpuset controller is not available"
MISSING = "capacity: cpu-manager-policy static would assign CPUs that this host does not have: 8-9"


@pytest.mark.parametrize(
    ("node", "fields", "expected"),
    [
        (NODE, {}, []),
        (NODE, {"capacity": {"cpu": 4000}}, []),
        (NODE, {"cpu_topology": TOPOLOGY, "capacity": {"cpu": 8000}}, [ANOTHER]),
        (NODE, {"capacity": {"cpu": 9500}}, [MISSING]),
        (replace(NODE, cpus=None), {"capacity": {"cpu": 9500}}, []),
        (NO_CPUSET, {"capacity": {"cpu": 10_000}}, [NO_CONTROLLER, MISSING]),
        (NO_CPUSET, {"capacity": {"cpu": 10_000}, "cpu_manager_policy": CpuManagerPolicy.NONE}, []),
    ],
)
def test_what_only_a_plan_for_another_machine_may_have(node, fields, expected):
    found = [str(each).partition(";")[0] for each in check_host(node, replace(STATIC, **fields))]
    assert found == expected


@pytest.mark.parametrize("nodes", [8, 9])
@pytest.mark.parametrize("is_stated", [False, True])
def test_a_topology_manager_has_at_most_8_numa_nodes(nodes, is_stated):
    large = regular_topology(sockets=1, numa=nodes, cores=nodes, threads=1)
    node = replace(NODE, topology=None if is_stated else large)
    config = replace(
        STATIC,
        cpu_topology=large if is_stated else None,
        topology_manager_policy=TopologyManagerPolicy.BEST_EFFORT,
    )
    expected = [f"topology-manager-policy: the node has {nodes} NUMA nodes, more than 8"] * (
        nodes > 8
    )
    assert [str(each).partition(";")[0] for each in validate_node(node, config)] == expected
    assert validate_node(replace(NODE, topology=large), STATIC) == []
    assert validate_node(replace(NODE, topology=None), replace(config, cpu_topology=None)) == []


def test_annotated_cpus_are_refused():
    stated = pod(container(BURSTABLE), name="b", properties={ALLOWED_CPUS: "1"})
    (problem,) = decide(stated, NODE, STATIC).problems
    assert problem.message == "cpu-manager-policy static assigns the CPUs of pods"
    inside = replace(container(BURSTABLE), properties={ALLOWED_CPUS: "1"})
    (problem,) = decide(pod(inside, name="b"), NODE, STATIC).problems
    assert "[podslice.io/allowed-cpus.container0]" in problem.where
    assert decide(stated, NODE, Config(eviction_hard={})).problems == ()
