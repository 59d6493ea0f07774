"""The verbs that look at what is there: status, tree."""

import asyncio
import json

import pytest

from tests.unit.builders import make_files, manifest

STATUS = """\
NAME                         QOS        STATE   WEIGHT  QUOTA  MEM LOW  MEM MAX  USED  CPU TIME  TASKS
kubepods.slice               -          active  800     -      256Mi    32Gi     -     -         -
  kubepods-burstable.slice   -          active  75      -      256Mi    -        -     -         -
    shop/web                 Burstable  active  75      125%   256Mi    -        -     -         -
  kubepods-besteffort.slice  -          active  1       -      -        -        -     -         -
"""

TREE = """\
NAME                          USED  SETTINGS
kubepods.slice                -     CPUWeight=800 MemoryLow=256Mi MemoryMax=32Gi
├─ kubepods-burstable.slice   -     CPUWeight=75 MemoryLow=256Mi
│  └─ shop/web Burstable      -     CPUQuota=125% CPUWeight=75 MemoryLow=256Mi
└─ kubepods-besteffort.slice  -     CPUWeight=1
"""

POD = "kubepods-burstable-podweb.slice"


@pytest.fixture
def web(podslice, files, memory):
    """A pod that is applied."""
    files(
        {
            "web.json": manifest(
                "web", {"cpu": "750m", "memory": "256Mi"}, {"cpu": "1250m"}
            ).replace('"name": "web"', '"name": "web", "namespace": "shop", "uid": "web"')
        }
    )
    assert podslice("apply", "-f", "web.json").code == 0


def test_status_of_nothing(podslice, memory):
    assert podslice("status") == (0, "no pods\n", "")
    assert podslice("tree") == (0, "no pods\n", "")
    assert podslice("status", "-o", "name") == (0, "", "")


def test_status(podslice, web):
    assert podslice("status") == (0, STATUS, "")


def test_tree(podslice, web):
    assert podslice("tree") == (0, TREE, "")


def test_tree_joins_its_branches(podslice, files, memory):
    limits = {"cpu": 1, "memory": "1Gi"}
    files({"a.yaml": manifest("a", limits=limits), "b.yaml": manifest("b", limits=limits)})
    files({"c.yaml": manifest("c"), "d.yaml": manifest("d")})
    podslice("apply", "-f", ".")
    rows = podslice("tree").out.splitlines()[1:]
    assert [row.partition("  -  ")[0].rstrip() for row in rows] == [
        "kubepods.slice",
        "├─ default/a Guaranteed",
        "├─ default/b Guaranteed",
        "├─ kubepods-burstable.slice",
        "└─ kubepods-besteffort.slice",
        "   ├─ default/c BestEffort",
        "   └─ default/d BestEffort",
    ]


async def drift(memory):
    await memory.set_properties(POD, {"CPUWeight": 1, "TasksMax": 9})
    await memory.stop("kubepods-besteffort.slice")


@pytest.fixture
def drifted(web, memory):
    """Somebody has changed things by hand."""
    asyncio.run(drift(memory))


def test_status_tells_every_difference(podslice, drifted):
    ended = podslice("status")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.splitlines()[-3:] == [
        f"{POD}: CPUWeight is 1, should be 75",
        f"{POD}: TasksMax is 9, should be unset",
        "kubepods-besteffort.slice is missing",
    ]
    assert " 1!" in ended.out


def test_tree_marks_differences_and_ends_well(podslice, drifted):
    ended = podslice("tree")
    assert ended.code == 0
    assert "CPUWeight=1!" in ended.out
    assert "TasksMax=9!" in ended.out


def test_status_as_json(podslice, drifted):
    ended = podslice("status", "-o", "json")
    assert ended.code == 3
    document = json.loads(ended.out)
    units = {unit["name"]: unit for unit in document["units"]}
    assert document["in_sync"] is False
    assert units[POD]["differs"]
    assert units[POD]["settings"][-1] == {
        "name": "TasksMax",
        "desired": None,
        "systemd": 9,
        "kernel": None,
    }
    assert units["kubepods-besteffort.slice"]["state"] == "missing"
    assert not units["kubepods.slice"]["differs"]
    assert [step["action"] for step in document["steps"]] == ["start", "set"]


def test_status_shows_usage_and_the_kernels_view(podslice, web, here):
    group = f"cgroup/kubepods.slice/kubepods-burstable.slice/{POD}"
    make_files(
        here,
        {
            "cgroup/cgroup.controllers": "",
            f"{group}/cpu.max": "125000 100000\n",
            f"{group}/cpu.stat": "usage_usec 1250000\n",
            f"{group}/memory.current": "1363149\n",
            f"{group}/pids.current": "3\n",
        },
    )
    (row,) = (line for line in podslice("status").out.splitlines() if "shop/web" in line)
    assert row.split()[-3:] == ["1.3Mi", "1.25s", "3"]
    wide = podslice("status", "-o", "wide").out
    assert f"{POD}  CPUQuota   125%     125%     125000 100000\n" in wide
    (unit,) = (
        unit
        for unit in json.loads(podslice("status", "-o", "json").out)["units"]
        if unit["name"] == POD
    )
    assert unit["usage"] == {"memory_bytes": 1363149, "cpu_usec": 1250000, "tasks": 3}


def test_slices_of_nobody_are_told(podslice, web, memory):
    memory.provide("kubepods-podforeign.slice")
    for verb, code in (("status", 0), ("tree", 0)):
        ended = podslice(verb)
        assert ended.code == code
        assert ended.err == (
            "kubepods-podforeign.slice is no pod's: it was not made by podslice, or its pod is"
            " unknown\n"
        )


def test_a_broken_record_is_a_difference(podslice, web, here):
    record = here / "run-False/pods/other.json"
    record.write_text("{")
    ended = podslice("status")
    assert ended.code == 3
    assert ended.err == f"{record} is no record of a pod; the next apply removes it\n"


def test_status_names_the_units(podslice, web):
    assert podslice("status", "-o", "name").out.splitlines() == [
        "kubepods.slice",
        "kubepods-burstable.slice",
        POD,
        "kubepods-besteffort.slice",
    ]


def test_status_needs_systemd(podslice, no_systemd):
    said = "error: unix:path=/run/dbus: no such file or directory\n"
    assert podslice("status") == (1, "", said)
