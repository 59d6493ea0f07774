"""`apply --confirm`, `confirm`, and the output of the other verbs before it."""

import json

import pytest

from tests.unit.builders import manifest

SLICE = "podruntime.slice"
MI = 2**20
RESERVE = (
    "--set=kube-reserved=cpu=500m,memory=64Mi",
    f"--set=kube-reserved-cgroup=/{SLICE}",
    "--set=enforce-node-allocatable=pods,kube-reserved",
)
APPLY = ("apply", "-f", "web.yaml", *RESERVE)


@pytest.fixture(autouse=True)
def reserved(memory, files, tmp_path, monkeypatch):
    """A manifest, a slice to reserve for, and a systemctl that is never run."""
    files({"web.yaml": manifest("web", requests={"cpu": "1"})})
    memory.provide(SLICE)
    path = tmp_path / "bin/systemctl"
    path.parent.mkdir()
    path.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(path.parent))


def test_what_is_not_confirmed_is_in_status(podslice, memory):
    podslice(*APPLY, "--confirm=60")
    ended = podslice("status", *RESERVE)
    assert ended.code == 0
    assert f"the old values of {SLICE} are restored in " in ended.err
    document = json.loads(podslice("status", "-o", "json", *RESERVE).out)["unconfirmed"]
    assert (document["state"], 0 < document["remaining_sec"] <= 60) == ("armed", True)
    assert document["units"] == [
        {
            "unit": SLICE,
            "properties": [
                {"name": "CPUWeight", "old": "infinity", "new": 50},
                {"name": "MemoryMax", "old": "infinity", "new": 64 * MI},
            ],
        }
    ]
    podslice("confirm")
    assert "unconfirmed" not in json.loads(podslice("status", "-o", "json", *RESERVE).out)
