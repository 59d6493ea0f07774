"""The units of a node as control groups that share its CPUs."""

import pytest

from podslice.features.simulate.sharing import Assumptions, CpuGroup, cpu_tree, share_cpu
from podslice.model.config import Enforce
from podslice.model.pod import ContainerKind, InitProgress, MemoryVolume
from tests.unit.builders import (
    besteffort,
    burstable,
    config,
    container,
    desired_for,
    guaranteed,
    pod,
)

USER = CpuGroup(name="user.slice")
SYSTEM = CpuGroup(name="system.slice", weight=70, quota_milli=3000, cpus=frozenset({1}))
NO_ASSUMPTION = Assumptions()
DB, WEB = "kubepods-poddb.slice", "kubepods-burstable-podweb.slice"
BATCH = "kubepods-besteffort-podbatch.slice"


def described(groups):
    """Weight, quota and threads by name, and the names of those below each."""
    found = {}
    for group in groups:
        below = [each.name for each in group.children]
        found[group.name] = (group.weight, group.quota_milli, group.threads, below)
        found |= described(group.children)
    return found


def scope(uid, name="main"):
    return f"podslice-pod{uid}-{name}.scope"


def test_pods_are_in_their_tiers_with_their_containers():
    pods = (guaranteed("db"), burstable("web", limits="cpu=2"), besteffort("batch"))
    found = described(cpu_tree(desired_for(*pods), [USER], NO_ASSUMPTION))
    tiers = ["kubepods-burstable.slice", "kubepods-besteffort.slice"]
    assert found == {
        "user.slice": (100, None, None, []),
        "kubepods.slice": (800, None, 0, [*tiers, DB]),
        "kubepods-burstable.slice": (50, None, 0, [WEB]),
        WEB: (50, 2000, None, [scope("web")]),
        scope("web"): (50, 2000, None, []),
        "kubepods-besteffort.slice": (1, None, 0, [BATCH]),
        BATCH: (1, None, None, [scope("batch")]),
        scope("batch"): (1, None, None, []),
        DB: (100, 1000, None, [scope("db")]),
        scope("db"): (100, 1000, None, []),
    }


def test_without_pods_there_are_no_slices_for_them():
    assert cpu_tree(desired_for(), [USER], NO_ASSUMPTION) == (USER,)


def test_a_tier_without_pods_is_idle():
    tree = cpu_tree(desired_for(burstable("web")), [], NO_ASSUMPTION)
    used = share_cpu(tree, 4)
    assert used["kubepods-besteffort.slice"] == 0
    assert used[WEB] == 4


def test_containers_that_do_not_run_beside_the_others_are_left_out():
    several = pod(
        "web",
        containers=(
            container("app", "cpu=500m"),
            container("setup", kind=ContainerKind.INIT),
            container("proxy", kind=ContainerKind.SIDECAR),
        ),
        overhead={"cpu": 100},
    )
    progress = {"web": InitProgress(over=True)}
    found = described(cpu_tree(desired_for(several, progress=progress), [], NO_ASSUMPTION))
    assert found[WEB][3] == [scope("web", "app"), scope("web", "proxy")]


def test_a_volume_is_not_a_control_group_of_processes():
    stored = burstable("web", volumes=(MemoryVolume(name="cache"),))
    tree = cpu_tree(desired_for(stored), [], NO_ASSUMPTION)
    assert described(tree)[WEB][3] == [scope("web")]


def test_a_reserved_slice_has_the_weight_of_its_reservation():
    by = config(
        system_reserved={"cpu": 500},
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset({Enforce.PODS, Enforce.SYSTEM_RESERVED}),
    )
    (system, user, root) = cpu_tree(
        desired_for(burstable("web"), by=by), [SYSTEM, USER], NO_ASSUMPTION
    )
    assert system == SYSTEM._replace(weight=50)
    assert user == USER
    assert root.name == "kubepods.slice"


def test_a_reserved_slice_without_a_reservation_of_cpu_keeps_its_weight():
    by = config(
        system_reserved={"memory": 2**30 * 1000},
        system_reserved_cgroup="/system.slice",
        enforce_node_allocatable=frozenset({Enforce.PODS, Enforce.SYSTEM_RESERVED}),
    )
    assert cpu_tree(desired_for(by=by), [SYSTEM], NO_ASSUMPTION) == (SYSTEM,)


def test_a_slice_of_the_host_below_another_one_and_a_root_below_one():
    by = config(cgroup_root="/custom")
    runtime = CpuGroup(name="system-runtime.slice", weight=20)
    system, custom = cpu_tree(desired_for(burstable("web"), by=by), [runtime], NO_ASSUMPTION)
    assert (system.name, system.weight, system.children) == ("system.slice", 100, (runtime,))
    assert (custom.name, custom.weight, custom.threads) == ("custom.slice", 100, None)
    assert [each.name for each in custom.children] == ["custom-kubepods.slice"]


@pytest.mark.parametrize("key", ["default/web", "user.slice"])
def test_what_is_assumed(key):
    cpus = frozenset({0, 2})
    desired = desired_for(burstable("web"), burstable("db"))

    def leaf(**assumed):
        found = cpu_tree(desired, [USER], Assumptions(**assumed))
        user, root = found
        web = root.children[0].children[1]
        other = user if key == "default/web" else web.children[0]
        assert (other.threads, other.cpus) == (None, None)
        return web.children[0] if key == "default/web" else user

    assert leaf(threads={key: 0}).threads == 0
    assert leaf(threads={key: 3}).threads == 3
    assert leaf(cpus={key: cpus}).cpus == cpus


def test_a_pod_has_the_cpus_that_its_annotation_states():
    both = Assumptions(cpus={"default/b": frozenset({2})})
    stated = {"AllowedCPUs": "0-1"}
    pods = (guaranteed("a", properties=stated), guaranteed("b", properties=stated))
    (root,) = cpu_tree(desired_for(*pods), (), both)
    cpus = {each.name: each.cpus for each in root.children}
    assert cpus["kubepods-poda.slice"] == {0, 1}
    assert cpus["kubepods-podb.slice"] == {2}
