"""The values that a real kubelet set for its pods, against those of the rules `kubernetes`.

`kubelet/node.json` was recorded on a node with kubelet 1.36.2, containerd 2.1.9 and runc 1.3.6.
"""

import json
from pathlib import Path

import pytest

from podslice.inputs.manifest.load import parse_manifest
from podslice.model.config import Config, MemoryProtection, Rules, WeightMapping
from podslice.model.node import Node
from podslice.model.unit import INFINITY
from podslice.policy.decide import decide
from podslice.policy.desire import desire

RECORDED = json.loads((Path(__file__).parent / "kubelet/node.json").read_text())
PODS, UNITS = RECORDED["pods"], RECORDED["node"]
CONFIG = Config(
    rules=Rules.KUBERNETES,
    cpu_weight_mapping=WeightMapping.KUBELET,
    memory_protection=MemoryProtection.NONE,
    pod_max_pids=512,
)
NODE = Node(
    capacity={
        "cpu": 4000,
        "memory": int(UNITS["kubepods.slice"]["memory.max"]) * 1000,
        "pid": int(UNITS["kubepods.slice"]["pids.max"]) * 1000,
    }
)


def read(name):
    pod = {"metadata": {"name": name, "uid": PODS[name]["uid"]}, "spec": PODS[name]["spec"]}
    return parse_manifest({"apiVersion": "v1", "kind": "Pod", **pod}, "node.json")


def files(properties):
    """The files of a control group with these properties, as the kernel shows them."""
    values = {property_.name: property_.value for property_ in properties}
    quota, limit = values.get("CPUQuotaPerSecUSec"), values.get("MemoryMax", INFINITY)
    return {
        "cpu.weight": str(values["CPUWeight"]),
        "cpu.max": f"{'max' if quota is None else quota // 10} 100000",
        "memory.max": "max" if limit == INFINITY else str(limit),
        "memory.swap.max": str(values.get("MemorySwapMax", "max")),
    }


def slice_files(properties):
    """The same with the file that only slices have: containers had a default of their systemd."""
    tasks = {property_.name: property_.value for property_ in properties}.get("TasksMax", "max")
    return {**files(properties), "pids.max": str(tasks)}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_and_its_containers_have_what_the_kubelet_set(name):
    recorded, decision = PODS[name], decide(read(name), NODE, CONFIG)
    assert decision.is_valid
    assert decision.control_group == f"/{recorded['slice']}"
    assert slice_files(decision.properties) == recorded["pod"]
    found = {
        each.name: {**files(each.properties), "oom_score_adj": each.oom_score_adj}
        for each in decision.containers
        if each.name in recorded["containers"]  # an init container has gone
    }
    assert found == recorded["containers"]


# the weight of the Burstable tier was that of pods besides these, which were not recorded
@pytest.mark.parametrize("path", [path for path in UNITS if "burstable" not in path])
def test_the_slices_above_have_what_the_kubelet_set(path):
    decisions = [decide(read(name), NODE, CONFIG) for name in PODS]
    units = {unit.control_group: unit for unit in desire(decisions, NODE, CONFIG).units}
    assert slice_files(units[f"/{path}"].properties) == UNITS[path]
