"""`node recommend`."""

import json
import time

import pytest
import yaml

from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory
from podslice.features.history.samples import add_cpu, add_memory
from podslice.model.unit import UnitName
from tests.unit.builders import make_files
from tests.unit.features.history.rows import to_history

MI = 2**20
USED = """\
SLICE             HISTORY  CPU P99  CPU PEAK  MEM P99  MEM PEAK
podruntime.slice  24 h     110m     110m      105 MiB  105 MiB
system.slice      24 h     511m     2093m     424 MiB  424 MiB
user.slice        -        -        -         -        -
"""
RESERVED = """\
RESERVATION                   CPU   MEMORY
kube-reserved, now            500m  512 MiB
kube-reserved, recommended    127m  121 MiB
system-reserved, now          -     -
system-reserved, recommended  588m  489 MiB
"""


@pytest.fixture
def record(here, monkeypatch):
    """Write the history of a slice: a steady load, and a last sample of another one."""
    files = UsageFiles(here / "usage")

    def write(unit, cpu, memory, last=None):
        steps = [{"hours": 24, "cpu": cpu, "memory": memory}]
        history, end_sec = to_history({"series": steps})
        if last:
            history = add_cpu(history, last[0], end_sec)
            history = add_memory(history, last[1] * MI, end_sec)
        files.write(files.slice_path(UnitName(unit)), PodHistory(pod=history))
        monkeypatch.setattr(time, "time", lambda: float(end_sec))

    return write


@pytest.fixture
def recorded(here, record):
    """A configured reservation, and the histories of two slices."""
    make_files(here, {"etc/podslice/podslice.toml": 'kube-reserved = "cpu=500m,memory=512Mi"\n'})
    record("podruntime.slice", 100, 100)
    record("system.slice", 500, 100, last=[2000, 400])


def test_the_tables_compare_use_with_reservations(podslice, recorded):
    code, out, err = podslice("node", "recommend")
    assert (code, err) == (0, "")
    used, reserved, why = out.split("\n\n")
    assert used + "\n" == USED
    assert (reserved + "\n").startswith(RESERVED)
    assert [line.split()[2] for line in reserved.splitlines()[5:]] == ["gke", "eks", "aks"]
    assert why.startswith("CPU: the 99th percentile of minutes, and 15 %; memory: the highest peak")


def test_the_document(podslice, recorded):
    found = json.loads(podslice("node", "recommend", "-o", "json").out)
    assert found["slices"][1] == {
        "unit": "system.slice",
        "history_sec": 86_400,
        "samples": 1442,
        "cpu_p99_milli": 511,
        "cpu_peak_milli": 2093,
        "memory_p99_bytes": 445019989,
        "memory_peak_bytes": 445019989,
    }
    assert found["slices"][2]["cpu_p99_milli"] is None
    assert found["reservations"] == {
        "kube-reserved": {
            "current": {"cpu_milli": 500, "memory_bytes": 512 * MI},
            "recommended": {"cpu_milli": 127, "memory_bytes": 121 * MI},
        },
        "system-reserved": {
            "current": {},
            "recommended": {"cpu_milli": 588, "memory_bytes": 489 * MI},
        },
    }
    assert found["providers"].keys() == {"gke", "eks", "aks"}
    assert yaml.safe_load(podslice("node", "recommend", "-o", "yaml").out) == found
    names = podslice("node", "recommend", "-o", "name").out.splitlines()
    assert names == ["podruntime.slice", "system.slice", "user.slice"]


# Source: GKE, "Plan GKE node sizes": of 64 CPUs 60 + 10 + 10 + 60 × 2.5 thousandths; of 256Gi 1Gi + 0.8Gi +
# 0.8Gi + 6.72Gi + 2.56Gi, rounded up. Of this host with 8 CPUs and 32Gi 90m and 3646Mi.
def test_the_formulas_of_providers_are_of_the_stated_capacity(podslice, recorded):
    for options, cpu_milli, memory_mi in (
        ((), 90, 3646),
        (("--set", "capacity=cpu=64,memory=256Gi"), 230, 12166),
    ):
        found = json.loads(podslice("node", "recommend", *options, "-o", "json").out)
        amounts = {"cpu_milli": cpu_milli, "memory_bytes": memory_mi * MI}
        assert found["providers"]["gke"] == amounts


def test_the_slices_are_those_of_the_configuration(podslice, here, record):
    record("daemons.slice", 100, 100)
    text = 'system-reserved-cgroup = "/daemons.slice"\nkube-reserved-cgroup = "/runtime.slice"\n'
    make_files(here, {"etc/podslice/podslice.toml": text})
    found = json.loads(podslice("node", "recommend", "-o", "json").out)
    assert [each["unit"] for each in found["slices"]] == [
        "runtime.slice",
        "daemons.slice",
        "user.slice",
    ]
    assert found["reservations"]["kube-reserved"]["recommended"] is None


def test_without_a_history_the_remedy_is_reported(podslice, here):
    code, out, err = podslice("node", "recommend")
    assert code == 1
    assert [line.split() for line in out.splitlines() if line.startswith("kube-reserved, rec")] == [
        ["kube-reserved,", "recommended", "-", "-"]
    ]
    assert err == (
        "error: no usage of slices is recorded yet; the agent records it, see: systemctl status"
        " podslice-agent\n"
    )


def test_a_damaged_history_is_reported(podslice, here, record):
    record("system.slice", 100, 100)
    path = UsageFiles(here / "usage").slice_path(UnitName("system.slice"))
    path.write_text("{")
    code, _, err = podslice("node", "recommend")
    assert code == 1
    assert "slices/system.slice: not a history of usage" in err


def test_where_nothing_is_recorded_that_is_an_error(podslice, monkeypatch, here):
    monkeypatch.setattr("podslice.cli.host.usage_directory", lambda *_: "")
    code, out, err = podslice("node", "recommend")
    assert (code, out) == (2, "")
    assert err == "error: no usage is recorded; set usage-history to a directory\n"
