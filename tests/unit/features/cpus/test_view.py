"""The CPUs of `node`, at several widths."""

import json

import pytest

from podslice.cli.report import part
from podslice.cli.views.style import Display
from podslice.cli.views.text_width import width_of
from podslice.features.cpus.view import NodeCpus, cpu_map, cpus_entry
from podslice.model.node import regular_topology
from tests.unit.builders import make_files

STATIC = ("--set=cpu-manager-policy=static", "--set=reserved-cpus=0")
TOPOLOGY = regular_topology(sockets=2, numa=2, cores=2, threads=2)
OWN = {"default/db": frozenset({2, 6}), "default/api": frozenset({1})}


def cpus(*, is_strict=False, own=OWN, topology=TOPOLOGY, for_host=False):
    reserved = frozenset({0, 4})
    shared = topology.all - frozenset().union(*own.values()) - (reserved if is_strict else set())
    return NodeCpus(topology=topology, reserved=reserved, own=own, shared=shared, for_host=for_host)


def test_each_cpu_has_the_character_of_its_pod():
    assert list(cpu_map(cpus(), Display())) == [
        "NUMA node 0  ▓▓ a░",
        "NUMA node 1  bb ░░",
        "",
        "   CPUS   USED BY",
        "▓  0,4    all other pods: reserved",
        "a  1      default/api",
        "b  2,6    default/db",
        "░  3,5,7  all other pods",
    ]


def test_reserved_cpus_may_have_no_pod():
    assert "▓  0,4    no pod: reserved" in list(cpu_map(cpus(is_strict=True), Display()))


def test_the_slices_of_the_host_are_beside_the_other_pods():
    lines = list(cpu_map(cpus(for_host=True), Display()))
    assert "▓  0,4    all other pods, system.slice, user.slice: reserved" in lines
    assert "░  3,5,7  all other pods, system.slice, user.slice" in lines
    lines = list(cpu_map(cpus(for_host=True, is_strict=True), Display()))
    assert "▓  0,4    system.slice, user.slice: reserved" in lines
    assert cpus_entry(cpus(for_host=True)).exclusive_for == "host"


def test_pods_beyond_the_alphabet_share_a_character():
    large = regular_topology(sockets=1, numa=1, cores=64, threads=1)
    own = {f"default/{number:02}": frozenset({number}) for number in range(5, 60)}
    lines = list(cpu_map(cpus(own=own, topology=large), Display()))
    assert lines[0].split("  ")[1].count("+") == 3
    assert ["+", "59", "default/59"] in [line.split() for line in lines]


@pytest.mark.parametrize("width", [40, 80])
def test_a_large_machine_has_several_lines(width):
    large = regular_topology(sockets=1, numa=1, cores=96, threads=2)
    lines = list(cpu_map(cpus(own={}, topology=large), Display(width=width)))
    assert max(map(width_of, lines)) <= width
    assert sum(line.count("░░") for line in lines) == 94
    assert lines[1].startswith(" " * len("NUMA node 0  ") + "░")


def test_the_document():
    assert part(cpus_entry(cpus())) == {
        "exclusive_for": "pods",
        "reserved": "0,4",
        "shared": "0,3-5,7",
        "pods": [
            {"namespace": "default", "name": "api", "cpus": "1"},
            {"namespace": "default", "name": "db", "cpus": "2,6"},
        ],
    }


def test_node_shows_the_cpus_of_applied_pods(podslice, memory, here):
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own"}, "spec": spec}
    make_files(here, {"own.yaml": json.dumps(pod)})
    assert podslice("apply", "-f", str(here / "own.yaml"), *STATIC).code == 0
    out = podslice("node", *STATIC).out
    assert "NUMA node 0  ▓ a a ░ ░ ░ ░ ░\n" in out
    assert "a  1-2   default/own\n" in out
    document = json.loads(podslice("node", *STATIC, "-o", "json").out)
    assert document["cpus"]["shared"] == "0,3-7"
    assert "cpus" not in json.loads(podslice("node", "-o", "json").out)
