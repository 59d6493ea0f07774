"""Every rule on which the two sets differ has a manifest, and the manual an entry for it."""

import tomllib
from pathlib import Path

import pytest

from podslice.inputs.manifest.load import load_pods
from podslice.model.config import Config, SwapBehavior
from podslice.model.node import Node
from podslice.policy.decide import compare_rules

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "examples/rules"
ROWS = tomllib.loads((Path(__file__).parent / "rule_differences.toml").read_text())["case"]
NODE = Node(capacity={"cpu": 8_000, "memory": 32 * 2**30 * 1000})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_rules_differ_in_this_and_nothing_else(row):
    loaded = load_pods([str(RULES / f"{row['name']}.yaml")], stdin=bytes)
    (pod,) = loaded.pods
    config = (
        Config() if row.get("has_swap") else Config(memory_swap_behavior=SwapBehavior.UNLIMITED)
    )
    found = [
        [each.what, each.proposal, each.kubernetes]
        for each in compare_rules(pod, NODE, config)
        if each.what != "slice"  # it goes with the class
    ]
    assert found == row["differences"]


def test_every_manifest_has_a_row_here_and_an_entry_in_the_manual():
    names = {path.stem for path in RULES.glob("*.yaml")}
    assert names == {row["name"] for row in ROWS}
    manual = (ROOT / "packaging/man/podslice-policy.7.md").read_text()
    assert all(f"Example: `{name}.yaml`." in manual for name in names)
