"""The examples, which users copy, load without an error and have the stated results."""

from pathlib import Path

import pytest

from podslice.errors import Severity
from podslice.features.quadlet.generate import generate
from podslice.features.quadlet.result import Options
from podslice.features.quadlet.workloads import read_workloads
from podslice.inputs.manifest.load import Extent, load_pods
from podslice.model.config import Config, Rules
from podslice.policy.allocatable import allocate
from podslice.policy.decide import decide
from tests.cases.rows import load_rows, normal, of_amounts, to_amounts, to_node
from tests.configuration import load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
ROWS = load_rows("examples")
NODE = to_node({"capacity": "cpu=8,memory=32Gi,hugepages-2Mi=4Gi,ephemeral-storage=100Gi"})


def load(name):
    return load_pods([str(EXAMPLES / name)], stdin=lambda: b"")


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_an_example_has_these_pods(kind, row):
    del kind
    decisions = [decide(pod, NODE, Config()) for pod in load(row["name"]).pods]
    found = [
        {
            "key": each.pod.key,
            "qos": each.qos.value,
            "requests": of_amounts(each.requests),
            "limits": of_amounts(each.limits),
            "priority": each.pod.priority,
        }
        for each in decisions
    ]
    assert found == [
        {"priority": 0, **pod, "requests": normal(pod["requests"]), "limits": normal(pod["limits"])}
        for pod in row["pods"]
    ]


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_nothing_is_wrong_with_an_example(kind, row, rules):
    del kind
    loaded = load(row["name"])
    warnings = row.get("warnings", [])
    assert [f"'{word}'" in str(p) for word, p in zip(warnings, loaded.problems, strict=True)] == [
        True for _ in warnings
    ]
    assert all(problem.severity is Severity.WARNING for problem in loaded.problems)
    config = Config(rules=rules)
    assert [p for pod in loaded.pods for p in decide(pod, NODE, config).problems] == []


def test_every_example_has_a_row():
    # those of rules/ are test_rule_differences.py's, those of kubernetes/ for a cluster
    names = {path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.yaml")}
    files = {name for name in names if not name.startswith(("rules/", "kubernetes/"))}
    assert files == {row.values[1]["name"] for row in ROWS}


def test_the_shop_loads_as_a_whole_and_fits_a_small_host():
    config = Config()
    decisions = [decide(pod, NODE, config) for pod in load("shop").pods]
    keys = [each.pod.key for each in decisions]
    assert len(keys) == len(set(keys)) == 13
    assert sum(each.requests["cpu"] for each in decisions if each.requests) <= 2000
    small = to_amounts("memory=900Mi")["memory"]
    assert sum(each.requests["memory"] for each in decisions if each.requests) <= small


def test_the_containers_of_the_shop_can_be_started():
    loaded = load_pods([str(EXAMPLES / "shop")], stdin=lambda: b"", extent=Extent.WORKLOADS)
    workloads = read_workloads(loaded)
    messages = [each.message for each in workloads.problems]
    assert messages == ["the name resolves to the addresses of all 3 pods"]
    made = [
        generate(decide(each, NODE, Config()), workloads.workloads[each.key], Options())
        for each in loaded.pods
    ]
    assert len(made) == 13


def test_the_configuration_is_the_document_s_example():
    config = load_config({}, file=EXAMPLES / "podslice.toml")
    node = to_node({"capacity": "cpu=8,memory=32Gi,ephemeral-storage=100Gi"})
    allocation = allocate(node, config)
    # Node Allocatable Resources: 32Gi - 2Gi - 1Gi - 100Mi; 8 CPUs - 200m - 300m
    assert allocation.allocatable["memory"] == to_amounts("memory=29596Mi")["memory"]
    assert allocation.allocatable["cpu"] == 7500
    assert allocation.enforced["memory"] == to_amounts("memory=29Gi")["memory"]


def test_what_the_configuration_states_beside_that_is_the_default():
    stated = load_config({}, file=EXAMPLES / "podslice.toml")
    default = Config()
    for name in (
        "rules",
        "cpu_weight_mapping",
        "memory_protection",
        "enforce_node_allocatable",
        "qos_reserved",
        "kube_reserved_cgroup",
        "system_reserved_cgroup",
    ):
        assert getattr(stated, name) == getattr(default, name), name
