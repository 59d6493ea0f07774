"""The desired state where pods have CPUs of their own."""

from dataclasses import replace

import pytest

from podslice.features.cpus.manager import assign, cpu_manager
from podslice.model.config import (
    Config,
    CpuManagerOption,
    CpuManagerPolicy,
    CpusetPartition,
    Enforce,
    ExclusiveFor,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from podslice.model.naming import Tree
from podslice.model.node import Node, regular_topology
from podslice.model.pod import ContainerKind, InitProgress, Qos
from podslice.model.properties import ALLOWED_CPUS, PARTITION
from podslice.model.resources import Resources
from podslice.policy.allocatable import validate_node
from podslice.policy.decide import decide
from podslice.policy.desire import desire, without_reserved
from podslice.policy.exclusive import with_lasting_cpus
from tests.unit.policy.desired_worlds import BESTEFFORT, BURSTABLE, GI
from tests.unit.policy.worlds import container, pod

OWN = Resources(limits={"cpu": 2000, "memory": GI})
TOPOLOGY = regular_topology(sockets=1, numa=1, cores=4, threads=2)
NODE = Node(capacity={"cpu": 8000, "memory": 32 * GI}, cpus=frozenset(range(8)), topology=TOPOLOGY)
STATIC = Config(
    eviction_hard={}, cpu_manager_policy=CpuManagerPolicy.STATIC, reserved_cpus=frozenset({0, 4})
)


def wanted(*pods, node=NODE, config=STATIC, **more):
    decisions = [decide(each, node, config) for each in pods]
    return desire(decisions, node, config, stage=assign, **more)


def cpus(desired):
    """The CPUs of units, by name."""
    found = {unit.name: unit.values.get(ALLOWED_CPUS) for unit in desired.units}
    return {name: each for name, each in found.items() if each is not None}


A, B = pod(container(OWN), name="a"), pod(container(BURSTABLE), name="b")


def test_tiers_and_pods_have_their_cpus():
    desired = wanted(A, B)
    shared = "0,2-4,6-7"
    assert cpus(desired) == {
        "kubepods-burstable.slice": shared,
        "kubepods-besteffort.slice": shared,
        "kubepods-poda.slice": "1,5",
        "podslice-poda-container0.scope": "1,5",
    }
    assert desired.refused == desired.lacking_cpus == ()


HOST = replace(STATIC, exclusive_for=ExclusiveFor.HOST)
HOST_SLICES = ("system.slice", "user.slice")


def of_host(desired):
    """The units of the host, which podslice does not own."""
    return {unit.name: unit for unit in desired.units if not unit.owned}


def test_the_slices_of_the_host_have_the_cpus_of_no_pod():
    found = of_host(wanted(A, B, config=HOST))
    assert list(found) == list(HOST_SLICES)
    for name, unit in found.items():
        (stated,) = unit.properties
        assert (stated.name, stated.value) == (ALLOWED_CPUS, "0,2-4,6-7")
        assert stated.why == "exclusive-for host: the CPUs that no pod has for itself"
        assert (unit.parent, unit.control_group) == ("-.slice", f"/{name}")
    strict = replace(HOST, cpu_manager_policy_options=frozenset({CpuManagerOption.STRICT}))
    desired = wanted(A, B, config=strict)
    assert cpus(desired)["kubepods-burstable.slice"] == "2-3,6-7"
    assert {cpus(desired)[name] for name in HOST_SLICES} == {"0,2-4,6-7"}


ISOLATED = replace(
    STATIC,
    cpu_manager_policy_options=frozenset({CpuManagerOption.STRICT}),
    cpuset_partition=CpusetPartition.ISOLATED,
)


def partitions(desired):
    """The CPUs and partitions of units, where they are one."""
    found = {unit.name: unit.values for unit in desired.units}
    return {
        name: (values[ALLOWED_CPUS], values[PARTITION])
        for name, values in found.items()
        if PARTITION in values
    }


def test_the_cpus_of_whole_pods_are_isolated_in_a_partition_of_all_pods():
    level = Resources(requests={"cpu": 2000, "memory": GI}, limits={"cpu": 2000, "memory": GI})
    whole = pod(container(BESTEFFORT), name="w", resources=level)
    desired = wanted(A, B, whole, config=ISOLATED)
    assert partitions(desired) == {
        "kubepods.slice": ("1-3,5-7", "root"),
        "kubepods-poda.slice": ("1,5", "isolated"),
        "kubepods-podw.slice": ("2,6", "isolated"),
    }
    assert cpus(desired)["kubepods-burstable.slice"] == "3,7"
    root = next(unit for unit in desired.units if unit.name == "kubepods.slice")
    assert {each.why for each in root.properties if each.name in (ALLOWED_CPUS, PARTITION)} == {
        "cpuset-partition isolated: the CPUs that are not reserved, which the host leaves",
        "cpuset-partition isolated",
    }
    assert partitions(wanted(A, B, config=STATIC)) == {}
    assert partitions(wanted(B, config=ISOLATED)) == {}


def test_a_pod_that_also_shares_cpus_is_not_isolated():
    mixed = pod(
        container(OWN), container(Resources(limits={"cpu": 500, "memory": GI}), 1), name="m"
    )
    assert partitions(wanted(mixed, config=ISOLATED)) == {"kubepods.slice": ("1-3,5-7", "root")}


@pytest.mark.parametrize("config", [STATIC, without_reserved(HOST)])
def test_the_slices_of_the_host_have_all_cpus(config):
    assert of_host(wanted(A, B, config=config)) == {}


def test_the_slices_of_the_host_have_all_cpus_without_exclusive_ones():
    assert of_host(wanted(B, config=HOST)) == {}


def test_a_reserved_slice_keeps_its_other_values():
    config = replace(
        HOST,
        reserved_cpus=frozenset(),
        system_reserved={"cpu": 1000, "memory": GI},
        system_reserved_cgroup="/system.slice",
        kube_reserved={"cpu": 1000},
        kube_reserved_cgroup="/podruntime.slice",
        enforce_node_allocatable=frozenset({Enforce.SYSTEM_RESERVED, Enforce.KUBE_RESERVED}),
    )
    found = {name: unit.values for name, unit in of_host(wanted(A, config=config)).items()}
    assert found == {
        "podruntime.slice": {"CPUWeight": 100},
        "system.slice": {ALLOWED_CPUS: "0,2-4,6-7", "CPUWeight": 100, "MemoryMax": 2**30},
        "user.slice": {ALLOWED_CPUS: "0,2-4,6-7"},
    }


def test_the_reasons_name_the_slices_of_the_host():
    level = Resources(requests={"cpu": 2000, "memory": GI}, limits={"cpu": 2000, "memory": GI})
    whole = pod(container(BESTEFFORT), name="w", resources=level)
    whys = [
        each.why
        for decided in wanted(A, whole, config=HOST).pods
        for unit in decided.units
        for each in unit.properties
        if each.name == ALLOWED_CPUS
    ]
    assert whys == [
        "the pod's own, without system.slice and user.slice: all containers request whole CPUs",
        "its own, without system.slice and user.slice: it requests whole CPUs",
        "the pod's own, without system.slice and user.slice: its level requests whole CPUs",
    ]
    whys = [each.why for each in wanted(A).pods[0].properties if each.name == ALLOWED_CPUS]
    assert whys == ["the pod's own: all containers request whole CPUs"]


def test_no_quota_throttles_what_has_cpus_of_its_own():
    values = {unit.name: unit.values for unit in wanted(A, B).units}
    assert "CPUQuotaPerSecUSec" not in values["kubepods-poda.slice"]
    assert "CPUQuotaPerSecUSec" not in values["podslice-poda-container0.scope"]
    both = pod(container(OWN), container(Resources(limits={"cpu": 500, "memory": GI}), 1), name="c")
    values = {unit.name: unit.values for unit in wanted(both).units}
    assert "CPUQuotaPerSecUSec" not in values["kubepods-podc.slice"]
    assert values["podslice-podc-container1.scope"]["CPUQuotaPerSecUSec"] == 500_000


def test_the_init_phase_has_the_same_cpus():
    level = Resources(requests={"cpu": 2000, "memory": GI}, limits={"cpu": 2000, "memory": GI})
    init = container(BESTEFFORT, 1, ContainerKind.INIT)
    initializing = wanted(pod(container(BESTEFFORT), init, name="a", resources=level))
    assert initializing.initializing == {"default/a"}
    assert cpus(initializing)["kubepods-poda.slice"] == "1,5"
    over = wanted(
        *(each.pod for each in initializing.pods), progress={"a": InitProgress(over=True)}
    )
    assert cpus(over) == cpus(initializing)


def test_cpus_stay_where_they_are():
    now = {"kubepods-poda.slice": "3,7"}
    before = wanted(A, B, cpus=now)
    assert cpus(before)["kubepods-poda.slice"] == "3,7"
    after = wanted(current=[A, B], known=before.pods, cpus=now)
    assert after.pods == before.pods
    assert all(now is then for now, then in zip(after.pods, before.pods, strict=True))


def test_a_pod_beside_shared_cpus_keeps_its_own():
    other = container(Resources(limits={"cpu": 500, "memory": GI}), 1)
    shared = "0-2,4-6"
    now = {"kubepods-poda.slice": "0-7", "kubepods-burstable.slice": shared}
    found = cpus(wanted(pod(container(OWN), other, name="a"), cpus=now))
    assert found["podslice-poda-container0.scope"] == "3,7"
    assert found["kubepods-burstable.slice"] == shared


def test_many_pods_are_assigned_in_steps():
    many = [pod(container(BESTEFFORT), name=f"pod-{number}") for number in range(101)]
    desired = wanted(A, *many)
    assert cpus(desired)["kubepods-poda.slice"] == "1,5"
    assert len(desired.pods) == 102


def test_helpers_share():
    helped = pod(container(OWN), name="a", overhead={"cpu": 10})
    found = cpus(wanted(helped))
    assert found["kubepods-poda.slice"] == "0-7"
    assert found["podslice-poda-overhead.scope"] == "0,2-4,6-7"


def test_memory_is_on_the_numa_nodes_of_the_cpus():
    numa = regular_topology(sockets=2, numa=2, cores=4, threads=1)
    node = replace(NODE, topology=numa)
    config = replace(STATIC, topology_manager_policy=TopologyManagerPolicy.SINGLE_NUMA_NODE)
    values = {unit.name: unit.values for unit in wanted(A, B, node=node, config=config).units}
    for unit in ("kubepods-poda.slice", "podslice-poda-container0.scope"):
        assert (values[unit][ALLOWED_CPUS], values[unit]["AllowedMemoryNodes"]) == ("1-2", "0")
    assert "AllowedMemoryNodes" not in values["kubepods-burstable.slice"]
    # the policy ends, and the pod keeps its CPUs
    before = wanted(A, B, node=node, config=config)
    after = wanted(
        current=[A, B], known=before.pods, node=node, cpus={"kubepods-poda.slice": "1-2"}
    )
    assert all("AllowedMemoryNodes" not in unit.values for unit in after.units)
    assert cpus(after) == cpus(before)


def test_files_have_the_cpus_that_last():
    one = container(Resources(limits={"cpu": 1000, "memory": GI}))
    half = container(Resources(limits={"cpu": 500, "memory": GI}), 1)
    mixed, other = pod(one, half, name="a"), pod(container(OWN), name="c")
    level = Resources(requests={"cpu": 2000, "memory": GI}, limits={"cpu": 2000, "memory": GI})
    whole = pod(one, half, name="w", resources=level)
    changed = replace(other, priority=1)
    decisions = [decide(each, NODE, STATIC) for each in (mixed, whole, changed, B)]
    desired = wanted(mixed, whole, other)
    assert cpus(desired)["podslice-poda-container1.scope"] == "0,4-5"
    found = list(with_lasting_cpus(decisions, desired))
    assert {
        each.scope: value.value
        for decided in found
        for each in decided.containers
        for value in each.properties
        if value.name == ALLOWED_CPUS
    } == {
        "podslice-poda-container0.scope": "1",
        "podslice-podw-container0.scope": "3",
        "podslice-podw-container1.scope": "7",
    }
    assert found[2:] == decisions[2:]


def test_a_pod_without_enough_cpus_is_refused_and_an_applied_one_shares():
    large = pod(container(Resources(limits={"cpu": 8000, "memory": GI})), name="a")
    config = replace(STATIC, admission=False)
    refused = wanted(large, config=config)
    assert [(each.pod, each.reason) for each in refused.refused] == [("default/a", "NotEnoughCPUs")]
    assert refused.pods == ()
    applied = wanted(config=config, current=[large])
    assert [each.pod for each in applied.lacking_cpus] == ["default/a"]
    assert cpus(applied)["kubepods-poda.slice"] == "0-7"


def quotas(desired):
    """The CPU quotas of the units of pods, in CPUs."""
    values = {unit.name: unit.values.get("CPUQuotaPerSecUSec") for unit in desired.units}
    return {name: each / 1e6 for name, each in values.items() if each is not None}


def test_a_pod_that_shares_for_lack_of_cpus_has_its_quota_until_it_has_them():
    """Decisions are used again, also those that were made without enough CPUs."""
    lacking = replace(STATIC, reserved_cpus=frozenset(range(7)))
    before = wanted(A)
    after = wanted(config=lacking, current=[A], known=before.pods)
    assert [each.pod for each in after.lacking_cpus] == ["default/a"]
    assert quotas(before) == {}
    assert quotas(after) == {"kubepods-poda.slice": 2, "podslice-poda-container0.scope": 2}
    same = wanted(config=lacking, current=[A], known=after.pods)
    assert same.pods[0] is after.pods[0]
    again = wanted(current=[A], known=after.pods)
    assert (quotas(again), again.lacking_cpus) == ({}, ())
    assert again.pods == before.pods


@pytest.mark.parametrize(
    ("node", "config"),
    [(NODE, Config(eviction_hard={})), (replace(NODE, topology=None), STATIC)],
    ids=["without the policy", "without known CPUs"],
)
def test_there_are_no_pools(node, config):
    assert cpus(wanted(A, B, node=node, config=config)) == {}


@pytest.mark.parametrize(
    ("fields", "reserved"),
    [
        ({}, {0, 4}),
        ({"reserved_cpus": frozenset(), "kube_reserved": {"cpu": 500}}, {0}),
        (
            {
                "reserved_cpus": frozenset(),
                "kube_reserved": {"cpu": 500},
                "system_reserved": {"cpu": 1000},
            },
            {0, 4},
        ),
        ({"reserved_cpus": frozenset(), "kube_reserved": {"cpu": 99_000}}, set(range(8))),
        ({"reserved_cpus": frozenset(), "kube_reserved": {"cpu": 1001}}, {0, 4}),
        ({"reserved_cpus": frozenset()}, set()),
        ({"reserved_cpus": frozenset({1}), "capacity": {"cpu": 1500}}, {1}),
    ],
)
def test_reserved_cpus(fields, reserved):
    manager = cpu_manager(NODE, replace(STATIC, **fields))
    assert manager.reserved == reserved


@pytest.mark.parametrize(("milli", "cores"), [(0, 1), (1000, 1), (1001, 2), (1500, 2)])
def test_a_configured_capacity_has_cores_of_one_thread(milli, cores):
    manager = cpu_manager(Node(capacity={}), replace(STATIC, capacity={"cpu": milli}))
    assert manager.topology == regular_topology(sockets=1, numa=1, cores=cores, threads=1)


@pytest.mark.parametrize("root", ["/", "/other"])
def test_a_pod_keeps_its_cpus_below_any_root(root):
    """Its slice has the shared CPUs, too, for a container without CPUs of its own."""
    config = replace(STATIC, cgroup_root=root)
    part = Resources(limits={"cpu": 500, "memory": GI})
    decision = decide(
        pod(container(OWN), replace(container(part), name="side"), name="a"), NODE, config
    )
    now = {
        decision.slice: "0-2,4-7",
        decision.containers[0].scope: "2,6",
        Tree(cgroup_root=root).tier(Qos.BURSTABLE): "0-1,4-5,7",
    }
    found = assign([decision], [], NODE, config, now)
    assert found.own == {"default/a": {2, 6}}


def test_the_cpus_of_another_machine():
    other = regular_topology(sockets=2, numa=2, cores=2, threads=1)
    config = replace(STATIC, cpu_topology=other, capacity={"cpu": 4000})
    assert cpu_manager(NODE, config).topology is other
    config = replace(config, reserved_cpus=frozenset({4}))
    assert [each.where for each in validate_node(NODE, config)] == ["reserved-cpus"]


def test_options_of_the_policy():
    manager = cpu_manager(NODE, STATIC)
    chosen = manager.options
    given = (chosen.full_cores, chosen.distribute_numa, chosen.align_uncore, manager.is_strict)
    assert given == (False, False, False, False)
    assert (manager.alignment, manager.aligns_pods) == (TopologyManagerPolicy.NONE, False)
    config = replace(
        STATIC,
        cpu_manager_policy_options=frozenset(CpuManagerOption),
        topology_manager_policy=TopologyManagerPolicy.RESTRICTED,
        topology_manager_scope=TopologyManagerScope.POD,
    )
    manager = cpu_manager(NODE, config)
    chosen = manager.options
    given = (chosen.full_cores, chosen.distribute_numa, chosen.align_uncore, manager.is_strict)
    assert given == (True, True, True, True)
    assert (manager.alignment, manager.aligns_pods) == (TopologyManagerPolicy.RESTRICTED, True)


def test_the_class_decides():
    assert wanted(A).pods[0].qos is Qos.GUARANTEED
    assert cpus(wanted(pod(container(Resources(requests={"cpu": 2000})), name="d"))) == {
        "kubepods-burstable.slice": "0-7",
        "kubepods-besteffort.slice": "0-7",
    }
