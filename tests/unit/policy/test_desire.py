"""The desired state: the same for every order of pods, and consistent from leaf to root."""

import random

import pytest

from podslice.model.config import Config, Enforce, WeightMapping
from podslice.model.naming import Tree
from podslice.model.pod import Qos
from podslice.model.properties import PROPERTIES
from podslice.model.unit import UnitKind, control_group_of, is_unit_name, parent_slice
from podslice.policy.unit_properties import protection_property
from tests.unit.policy.desired_worlds import CONFIGS, GI, PLAIN, desire_all, pods


@pytest.mark.parametrize("config", CONFIGS)
def test_the_order_of_pods_does_not_matter(config):
    expected = desire_all(config)
    for seed in range(4):
        shuffled = list(pods())
        random.Random(seed).shuffle(shuffled)
        assert desire_all(config, shuffled) == expected


@pytest.mark.parametrize("config", CONFIGS)
def test_every_property_is_one_that_systemd_takes(config):
    for unit in desire_all(config).units:
        names = [property_.name for property_ in unit.properties]
        assert names == sorted(set(names))
        for property_ in unit.properties:
            row = PROPERTIES[property_.name]
            assert row.managed
            assert unit.kind in row.kinds
            assert row.takes(property_.value), property_
            assert property_.why


@pytest.mark.parametrize("config", CONFIGS)
def test_no_unit_is_outside_the_root(config):
    desired = desire_all(config)
    root = Tree(cgroup_root=config.cgroup_root).root
    inside = root.removesuffix(".slice") + "-"
    for unit in desired.units:
        assert is_unit_name(unit.name)
        slice_ = unit.name if unit.kind is UnitKind.SLICE else unit.parent
        assert slice_ == root or slice_.startswith(inside) or not unit.owned
    assert all(name.startswith(inside) for name in desired.unwanted)


@pytest.mark.parametrize("config", CONFIGS)
def test_parents_are_before_children_and_control_groups_match(config):
    seen = set()
    for unit in desire_all(config).units:
        assert unit.name not in seen
        seen.add(unit.name)
        if unit.kind is not UnitKind.SLICE:
            assert unit.parent in seen
            assert unit.control_group == f"{control_group_of(unit.parent)}/{unit.name}"
        else:
            assert unit.parent == parent_slice(unit.name)
            assert (
                unit.parent in seen
                or not unit.parent.startswith(unit.name.split("-")[0])
                or (unit.name == Tree(cgroup_root=config.cgroup_root).root)
            )
            assert unit.control_group == control_group_of(unit.name)


@pytest.mark.parametrize("config", CONFIGS)
def test_what_children_are_guaranteed_their_parents_have(config):
    desired = desire_all(config)
    inner = {Tree(cgroup_root=config.cgroup_root).tier(qos) for qos in Qos}
    for name in ("MemoryLow", "MemoryMin"):
        for parent in (unit for unit in desired.units if unit.name in inner):
            children = sum(
                unit.values.get(name, 0)
                for unit in desired.units
                if unit.parent == parent.name and unit.name != parent.name
            )
            assert parent.values.get(name, 0) >= children
    names = {name for unit in desired.units for name in unit.values}
    allowed = {protection_property(qos, config) for qos in Qos}
    assert names & {"MemoryLow", "MemoryMin"} <= allowed


@pytest.mark.parametrize("config", CONFIGS)
def test_the_weight_of_the_burstable_tier_is_that_of_its_pods_together(config):
    desired = desire_all(config)
    tree = Tree(cgroup_root=config.cgroup_root)
    units = {unit.name: unit for unit in desired.units}
    tier = units[tree.tier(Qos.BURSTABLE)].values["CPUWeight"]
    weights = [
        units[each.slice].values["CPUWeight"] for each in desired.pods if each.qos is Qos.BURSTABLE
    ]
    assert max(weights) <= tier
    if config.cpu_weight_mapping is not WeightMapping.OCI:  # which is not linear
        assert abs(tier - sum(weights)) <= len(weights)


@pytest.mark.parametrize("config", CONFIGS)
def test_every_admitted_pod_has_a_slice_of_its_class(config):
    desired = desire_all(config)
    tree = Tree(cgroup_root=config.cgroup_root)
    names = {unit.name for unit in desired.units}
    for each in desired.pods:
        assert each.slice == tree.pod(each.pod.uid, each.qos)
        assert each.slice in names
        assert {one.scope for one in each.scopes} <= names
        assert {one.unit for one in each.volumes} <= names
        assert {tree.pod(each.pod.uid, qos) for qos in Qos} - {each.slice} <= set(desired.unwanted)
    assert names.isdisjoint(desired.unwanted)


def reasons(config, unit):
    desired = desire_all(config)
    properties = next(each.properties for each in desired.units if each.name == unit)
    return {each.name: each.why for each in properties}


def test_limits_of_the_root_have_the_terms_that_they_are_computed_from():
    enforced = reasons(PLAIN, "kubepods.slice")
    assert enforced["MemoryMax"] == "capacity - kube-reserved - system-reserved, memory"
    nothing = Config(eviction_hard={}, enforce_node_allocatable=frozenset())
    assert reasons(nothing, "kubepods.slice")["CPUWeight"].startswith("capacity, cpu →")


def test_a_tier_gets_the_minimum_if_all_memory_is_reserved():
    config = Config(
        eviction_hard={}, qos_reserved={"memory": 100}, system_reserved={"memory": 32 * GI}
    )
    why = reasons(config, "kubepods-besteffort.slice")["MemoryMax"]
    assert why.startswith("capacity - kube-reserved - system-reserved 0 B - 100%")


def test_a_reserved_slice_gets_no_limit_of_zero():
    config = Config(
        eviction_hard={},
        system_reserved={"cpu": 1000, "memory": 0, "pid": 0},
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset({Enforce.SYSTEM_RESERVED}),
    )
    assert reasons(config, "system.slice").keys() == {"CPUWeight"}
