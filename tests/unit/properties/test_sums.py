"""The content of a slice fits it."""

import itertools

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given

from podslice.model.config import MemoryProtection
from podslice.model.naming import Tree
from podslice.model.pod import Qos
from podslice.model.properties import PROTECTIONS
from podslice.model.resources import CPU, MEMORY, total
from podslice.model.unit import INFINITY, control_group_of, is_unit_name, parent_slice
from podslice.policy.convert import shares_from_milli, weight_from_shares
from podslice.policy.desire import desire
from tests.unit.properties.strategies import configs, decisions, nodes, phases, some, worlds


def guarantees(desired, name):
    """The memory that a property protects of every unit, by the unit's name."""
    return {unit.name: unit.values.get(name, 0) for unit in desired.units}


@some
@given(worlds(), nodes, configs)
def test_the_memory_that_slices_are_promised_fits_the_slice_they_lie_in(world, node, config):
    desired = desire(decisions(world, node, config), node, config)
    owned = [unit for unit in desired.units if unit.owned and unit.name.endswith(".slice")]
    for name, parent in itertools.product(PROTECTIONS, owned):
        promised = guarantees(desired, name)
        inside = sum(promised[unit.name] for unit in owned if unit.parent == parent.name)
        assert min(inside, parent.values.get("MemoryMax", INFINITY)) <= promised[parent.name]


@some
@given(worlds(), nodes, configs)
def test_no_unit_is_promised_more_memory_than_it_may_use(world, node, config):
    desired = desire(decisions(world, node, config), node, config)
    for unit, name in itertools.product(desired.units, PROTECTIONS):
        assert unit.values.get(name, 0) <= unit.values.get("MemoryMax", INFINITY)


@some
@given(worlds(), nodes, configs)
def test_the_memory_that_containers_are_promised_fits_their_pod(world, node, config):
    desired = desire(decisions(world, node, config), node, config)
    for name, decision in itertools.product(PROTECTIONS, desired.pods):
        promised = guarantees(desired, name)
        scopes = {each.name: promised[each.scope] for each in decision.containers}
        for together in phases(decision.pod):
            asked = sum(scopes[container.name] for container in together)
            # each container's bytes are rounded up, the pod's once
            assert asked < promised[decision.slice] + len(together)


@some
@given(worlds(), nodes, configs)
def test_tiers_weigh_what_their_pods_ask_for(world, node, config):
    desired = desire(decisions(world, node, config), node, config)
    tree, properties = Tree(cgroup_root=config.cgroup_root), {}
    for unit in desired.units:
        properties[unit.name] = unit.values
    asked = sum(pod.requests.get(CPU, 0) for pod in desired.pods if pod.qos is Qos.BURSTABLE)
    mapping = config.cpu_weight_mapping
    burstable = weight_from_shares(shares_from_milli(asked), mapping)
    assert properties[tree.tier(Qos.BURSTABLE)]["CPUWeight"] == burstable
    assert properties[tree.tier(Qos.BESTEFFORT)]["CPUWeight"] == weight_from_shares(2, mapping)
    assert desired.requested == total(pod.requests for pod in desired.pods)


@some
@given(worlds(), nodes, configs)
def test_reserved_memory_is_kept_from_the_lower_tiers(world, node, config):
    desired = desire(decisions(world, node, config), node, config)
    tree = Tree(cgroup_root=config.cgroup_root)
    limits = {unit.name: unit.values.get("MemoryMax") for unit in desired.units}
    burstable, besteffort = (limits[tree.tier(q)] for q in (Qos.BURSTABLE, Qos.BESTEFFORT))
    if MEMORY not in config.qos_reserved:
        assert (burstable, besteffort) == (None, None)
        return
    shared = desired.allocation.enforced[MEMORY] // 1000
    assert node.page_size_bytes <= besteffort <= burstable
    assert burstable <= max(shared, node.page_size_bytes)


@some
@given(worlds(), nodes, configs)
def test_every_unit_is_below_the_root_and_parents_are_first(world, node, config):
    desired = desire(decisions(world, node, config), node, config)
    seen = set()
    for unit in desired.units:
        assert is_unit_name(unit.name)
        if unit.owned:
            assert unit.name == desired.root or unit.parent in seen
        if unit.name.endswith(".slice"):
            assert unit.parent == parent_slice(unit.name)
            assert unit.control_group == control_group_of(unit.name)
        assert unit.name not in seen
        seen.add(unit.name)
    assert config.memory_protection is not MemoryProtection.NONE or not any(
        property_.name in ("MemoryLow", "MemoryMin")
        for unit in desired.units
        for property_ in unit.properties
    )
