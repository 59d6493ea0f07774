"""The work of a round is proportional to what has changed, not to the number of pods.

Units are compared with the desired ones in every round: 2.5 ms for 500 pods.
"""

from collections import Counter
from importlib import import_module

import pytest

from tests.unit.agent.reconciled import Node

WORK = {
    "manifests read": ("podslice.agent.manifests", "read_manifest"),
    "records parsed": ("podslice.store.store", "_parse"),
    "records written": ("podslice.store.store", "write_json"),
    "new pods decided": ("podslice.policy.decide", "decide"),
    "applied pods decided": ("podslice.policy.desire", "decide"),
}
FEW, MANY = 10, 60


def change(node):
    node.put("web-3", {"cpu": "20m"})


def add(node):
    node.put("new", {"cpu": "20m"})


def remove(node):
    node.drop("web-3")


def nothing(_):
    pass


async def count_work(directory, monkeypatch, pods, action):
    """Return the number of calls of each kind, and the calls of the service manager."""
    directory.mkdir()
    node = Node(directory)
    for number in range(pods):
        node.put(f"web-{number}", {"cpu": "10m"})
    await node.settle()
    await node.run_round()
    counts = Counter()

    def counted(what, call):
        def count(*args, **kwargs):
            counts[what] += 1
            return call(*args, **kwargs)

        return count

    with monkeypatch.context() as patch:
        for what, (path, name) in WORK.items():
            module = import_module(path)
            patch.setattr(module, name, counted(what, getattr(module, name)))
        for name in ("observe", "list_units", "start", "start_batch", "set_properties", "stop"):
            patch.setattr(node.memory, name, counted(name, getattr(node.memory, name)))
        observe = node.memory.observe

        async def count_units(patterns):
            units = await observe(patterns)
            counts["units observed"] += len(units)
            return units

        patch.setattr(node.memory, "observe", count_units)
        action(node)
        await node.settle()
    return counts


@pytest.mark.parametrize("action", [nothing, add, change, remove])
async def test_one_change_costs_the_same_among_few_and_many_pods(tmp_path, monkeypatch, action):
    few = await count_work(tmp_path / "few", monkeypatch, FEW, action)
    many = await count_work(tmp_path / "many", monkeypatch, MANY, action)
    assert few == many
    assert many["units observed"] < FEW
    assert many["list_units"], "what other programs have changed is still found"
