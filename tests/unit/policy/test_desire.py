"""The whole decision: the same for every order of pods, and consistent from leaf to root."""

from __future__ import annotations

import itertools
import random

import pytest

from podslice.errors import Problem, Severity
from podslice.model.config import (
    Config,
    Enforce,
    MemoryProtection,
    Rules,
    WeightMapping,
)
from podslice.model.naming import TIERS, Tree, scope_name
from podslice.model.node import Node
from podslice.model.pod import ContainerKind, InitProgress, MemoryVolume, Qos
from podslice.model.properties import PROPERTIES
from podslice.model.resources import Resources
from podslice.model.unit import UnitKind, control_group_of, is_unit_name, parent_slice
from podslice.policy.decide import decide
from podslice.policy.desire import desire
from tests.unit.policy.worlds import KINDS, container, pod

GI = 2**30 * 1000
NODE = Node(capacity={"cpu": 8000, "memory": 32 * GI, "pid": 32_768_000})
PLAIN = Config(eviction_hard={})

GUARANTEED = Resources(limits={"cpu": 500, "memory": GI})
BURSTABLE = Resources(requests={"cpu": 250, "memory": GI // 4}, limits={"memory": GI})
BESTEFFORT = Resources()
VOLUMES = (MemoryVolume(name="my-cache", size_bytes=2**26), MemoryVolume(name="free"))
LEVELS = (GUARANTEED, BURSTABLE, BESTEFFORT)


def pods(count=9):
    """Pods of every class; some with init containers, sidecars, overhead, pod levels, volumes."""
    for index in range(count):
        first, second = LEVELS[index % 3], LEVELS[index // 3 % 3]
        kind = KINDS[index % 3]
        yield pod(
            container(first),
            container(second, 1, kind),
            name=f"pod-{index}",
            overhead={"cpu": 10, "memory": 2**20 * 1000} if index % 4 == 3 else {},
            resources=Resources(limits={"memory": 4 * GI}) if index % 5 == 4 else Resources(),
            priority=index % 2,
            volumes=VOLUMES if index % 2 else (),
        )


CONFIGS = [
    Config(eviction_hard={}, rules=rules, cpu_weight_mapping=mapping, memory_protection=protection)
    for rules, mapping, protection in itertools.product(Rules, WeightMapping, MemoryProtection)
]
CONFIGS += [
    Config(),
    Config(qos_reserved={"memory": 100}),
    Config(cgroup_root="/custom/pods", cpu_cfs_quota_period_usec=10_000),
    Config(cpu_cfs_quota=False, enforce_node_allocatable=frozenset()),
    Config(
        kube_reserved={"cpu": 500, "memory": GI, "pid": 1000_000},
        system_reserved={"cpu": 250, "memory": GI},
        kube_reserved_cgroup="/podruntime.slice",
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset(
            {Enforce.PODS, Enforce.KUBE_RESERVED, Enforce.SYSTEM_RESERVED_COMPRESSIBLE}
        ),
    ),
]


def desire_all(config, which=None, **more):
    decisions = [decide(each, NODE, config) for each in which or pods()]
    return desire(decisions, NODE, config, **more)


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
def test_parents_come_before_children_and_everything_lies_where_it_says(config):
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
    protected = {MemoryProtection.LOW: "MemoryLow", MemoryProtection.MIN: "MemoryMin"}
    names = {name for unit in desired.units for name in unit.values if name in protected.values()}
    assert names <= {protected.get(config.memory_protection)}


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


def test_pods_that_are_not_there_leave_no_tree():
    desired = desire((), NODE, PLAIN)
    assert desired.lasting == ()
    assert set(desired.unwanted) == {
        "kubepods.slice",
        "kubepods-burstable.slice",
        "kubepods-besteffort.slice",
    }
    assert desired.requested == {}


def test_pods_that_go_are_absent_in_every_class():
    leaving = pod(container(BURSTABLE), name="a")
    desired = desire_all(PLAIN, [pod(container(GUARANTEED), name="b")], terminating=[leaving])
    for qos in Qos:
        assert Tree().pod("a", qos) in desired.unwanted


def test_a_pod_that_goes_does_not_come_back_as_a_candidate_or_as_current():
    each = pod(container(BURSTABLE), name="a")
    desired = desire_all(PLAIN, [each], current=[each], terminating=[each])
    assert desired.pods == ()


def test_a_candidate_takes_the_place_of_the_current_pod_of_its_name():
    before = pod(container(BURSTABLE), name="a")
    after = pod(container(GUARANTEED), name="a")
    desired = desire_all(PLAIN, [after], current=[before])
    assert [each.qos for each in desired.pods] == [Qos.GUARANTEED]
    assert desired.requested == {"cpu": 500, "memory": GI}


def test_a_candidate_that_does_not_fit_leaves_the_current_one():
    before = pod(container(BURSTABLE), name="a")
    after = pod(container(Resources(limits={"cpu": 9000, "memory": GI})), name="a")
    desired = desire_all(PLAIN, [after], current=[before])
    assert [each.qos for each in desired.pods] == [Qos.BURSTABLE]
    assert [refusal.reason for refusal in desired.refused] == ["OutOfcpu"]


def test_without_admission_everybody_comes_in():
    config = Config(eviction_hard={}, admission=False)
    big = pod(container(Resources(limits={"cpu": 9000, "memory": 64 * GI})), name="a")
    desired = desire_all(config, [big])
    assert len(desired.pods) == 1
    assert desired.refused == ()


def test_a_pod_that_is_there_is_never_refused_for_what_it_has():
    """The node has shrunk, or a reservation has grown: nothing new is asked for."""
    there = [pod(container(Resources(requests={"cpu": 5000})), name=name) for name in "ab"]
    desired = desire_all(PLAIN, there, current=there)
    assert [each.pod.name for each in desired.pods] == ["a", "b"]
    assert desired.refused == ()


def test_more_pods_never_mean_a_lower_tier_weight_or_a_higher_tier_limit():
    config = Config(eviction_hard={}, qos_reserved={"memory": 100})
    weights, limits = [], []
    for count in range(1, 10):
        units = {unit.name: unit.values for unit in desire_all(config, list(pods(count))).units}
        weights.append(units[Tree().tier(Qos.BURSTABLE)]["CPUWeight"])
        limits.append([units[Tree().tier(qos)]["MemoryMax"] for qos in TIERS])
    assert weights == sorted(weights)
    assert limits == sorted(limits, reverse=True)
    assert all(burstable >= besteffort for burstable, besteffort in limits)


def test_a_pod_s_own_problems_come_first_and_none_twice():
    own = Problem(where="a.yaml", message="odd", severity=Severity.WARNING)
    each = pod(
        container(Resources(limits={"cpu": 5})),
        problems=(own, own),
    )
    problems = decide(each, NODE, PLAIN).problems
    assert problems[0] == own
    assert len(problems) == len(set(problems)) == 2


def test_names_that_would_be_too_long_are_an_error_that_names_their_cause():
    long = pod(container(BURSTABLE), uid="u" * 128)
    assert decide(long, NODE, PLAIN).is_valid
    decision = decide(long, NODE, Config(cgroup_root="/" + "r" * 120))
    assert not decision.is_valid
    assert [problem.where for problem in decision.problems] == ["metadata.uid"]
    assert "255" in decision.problems[0].hint


def test_a_pod_with_an_error_still_has_its_decision():
    wrong = Problem(where="a.yaml", message="wrong")
    decision = decide(pod(container(BURSTABLE), problems=(wrong,)), NODE, PLAIN)
    assert not decision.is_valid
    assert decision.qos is Qos.BURSTABLE
    assert decide(pod(container(BURSTABLE)), NODE, PLAIN).is_valid


def test_notes_say_what_is_left_unset():
    decision = decide(pod(container(BURSTABLE), container(BESTEFFORT, 1)), NODE, PLAIN)
    text = "\n".join(decision.notes)
    assert "CPUQuota" in text
    assert "container0" in text
    assert "container1" in text
    assert "MemoryMax" in text
    both = Resources(requests={"cpu": 1}, limits={"cpu": 10, "memory": GI})
    assert len(decide(pod(container(both)), NODE, PLAIN).notes) == 1
    without = decide(pod(container(both)), NODE, Config(cpu_cfs_quota=False)).notes
    assert any("cpu-cfs-quota" in note for note in without)


def test_reserved_slices_are_others_and_get_only_what_is_reserved():
    config = CONFIGS[-1]
    units = {unit.name: unit for unit in desire_all(config).units}
    runtime, system = units["podruntime.slice"], units["system.slice"]
    assert not runtime.owned
    assert runtime.values == {"CPUWeight": 50, "MemoryMax": 2**30, "TasksMax": 1000}
    assert system.values == {"CPUWeight": 25}
    assert units["kubepods.slice"].values["TasksMax"] == 31_768


def test_a_reserved_slice_that_is_not_enforced_is_left_alone():
    config = Config(kube_reserved={"cpu": 1}, kube_reserved_cgroup="/podruntime.slice")
    assert "podruntime.slice" not in {unit.name for unit in desire_all(config).units}


def test_a_node_whose_capacity_is_not_known_sets_no_limit():
    desired = desire(
        [decide(pod(container(BURSTABLE)), Node(capacity={}), PLAIN)], Node(capacity={}), PLAIN
    )
    assert desired.units[0].values == {"MemoryLow": GI // 4 // 1000}


def test_a_stated_capacity_counts_instead_of_the_host_s():
    config = Config(eviction_hard={}, capacity={"memory": 4 * GI})
    big = pod(container(Resources(requests={"memory": 5 * GI})))
    desired = desire_all(config, [big])
    assert [refusal.reason for refusal in desired.refused] == ["OutOfmemory"]
    assert desired.allocation.capacity == {**NODE.capacity, "memory": 4 * GI}


# The init phase.

INIT = container(Resources(limits={"cpu": 100, "memory": 2 * GI}), kind=ContainerKind.INIT)
WAITING = pod(
    container(BESTEFFORT), INIT, resources=Resources(limits={"cpu": 1000, "memory": GI}), uid="u-1"
)


def slice_values(desired):
    units = {unit.name: unit.values for unit in desired.units}
    (decision,) = desired.pods
    return units[decision.slice]


@pytest.mark.parametrize(
    ("progress", "binds"),
    [
        (None, False),
        ({}, False),
        ({"another": InitProgress(over=True)}, False),
        ({"u-1": InitProgress(done=frozenset({"somebody"}))}, False),
        ({"u-1": InitProgress(done=frozenset({INIT.name}))}, True),
        ({"u-1": InitProgress(over=True)}, True),
    ],
)
def test_a_pod_s_own_limits_bind_once_its_init_containers_have_finished(progress, binds):
    desired = desire_all(PLAIN, [WAITING], progress=progress)
    assert ("MemoryMax" in slice_values(desired)) == binds
    assert ("CPUQuotaPerSecUSec" in slice_values(desired)) == binds
    assert desired.initializing == (frozenset() if binds else {"default/pod"})


def test_by_the_rules_of_kubernetes_they_bind_from_the_start():
    desired = desire_all(Config(eviction_hard={}, rules=Rules.KUBERNETES), [WAITING])
    assert slice_values(desired)["MemoryMax"] == GI // 1000
    assert desired.initializing == frozenset()


def test_a_pod_without_limits_of_its_own_has_a_phase_that_changes_nothing():
    each = pod(container(GUARANTEED), INIT, uid="u-1")
    over = {"u-1": InitProgress(over=True)}
    during, after = desire_all(PLAIN, [each]), desire_all(PLAIN, [each], progress=over)
    assert during.units == after.units
    assert during.initializing == {"default/pod"}


def test_what_is_refused_has_no_phase():
    big = pod(container(Resources(requests={"cpu": 9000})), INIT)
    assert desire_all(PLAIN, [big]).initializing == frozenset()


# Volumes in memory.


def mounts(desired):
    return [unit for unit in desired.units if unit.kind is UnitKind.MOUNT]


def test_a_volume_is_a_mount_in_its_pod_s_slice():
    desired = desire_all(PLAIN, [pod(container(BESTEFFORT), volumes=VOLUMES, uid="12-34")])
    cache, free = mounts(desired)
    assert cache.name == "run-podslice-pods-12\\x2d34-volumes-my\\x2dcache.mount"
    assert cache.parent == desired.pods[0].slice
    assert cache.description == "Volume my-cache of pod default/pod"
    assert cache.properties == ()
    assert cache.owned
    assert cache.structure == {
        "What": "tmpfs",
        "Type": "tmpfs",
        "Options": "mode=1777,nosuid,nodev,size=67108864",
        "LazyUnmount": True,
    }
    assert free.structure["Options"].endswith(f",size={32 * 2**30}")


def test_where_nobody_can_mount_there_are_no_mounts():
    each = pod(container(BESTEFFORT), volumes=VOLUMES)
    desired = desire_all(PLAIN, [each], mounts=False)
    assert mounts(desired) == []
    assert [volume.name for volume in desired.pods[0].volumes] == ["my-cache", "free"]


def test_a_volume_that_a_pod_has_no_more_is_absent():
    before, after = (pod(container(BESTEFFORT), volumes=VOLUMES[:n]) for n in (2, 1))
    desired = desire_all(PLAIN, [after], current=[before])
    absent = {name: why for name, why in desired.unwanted.items() if name.endswith(".mount")}
    assert absent == {
        "run-podslice-pods-pod-volumes-free.mount": "pod default/pod no longer has volume free"
    }
    assert [unit.name for unit in mounts(desired)] == [
        "run-podslice-pods-pod-volumes-my\\x2dcache.mount"
    ]


def test_the_volumes_of_a_pod_that_goes_end_with_its_slice():
    leaving = pod(container(BESTEFFORT), volumes=VOLUMES)
    desired = desire_all(
        PLAIN, [pod(container(BESTEFFORT), name="b")], current=[leaving], terminating=[leaving]
    )
    assert not any(name.endswith(".mount") for name in desired.unwanted)
    assert mounts(desired) == []


def test_a_volume_on_a_node_that_nobody_knows_has_no_size():
    nowhere = Node(capacity={})
    each = pod(container(BESTEFFORT), volumes=VOLUMES[1:])
    desired = desire([decide(each, nowhere, PLAIN)], nowhere, PLAIN)
    assert mounts(desired)[0].structure["Options"] == "mode=1777,nosuid,nodev"


def test_a_volume_whose_unit_would_have_too_long_a_name_is_an_error():
    volume = MemoryVolume(name="v" * 63)
    assert decide(
        pod(container(BESTEFFORT), volumes=(volume,), uid="u" * 128), NODE, PLAIN
    ).is_valid
    decision = decide(pod(container(BESTEFFORT), volumes=(volume,), uid="u-" * 64), NODE, PLAIN)
    assert [problem.where for problem in decision.problems] == ["metadata.uid"]
    assert "is too long" in decision.problems[0].message
    assert "shorten the uid or the volume's name" in decision.problems[0].hint
    assert decision.volumes == ()


# The pod's helpers.


def test_a_pod_with_an_overhead_has_a_scope_for_its_helpers():
    each = pod(container(BURSTABLE), overhead={"cpu": 100, "memory": 2**20 * 1000}, uid="12-34")
    desired = desire_all(PLAIN, [each])
    helpers = {unit.name: unit for unit in desired.units}[scope_name("12-34", "overhead")]
    assert helpers.name == "podslice-pod12_34-overhead.scope"
    assert helpers.values == {"CPUWeight": 9, "MemoryLow": 2**20}
    assert [one.name for one in desired.pods[0].scopes] == ["container0", "overhead"]
    assert desired.pods[0].scopes[-1] == desired.pods[0].overhead
    assert desire_all(PLAIN, [pod(container(BURSTABLE))]).pods[0].overhead is None


# Huge pages.


def test_slices_and_scopes_say_which_huge_pages_they_may_have():
    pages = {"hugepages-2Mi": 4 * 2**20 * 1000}
    each = pod(
        container(Resources(limits={"cpu": 100, **pages})), container(BESTEFFORT, 1), uid="u"
    )
    units = {unit.name: unit.hugepages for unit in desire_all(PLAIN, [each]).units}
    assert units["kubepods-burstable-podu.slice"] == {2**21: 4 * 2**20}
    assert units["podslice-podu-container0.scope"] == {2**21: 4 * 2**20}
    assert units["podslice-podu-container1.scope"] == {2**21: 0}
    assert units["kubepods.slice"] == {}
