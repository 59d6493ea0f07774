"""Recorded usage in `status POD` and `top`."""

import asyncio
import json

import pytest

from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory
from tests.unit.cli.verbs.test_status_pod import COUNTERS, GROUP, SHOP
from tests.unit.cli.verbs.test_top import MI, A, B
from tests.unit.features.history.rows import to_history


@pytest.fixture
def recorded(here):
    """A day of a steady load of the pod: 100m and 40 MiB."""
    history, end_sec = to_history({"series": [{"hours": 24, "cpu": 100, "memory": 40}]})
    files = UsageFiles(here / "usage")
    files.write(files.pod_path("default/shop"), PodHistory(pod=history))
    return end_sec


def test_bars_show_the_request_and_the_recorded_usage(shop, recorded, podslice, monkeypatch):
    monkeypatch.setattr("podslice.features.history.files.time.time", lambda: recorded)
    use = podslice("status", "shop", "--exit-zero").out.partition("USE\n")[2]
    cpu, memory, tasks, *_ = use.splitlines()
    assert "  ░░░░P░░░░░R░░░░░░░░░  " in cpu
    assert cpu.endswith(" of 0.50 CPUs; R: requested 0.25; P: 90th percentile 0.11")
    assert memory.split()[1] == "██R█████████P██░░░░░"
    assert memory.endswith("48 MiB of 64 MiB; R: requested 8 MiB; P: 90th percentile 41.1 MiB")
    assert tasks.endswith("5, no limit")
    found = json.loads(podslice("status", "shop", "-o", "json").out)["pod"]
    assert found["usage_p90"] == {"cpu_milli": 110, "memory_working_set_bytes": 43101250}


@pytest.mark.usefixtures("memory", "events")
def test_without_a_limit_the_bar_is_as_long_as_the_largest_amount(
    here, podslice, files, recorded, monkeypatch
):
    monkeypatch.setattr("podslice.features.history.files.time.time", lambda: recorded)
    text = SHOP.replace("  resources: {limits: {cpu: 500m, memory: 64Mi}}\n", "")
    files({"shop.yaml": text})
    assert podslice("apply", "-f", "shop.yaml").code == 0
    group = here / "cgroup" / GROUP
    group.mkdir(parents=True)
    for name, content in COUNTERS.items():
        (group / name).write_text(content)
    (here / "cgroup/cgroup.controllers").write_text("cpu memory pids\n")
    use = podslice("status", "shop", "--exit-zero").out.partition("USE\n")[2]
    row = use.splitlines()[1]
    assert row.split()[1] == "███R█████████████P██"
    assert row.endswith("48 MiB, no limit; R: requested 8 MiB; P: 90th percentile 41.1 MiB")


@pytest.mark.parametrize("directory", ["", None])
def test_without_a_history_bars_are_of_the_limits(shop, podslice, here, monkeypatch, directory):
    if directory is None:
        path = UsageFiles(here / "usage").pod_path("default/shop")
        path.parent.mkdir(parents=True)
        path.write_text("{")
    else:
        monkeypatch.setattr("podslice.cli.host.usage_directory", lambda *_: directory)
    assert "R:" not in podslice("status", "shop", "--exit-zero").out
    found = json.loads(podslice("status", "shop", "-o", "json", "--exit-zero").out)["pod"]
    assert found["usage_p90"] is None


def test_recorded_usage_is_read_again_when_the_agent_has_written(eyes, here, monkeypatch):
    files, read = UsageFiles(here / "usage"), []
    path = files.pod_path(A.pod.key)
    history, end_sec = to_history({"series": [{"hours": 1, "cpu": 100, "memory": 40}]})
    monkeypatch.setattr("podslice.features.history.files.time.time", lambda: end_sec)
    original = UsageFiles.read
    monkeypatch.setattr(UsageFiles, "read", lambda *each: read.append(each) or original(*each))
    looking = eyes()

    def marks():
        usage = asyncio.run(looking.observe()).usage
        return {pod.name: (pod.cpu_marks, pod.memory_marks) for pod in usage.pods}

    assert marks() == {A.pod.key: ({}, {}), B.pod.key: ({}, {})}
    files.write(path, PodHistory(pod=history))
    expected = {"R": 500, "P": 110}, {"R": 256 * MI, "P": 43_101_250}
    assert marks()[A.pod.key] == marks()[A.pod.key] == expected
    assert len(read) == 1
    path.write_text("{")
    assert marks()[A.pod.key] == ({}, {})
    assert len(read) == 2
