"""`render`."""

import json
import re

from tests.unit.builders import manifest
from tests.unit.cli.pods import FULL

RENDER_JSON = """\
{
  "version": 1,
  "units": [
    {
      "name": "kubepods.slice",
      "kind": "slice",
      "parent": "-.slice",
      "control_group": "/kubepods.slice",
      "properties": {
        "CPUWeight": 800,
        "MemoryLow": 268435456,
        "MemoryMax": 34359738368
      }
    },
    {
      "name": "kubepods-burstable.slice",
      "kind": "slice",
      "parent": "kubepods.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice",
      "properties": {
        "CPUWeight": 75,
        "MemoryLow": 268435456
      }
    },
    {
      "name": "kubepods-besteffort.slice",
      "kind": "slice",
      "parent": "kubepods.slice",
      "control_group": "/kubepods.slice/kubepods-besteffort.slice",
      "properties": {
        "CPUWeight": 1
      }
    },
    {
      "name": "kubepods-burstable-pod0a1b_2c.slice",
      "kind": "slice",
      "parent": "kubepods-burstable.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice",
      "properties": {
        "CPUQuotaPerSecUSec": 1250000,
        "CPUWeight": 75,
        "MemoryLow": 268435456
      }
    },
    {
      "name": "podslice-pod0a1b_2c-app.scope",
      "kind": "scope",
      "parent": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice/podslice-pod0a1b_2c-app.scope",
      "properties": {
        "CPUQuotaPerSecUSec": 1000000,
        "CPUWeight": 50,
        "MemoryLow": 268435456,
        "MemoryMax": 536870912
      }
    },
    {
      "name": "podslice-pod0a1b_2c-log.scope",
      "kind": "scope",
      "parent": "kubepods-burstable-pod0a1b_2c.slice",
      "control_group": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c.slice/podslice-pod0a1b_2c-log.scope",
      "properties": {
        "CPUQuotaPerSecUSec": 250000,
        "CPUWeight": 25
      }
    }
  ]
}
"""

RENDER_WIDE = """\
UNIT                                 PROPERTIES
kubepods.slice                       CPUWeight=800 MemoryLow=256Mi MemoryMax=32Gi
kubepods-burstable.slice             CPUWeight=75 MemoryLow=256Mi
kubepods-besteffort.slice            CPUWeight=1
kubepods-burstable-pod0a1b_2c.slice  CPUQuota=125% CPUWeight=75 MemoryLow=256Mi
podslice-pod0a1b_2c-app.scope        CPUQuota=100% CPUWeight=50 MemoryLow=256Mi MemoryMax=512Mi
podslice-pod0a1b_2c-log.scope        CPUQuota=25% CPUWeight=25
"""


def test_render_of_a_pod_with_everything(podslice, files):
    """The mount has its structure, and the slice what holds once init containers have finished."""
    files({"web.yaml": FULL})
    document = json.loads(podslice("render", "-f", "web.yaml", "-o", "json").out)
    units = {unit["name"]: unit for unit in document["units"]}
    slice_ = units["kubepods-burstable-pod12_34.slice"]
    assert slice_["properties"]["MemoryMax"] == 1040 * 2**20
    assert slice_["hugetlb_bytes"] == {str(2**21): 2**22}
    mount = units["run-podslice-pods-12\\x2d34-volumes-my\\x2dcache.mount"]
    assert mount["kind"] == "mount"
    assert mount["parent"] == slice_["name"]
    assert mount["properties"] == {}
    assert mount["structure"]["Options"] == f"mode=1777,nosuid,nodev,size={64 * 2**20}"
    assert "podslice-pod12_34-overhead.scope" in units
    wide = podslice("render", "-f", "web.yaml", "-o", "wide").out
    assert re.search(
        r"^run-\S+\.mount +What=tmpfs Type=tmpfs Options=mode=1777,.* LazyUnmount=yes$",
        wide,
        re.MULTILINE,
    )
    assert ".mount" not in podslice("render", "-f", "web.yaml").out
    assert ".mount" not in podslice("render", "-f", "web.yaml", "--user", "-o", "name").out


def test_render_writes_no_files_for_scopes_and_mounts(podslice, files, tmp_path):
    files({"web.yaml": FULL})
    podslice("render", "-f", "web.yaml", "--output-dir", str(tmp_path / "units"))
    names = [path.name for path in (tmp_path / "units").iterdir()]
    assert "kubepods-burstable-pod12_34.slice" in names
    assert {name.rpartition(".")[2] for name in names} == {"slice"}
    text = (tmp_path / "units/kubepods-burstable-pod12_34.slice").read_text()
    assert "MemoryMax=1090519040\n" in text


def test_render_as_json(podslice, web):
    assert podslice("render", "-f", web, "-o", "json") == (0, RENDER_JSON, "")


def test_render_as_table(podslice, web):
    assert podslice("render", "-f", web, "-o", "wide") == (0, RENDER_WIDE, "")
    slices = [line for line in RENDER_WIDE.splitlines() if ".scope" not in line]
    assert podslice("render", "-f", web).out.splitlines() == slices


def test_render_into_a_directory(podslice, web, tmp_path):
    ended = podslice("render", "-f", web, "--output-dir", "units")
    assert ended == (
        0,
        (
            "units/kubepods.slice\n"
            "units/kubepods-burstable.slice\n"
            "units/kubepods-besteffort.slice\n"
            "units/kubepods-burstable-pod0a1b_2c.slice\n"
        ),
        "",
    )
    pod = tmp_path / "work/units/kubepods-burstable-pod0a1b_2c.slice"
    assert "Description=Pod shop/web (Burstable)\n" in pod.read_text()
    assert podslice("render", "-f", web, "--output-dir", "units").code == 0


def test_render_leaves_foreign_files_alone(podslice, web, files):
    files({"units/kubepods.slice": "[Slice]\n"})
    ended = podslice("render", "-f", web, "--output-dir", "units")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "error: units/kubepods.slice: the file exists and was not generated by podslice"
    )


def test_render_into_a_file_is_an_error(podslice, web):
    ended = podslice("render", "-f", web, "--output-dir", web)
    assert ended == (1, "", f"error: {web}: File exists\n")


def test_render_of_invalid_manifests_writes_no_files(podslice, files, tmp_path):
    files({"a.yaml": manifest("a", {"cpu": 2}, {"cpu": 1})})
    ended = podslice("render", "-f", "a.yaml", "--output-dir", "units")
    assert (ended.code, ended.out) == (2, "")
    assert not (tmp_path / "work/units").exists()


def test_render_reports_pods_that_do_not_fit(podslice, files):
    files({"a.yaml": manifest("a", {"cpu": 9}), "b.yaml": manifest("b")})
    ended = podslice("render", "-f", ".", "-o", "name")
    assert ended.code == 1
    assert ended.err == (
        "pod default/a refused: OutOfcpu: requests 9 of cpu, 8 is free (0 of 8 is requested)\n"
    )
    assert "besteffort-pod" in ended.out
