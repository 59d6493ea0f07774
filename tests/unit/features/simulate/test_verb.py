"""`simulate`."""

import json
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from podslice.cli import host as host_module
from podslice.features.simulate.sharing import CpuGroup, MemorySharing, SimulatedUnit, Simulation
from podslice.features.simulate.view import svg
from tests.cases.tables import cases
from tests.unit.builders import decisions, guaranteed, make_files, manifest, node
from tests.unit.cli.verbs.test_validation import check_compose, check_typo

DB = {"cpu": "1", "memory": "1Gi"}
PODS = {
    "db.yaml": manifest("db", limits=DB),
    "web.yaml": manifest("web", {"cpu": "3"}),
    "batch.yaml": manifest("batch"),
}

# 8 CPUs: the pods have 8 × 800/1000; db has 1 of them, and of the rest web 300/301
TABLE = """\
NAME                         WEIGHT  REQUEST  LIMIT   CPU
system.slice                    100        -      -  0.80  ██░░░░░░░░░░░░░░░░░░
user.slice                      100        -      -  0.80  ██░░░░░░░░░░░░░░░░░░
kubepods.slice                  800        -      -  6.40  ████████████████░░░░
  kubepods-burstable.slice      300        -      -  5.38  █████████████░░░░░░░
    default/web                 300        3      -  5.38  █████████████░░░░░░░
  kubepods-besteffort.slice       1        -      -  0.02  ░░░░░░░░░░░░░░░░░░░░
    default/batch                 1        -      -  0.02  ░░░░░░░░░░░░░░░░░░░░
  default/db                    100        1      1  1.00  ██░░░░░░░░░░░░░░░░░░

NAME           REQUEST  LIMIT  PROTECTED  RECLAIMABLE  OOM SCORE  EVICTED
default/batch        -      -        0 B       32 GiB       2000        1
default/web          -      -        0 B       32 GiB       1999        2
default/db       1 GiB  1 GiB      1 GiB          0 B          0        -

The pods can use 65 GiB of 32 GiB together: 33 GiB is overcommitted.
Without a memory limit: default/batch, default/web.
"""


@pytest.fixture
def pods(files):
    files(PODS)


@cases
def test_what_is_printed(case, expect):
    expect(case)


def test_a_very_long_number_is_shortened(podslice, pods):
    ended = podslice("simulate", "-f", ".", f"--threads=db={'9' * 5000}")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: --threads: 'db={'9' * 61}' is not NAME=NUMBER with a number from 1 to 100000;"
        " as web=2\n"
    )


def test_the_pods_of_manifests(podslice, pods):
    assert podslice("simulate", "-f", ".") == (0, TABLE, "")


def test_a_document(podslice, pods):
    ended = podslice("simulate", "-f", "db.yaml", "--allowed-cpus=db=0,2-3", "-o", "json")
    document = json.loads(ended.out)
    assert document["cpus"] == 8
    assert document["units"][0] == {
        "name": "system.slice",
        "parent": None,
        "weight": 100,
        "quota_cpu_milli": None,
        "threads": None,
        "allowed_cpus": None,
        "cpu_milli": 3500,
    }
    scope = document["units"][-1]
    assert scope["name"].endswith("-main.scope")
    assert scope["parent"] == document["units"][-2]["name"]
    assert (scope["quota_cpu_milli"], scope["allowed_cpus"]) == (1000, [0, 2, 3])
    assert document["units"][2]["threads"] is None  # of a slice with others in it
    assert document["pods"] == [
        {
            "namespace": "default",
            "name": "db",
            "qos": "Guaranteed",
            "requested_cpu_milli": 1000,
            "limit_cpu_milli": 1000,
            "cpu_milli": 1000,
            "requested_memory_bytes": 2**30,
            "limit_memory_bytes": 2**30,
            "protected_memory_bytes": 2**30,
            "reclaimable_memory_bytes": 0,
            "oom_score": 0,
            "eviction_rank": None,
        }
    ]
    assert document["memory"] == {
        "available_bytes": 2**35,
        "limit_bytes": 2**30,
        "overcommitted_bytes": 0,
    }


def test_the_kernel_counts_swap_in_scores(podslice, pods, monkeypatch):
    host = node("cpu=8,memory=32Gi")
    for swap_bytes, score in ((0, 2000), (32 * 2**30, 1500)):  # 32 of 32, or of 64, and 1000
        found = replace(host, swap_bytes=swap_bytes)
        monkeypatch.setattr(host_module, "read_node", lambda found=found, **_: found)
        document = json.loads(podslice("simulate", "-f", "batch.yaml", "-o", "json").out)
        assert [each["oom_score"] for each in document["pods"]] == [score]


def test_containers_and_units_in_wide_output(podslice, pods):
    cpu, memory, summary = podslice("simulate", "-f", "db.yaml", "-o", "wide").out.split("\n\n")
    rows = cpu.splitlines()
    assert rows[-1].split()[0].startswith("podslice-pod")
    assert rows[-2].split()[0].startswith("kubepods-pod")
    assert memory.splitlines()[1].split() == ["default/db", "1Gi", "1Gi", "1Gi", "0", "0", "-"]
    assert summary == "The pods can use 1Gi of 32Gi together.\n"


def test_the_slices_of_this_host_or_of_another_one(podslice, pods, here):
    events = {"cgroup.events": "populated 1\n", "cpu.weight": "300\n"}
    make_files(here / "cgroup", {"cgroup.controllers": "cpu\n"})
    make_files(here / "cgroup/machine.slice", events)
    document = json.loads(podslice("simulate", "-f", "web.yaml", "-o", "json").out)
    assert [each["weight"] for each in document["units"]][:2] == [300, 800]
    other = ("--capacity=cpu=2500m,memory=8Gi", "-o", "json")
    document = json.loads(podslice("simulate", "-f", "web.yaml", "--admission=false", *other).out)
    assert document["cpus"] == 3
    assert [each["name"] for each in document["units"]][:2] == ["system.slice", "user.slice"]


def test_a_reserved_slice_can_be_named(podslice, pods):
    reserved = (
        "--kube-reserved=cpu=1",
        "--kube-reserved-cgroup=/podruntime.slice",
        "--enforce-node-allocatable=pods,kube-reserved",
    )
    ended = podslice("simulate", *reserved, "--threads=podruntime.slice=1", "-o", "json")
    units = json.loads(ended.out)["units"]
    assert [(each["name"], each["cpu_milli"]) for each in units][2] == ("podruntime.slice", 1000)


def test_many_pods_without_a_limit_are_counted(podslice, files):
    files({f"{n}.yaml": manifest(f"pod-{n}") for n in range(7)})
    last = podslice("simulate", "-f", ".").out.splitlines()[-1]
    names = ", ".join(f"default/pod-{n}" for n in range(5))
    assert last == f"Without a memory limit: {names} and 2 more."


def test_a_critical_pod_is_never_evicted(podslice, files):
    files({"a.yaml": manifest("a", priority=2_000_001_000)})
    row = podslice("simulate", "-f", "a.yaml").out.split("\n\n")[1].splitlines()[1]
    assert row.split()[-2:] == ["3", "-"]


def test_a_picture(podslice, pods, tmp_path):
    file = tmp_path / "shares.svg"
    assert podslice("simulate", "-f", ".", "--plot", str(file)) == (0, TABLE, "")
    svg = "{http://www.w3.org/2000/svg}"
    root = ET.parse(file).getroot()  # noqa: S314 - written by podslice
    texts = [each.text for each in root.iter(f"{svg}text")]
    assert texts[:3] == ["Simulated use of 8 CPUs; requests in red", "system.slice", "0.80"]
    assert texts[-2:] == ["default/db", "1.00"]
    rows = {}
    for each in root.iter(f"{svg}rect"):
        rows.setdefault(each.get("y"), []).append((each.get("x"), each.get("width")))
    shown = list(rows.values())
    assert len(shown) == 9  # with the background
    # 400 pixels are 8 CPUs: web has 5.38 of the requested 3, db 1 of 1
    assert shown[5] == [("360.0", "400.0"), ("360.0", "269.1"), ("509.0", "2.0")]
    assert shown[8] == [("360.0", "400.0"), ("360.0", "50.0"), ("409.0", "2.0")]


def test_a_picture_with_names_that_are_markup_and_a_request_above_all():
    (decision,) = decisions(guaranteed("a", cpu="9"))
    unit = SimulatedUnit(
        group=CpuGroup(name="a"),
        label="<a>&",
        depth=1,
        parent="",
        cpu_milli=1000,
        pod=decision,
        is_container=False,
    )
    text = svg(Simulation(cpu_count=4, units=(unit,), memory=MemorySharing(0, ())))
    root = ET.fromstring(text)  # noqa: S314 - as above
    assert [each.text for each in root if each.tag.endswith("text")][1:] == ["<a>&", "1.00"]
    assert root[-2].get("x") == "759.0"


def test_a_picture_as_png(podslice, pods, tmp_path, allow_effects):
    """Matplotlib runs `fc-list` when a user draws for the first time."""
    pytest.importorskip("matplotlib")
    file = tmp_path / "shares.png"
    assert podslice("simulate", "-f", ".", "--plot", str(file)).code == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib(podslice, pods, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ended = podslice("simulate", "--plot=shares.png")
    assert ended == (
        1,
        "",
        (
            "error: --plot: PNG requires matplotlib, which is not installed; write a file that ends"
            " in .svg, or install python3-matplotlib\n"
        ),
    )


def test_invalid_manifests(podslice, files, memory):
    check_typo("simulate", podslice, files)


def test_a_compose_project(podslice, files, memory):
    check_compose("simulate", podslice, files)
