"""Who owns the root: units as a kubelet leaves them (tests/kubelet_units.json), and processes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from podslice.errors import Severity
from podslice.model.config import Config, Rules
from podslice.model.naming import Tree
from podslice.model.node import Node
from podslice.model.node_state import Kubelet, Neighbour
from podslice.model.unit import SYSTEM, ObservedUnit
from podslice.policy.ownership import LIBCONTAINER, check_claims, find_foreign
from tests.unit.builders import USER, amounts, besteffort

RECORDED = json.loads((Path(__file__).parents[2] / "kubelet_units.json").read_text())["units"]
UNITS = [
    ObservedUnit(name=name, description=unit["Description"], properties={"Slice": unit["Slice"]})
    for name, unit in RECORDED.items()
]
TREE = Tree()
K3S = Kubelet(pid=812, name="k3s-server")
POD = "kubepods-burstable-pod73084cd1_9820_53d5_8f18_c13b836629f6.slice"
SCOPE = "cri-containerd-60a43b7480c8e1db7686345a6d8d3b5128f279eccea0fb45f10b426b4087d95d.scope"
OURS = [
    ObservedUnit(name="kubepods.slice", description="Pods on this node"),
    ObservedUnit(name="kubepods-burstable.slice", description="Burstable pods"),
    ObservedUnit(name="kubepods-burstable-podweb.slice", description="Pod default/web (Burstable)"),
]
WEB = (besteffort("web"),)
NOBODYS = ObservedUnit(name="kubepods-podstray.slice", description="kubepods-podstray.slice")


def unit(name):
    return next(each for each in UNITS if each.name == name)


def judge(units, *, kubelets=(), pods=(), tree=TREE, manager=SYSTEM):
    return find_foreign(tree, units, pods, kubelets, manager=manager)


@pytest.mark.parametrize(
    ("units", "pods"),
    [
        ([], ()),
        (OURS, WEB),
        (OURS, ()),
        ([*OURS, NOBODYS], WEB),
        # runc as podman or docker starts it in the slice of a pod of ours, and elsewhere
        (
            [*OURS, replace(unit(SCOPE), properties={"Slice": "kubepods-burstable-podweb.slice"})],
            WEB,
        ),
        ([*OURS, replace(unit(SCOPE), properties={"Slice": "system.slice"})], WEB),
        ([*OURS, replace(unit(SCOPE), name="libpod-1.scope")], WEB),
        # runc with its systemd driver elsewhere
        ([*OURS, replace(unit(POD), name="b.slice", description=f"{LIBCONTAINER}b.slice")], WEB),
    ],
)
def test_the_root_is_podslices_own(units, pods):
    assert judge(units, pods=pods) is None


def test_a_kubelet_that_was_stopped_leaves_its_units():
    foreign = judge(UNITS)
    assert foreign.reason == (
        "kubepods.slice belongs to a kubelet: its description is"
        " 'libcontainer container kubepods.slice'"
    )
    assert 'cgroup-root = "/podslice" in podslice.toml' in foreign.way_out
    assert foreign.way_out.endswith("removed for good: systemctl stop kubepods.slice")


@pytest.mark.parametrize("name", list(RECORDED))
def test_each_unit_of_a_kubelet_is_enough(name):
    others = [each for each in OURS if each.name != name]
    foreign = judge([*others, unit(name)], pods=WEB)
    assert "belongs to a kubelet" in foreign.reason
    assert name in f"{foreign.reason} {foreign.way_out}"


def test_a_container_of_crio_is_one_of_a_kubelet():
    scope = replace(unit(SCOPE), name="crio-1.scope", description="libcrun container")
    assert "(crio-1.scope)" in judge([scope]).reason


@pytest.mark.parametrize("units", [[], OURS])
def test_a_running_kubelet_is_enough(units):
    foreign = judge(units, kubelets=[K3S])
    assert foreign.reason == (
        "a kubelet runs on this host (process 812, k3s-server) and uses kubepods.slice for its pods"
    )
    assert foreign.way_out == (
        'use another root for podslice: cgroup-root = "/podslice" in podslice.toml'
    )


def test_a_kubelet_that_came_later_has_a_way_out_for_the_pods_that_are_there():
    foreign = judge([*OURS, unit(POD), unit(SCOPE)], kubelets=[K3S], pods=WEB)
    assert foreign.way_out == (
        "podslice has pods there as well; to move them: stop the kubelet; stop its units"
        f" (systemctl stop {POD} {SCOPE}); run podslice delete --all; use another root for podslice:"
        ' cgroup-root = "/podslice" in podslice.toml'
    )
    # which works: each step leaves what the next needs
    assert judge([*OURS, unit(POD), unit(SCOPE)], pods=WEB) is not None
    assert judge(OURS, pods=WEB) is None


def test_many_units_are_counted():
    foreign = judge([each for each in UNITS if each.name != "kubepods.slice"])
    assert "it contains 8 units of a kubelet (kubepods-besteffort.slice" in foreign.reason
    assert "and 5 more" in foreign.reason
    scopes = [replace(unit(SCOPE), name=f"crio-{number}.scope") for number in range(3)]
    assert judge(scopes[:1]).reason.endswith("contains 1 unit of a kubelet (crio-0.scope)")
    assert judge(scopes).reason.endswith("(crio-0.scope crio-1.scope crio-2.scope)")


def test_a_container_in_the_root_itself_is_one_of_a_kubelet():
    scope = replace(unit(SCOPE), properties={"Slice": "kubepods.slice"})
    assert SCOPE in judge([*OURS, scope], pods=WEB).reason


def test_only_steps_that_are_needed_are_listed():
    stopped = judge([*OURS, unit(POD)], pods=WEB).way_out
    assert stopped.startswith(
        "podslice has pods there as well; to move them: stop its units"
        f" (systemctl stop {POD}); run podslice delete --all; use another root"
    )
    running = judge(OURS, kubelets=[K3S], pods=WEB).way_out
    assert running.startswith(
        "podslice has pods there as well; to move them: stop the kubelet; run podslice delete --all"
    )


@pytest.mark.parametrize(
    "elsewhere", [{"tree": Tree(cgroup_root="/podslice")}, {"manager": USER}], ids=["root", "user"]
)
def test_a_kubelet_owns_the_default_root_of_the_system_only(elsewhere):
    assert judge(OURS, kubelets=[K3S], **elsewhere) is None


def test_another_root_may_be_a_kubelets_as_well():
    """As with `--cgroup-root` of its own, or a kubelet without root in a user's manager."""
    name = "podslice-kubepods.slice"
    root = ObservedUnit(name=name, description=f"libcontainer container {name}")
    foreign = judge([root], tree=Tree(cgroup_root="/podslice"))
    assert 'cgroup-root = "/podslice2"' in foreign.way_out
    assert "systemctl --user stop kubepods.slice" in judge(UNITS, manager=USER).way_out


HOST = Node(capacity=amounts("cpu=4,memory=8Gi"))
LARGE = Neighbour(memory_max_bytes=8 * 2**30, cpu_weight=157, own_weight=100)


@pytest.mark.parametrize(
    ("config", "neighbour", "count"),
    [
        ({}, LARGE, 2),
        # no limit is known
        ({}, Neighbour(), 1),
        ({"system_reserved": amounts("memory=1Gi")}, Neighbour(), 0),
        ({"enforce_node_allocatable": frozenset()}, LARGE._replace(memory_max_bytes=2**30), 2),
        # each has a part, and a weight for it
        (
            {"capacity": amounts("cpu=2,memory=2Gi")},
            Neighbour(memory_max_bytes=6 * 2**30, own_weight=79),
            0,
        ),
        (
            {"capacity": amounts("memory=2Gi"), "rules": Rules.KUBERNETES}
            | {"enforce_node_allocatable": frozenset()},
            Neighbour(memory_max_bytes=6 * 2**30, own_weight=79),
            0,
        ),
        ({"system_reserved": amounts("memory=7Gi")}, LARGE._replace(memory_max_bytes=2**30), 1),
        # a weight that an administrator has chosen
        ({"capacity": amounts("memory=1Ki")}, Neighbour(memory_max_bytes=2**30, own_weight=7), 0),
    ],
)
def test_what_podslice_and_a_kubelet_both_claim(config, neighbour, count):
    tree = Tree(cgroup_root="/podslice")
    found = tuple(check_claims(tree, HOST, Config(eviction_hard={}, **config), neighbour))
    assert len(found) == count
    assert all(each.severity is Severity.WARNING and each.hint for each in found)


def test_a_node_without_cpus_claims_only_memory():
    host = Node(capacity=amounts("memory=8Gi"))
    (found,) = check_claims(Tree(cgroup_root="/podslice"), host, Config(), LARGE)
    assert "of memory" in found.message


def test_a_node_without_memory_claims_only_cpu():
    host = Node(capacity=amounts("cpu=4"))
    (found,) = check_claims(Tree(cgroup_root="/podslice"), host, Config(), LARGE)
    assert found.message.startswith("CPUWeight")


def test_both_claims_are_named_with_their_remedies():
    memory, cpu = check_claims(Tree(cgroup_root="/podslice/a"), HOST, Config(), LARGE)
    assert memory.message == (
        "podslice's pods may use 8 GiB of memory, and those of the kubelet 8 GiB: together more than the"
        " 8 GiB of this node"
    )
    assert "systemReserved of the kubelet" in memory.hint
    assert cpu.message == (
        "CPUWeight of podslice-a-kubepods.slice has no effect against the kubelet's pods:"
        " podslice.slice has 100 and kubepods.slice 157"
    )
    assert cpu.hint == (
        "systemctl set-property podslice.slice CPUWeight=157, as a kubelet has for 4 CPUs"
    )
