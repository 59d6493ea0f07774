"""What podslice sets on the slices of a kubelet: the rows of `pod_level.toml`, and a recorded node."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from podslice.features.kubelet.config import read_settings
from podslice.features.kubelet.model import LEVEL_PROPERTIES, KubeletPod, KubeletSettings
from podslice.features.kubelet.pods import parse_pod_list
from podslice.features.kubelet.policy import SliceState, plan_levels
from podslice.inputs.budget import Budget
from podslice.inputs.manifest.load import load_text
from podslice.model.config import Config
from podslice.model.pod import Qos
from podslice.model.properties import PROPERTIES
from podslice.model.unit import ObservedUnit, UnitName
from tests.unit.features.kubelet.recorded_node import UNSET, RecordedNode
from tests.unit.features.kubelet.test_units import NODE

ROWS = tomllib.loads((Path(__file__).parent / "cases/pod_level.toml").read_text())["case"]


def to_pod(row):
    annotations = {"podslice.io/resources": row["level"]} if "level" in row else {}
    metadata = {"name": "web", "uid": "uid", "annotations": annotations | row.get("more", {})}
    text = f"{{apiVersion: v1, kind: Pod, metadata: {json.dumps(metadata)}, spec: {row['spec']}}}"
    (pod,) = load_text(text.encode(), "web.yaml", Budget()).pods
    return KubeletPod(
        pod=pod,
        has_own_level=bool(pod.resources) and not row["spec"].startswith("{resources"),
        qos=Qos(row["qos"]) if "qos" in row else None,
        is_running=True,
        is_terminal=row.get("terminal", False),
        is_resizing=row.get("resizing", False),
    )


def to_settings(row):
    return KubeletSettings(
        config=Config(eviction_hard={}, cpu_cfs_quota=row.get("quota", True)),
        version=tuple(row.get("version", (1, 33))),
        feature_gates=row.get("gates", {}),
        has_static_cpus=row.get("static", False),
    )


def to_slices(row, name):
    if "found" not in row:
        return {}
    properties = {key: PROPERTIES[key].unset for key in LEVEL_PROPERTIES} | row["found"]
    description = row.get("description", f"libcontainer container {name}")
    unit = ObservedUnit(name=name, description=description, properties=properties)
    return {name: SliceState(unit=unit, rewritten=frozenset(row.get("rewritten", ())))}


def run(row):
    name = UnitName(row["slice"])
    own = {name: row["own"]} if "own" in row else {}
    settings, pods = to_settings(row), (to_pod(row),)
    slices, removes = to_slices(row, name), row.get("removes", False)
    return name, plan_levels(pods, slices, own, NODE, settings, removes=removes)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_rows(row):
    assert row["source"]
    name, plan = run(row)
    unset = {key: PROPERTIES[key].unset for key in LEVEL_PROPERTIES}
    expected = row.get("expect", {})
    expected = {key: unset[key] if value == "unset" else value for key, value in expected.items()}
    assert {change.unit: change.values for change in plan.changes} == (
        {name: expected} if expected else {}
    )
    left = [f"{each.reason.value} {each.property or ''}".strip() for each in plan.left]
    assert left == row.get("left", [])
    assert plan.own == ({name: row["after"]} if "after" in row else {})
    assert set(plan.pods) == (set() if row.get("terminal") else set(plan.own))
    for pattern, each in zip(row.get("messages", ()), plan.left, strict=False):
        assert re.search(pattern, each.message)
        assert "items[" not in each.message
    for each in plan.left:
        assert (each.unit, each.pod) == (name, "default/web")
        assert each.message
    for change in plan.changes:
        assert change.pod == "default/web"
        assert all(value.why for value in change.properties)


def test_values_are_kept_while_the_slice_exists_and_its_pod_is_not_listed():
    """A kubelet that has just started lists no pods."""
    row = {"slice": "kubepods-besteffort-poduid.slice", "found": {"CPUWeight": 1}}
    name, own = UnitName(row["slice"]), {"MemoryMax": 67108864}
    for removes in (False, True):
        slices = to_slices(row, name)
        plan = plan_levels((), slices, {name: own}, NODE, to_settings(row), removes=removes)
        assert (plan.own, plan.changes, plan.pods) == ({name: own}, (), {})
    assert plan_levels((), {}, {name: own}, NODE, to_settings(row)).own == {}


def test_every_reason_is_in_the_manual():
    manual = Path(__file__).parents[4] / "packaging/man/podslice-kubelet.7.md"
    reasons = {left.split(" ")[0] for row in ROWS for left in row.get("left", ())}
    # the agent finds these two
    for reason in reasons | {"contested", "failed"}:
        assert f"\n| `{reason}` | " in manual.read_text()


def test_an_older_kubelet_gets_the_values_of_a_newer_one():
    """Slices with the values of the containers alone get those that kubelet 1.36.2 has set."""
    node = RecordedNode()
    node.pods = [pod for pod in node.pods if "resources" in pod["spec"]]
    pods = parse_pod_list(json.dumps(node.document()).encode(), "pods.json")
    settings = read_settings(json.dumps(node.config).encode(), "config.yaml", version=(1, 33))
    recorded = {u.name.rpartition("-")[2]: u for u in node.observed().values()}
    plan = plan_levels(pods, older_slices(pods, settings), {}, NODE, settings)
    assert len(plan.changes) == len(pods) == 4
    for change in plan.changes:
        newer = recorded[change.unit.rpartition("-")[2]].properties
        # MemoryLow is podslice's own, and a weight that the containers give as well is not set
        for name, unset in (
            ("CPUQuotaPerSecUSec", UNSET["CPUQuotaPerSecUSec"]),
            ("CPUWeight", newer["CPUWeight"]),
            ("MemoryMax", UNSET["MemoryMax"]),
        ):
            assert change.values.get(name, unset) == newer[name]


def older_slices(pods, settings):
    """Return the slices with what a kubelet without pod levels sets."""
    probe = plan_levels(pods, {}, {}, NODE, settings)
    return {
        each.unit: SliceState(
            unit=ObservedUnit(
                name=each.unit,
                description=f"libcontainer container {each.unit}",
                properties={**UNSET},
            )
        )
        for each in probe.left
    }
