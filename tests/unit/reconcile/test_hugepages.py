"""Limits of huge pages."""

from dataclasses import replace

from podslice.plan import SetHugepages
from podslice.reconcile.assess import assess
from tests.unit.builders import (
    make_files,
    node,
    pod,
    world,
)
from tests.unit.reconcile.worlds import put

PAGES = "kubepods-podhuge.slice"


def huge(**fields):
    limits = "cpu=1,memory=1Gi,hugepages-2Mi=8Mi"
    return pod("huge", limits=limits, **fields)


def hugetlb_files(tmp_path, control="cpu hugetlb"):
    group = f"cgroup/kubepods.slice/{PAGES}"
    make_files(
        tmp_path,
        {
            "cgroup/cgroup.controllers": "cpu hugetlb",
            "cgroup/cgroup.subtree_control": control,
            "cgroup/kubepods.slice/cgroup.subtree_control": "",
            f"{group}/hugetlb.2MB.max": "max",
            f"{group}/hugetlb.2MB.rsvd.max": "max",
        },
    )
    return tmp_path / group / "hugetlb.2MB.max"


def reserved_of(file):
    return file.with_name("hugetlb.2MB.rsvd.max").read_text()


def with_huge_pages():
    return {"on": node("cpu=8,memory=32Gi,hugepages-2Mi=64Mi")}


async def test_huge_pages_are_limited_and_drift_is_restored(tmp_path, memory):
    here = world(tmp_path, memory, **with_huge_pages())
    file = hugetlb_files(tmp_path)
    await put(here, huge())
    assert (file.read_text(), reserved_of(file)) == ("8388608", "8388608")
    control = tmp_path / "cgroup/kubepods.slice/cgroup.subtree_control"
    assert control.read_text() == "+hugetlb"
    assert not (await assess(here)).plan
    file.write_text("max")
    report = await put(here)
    assert [type(result.step) for result in report.results] == [SetHugepages]
    assert file.read_text() == "8388608"


async def test_a_pod_without_huge_pages_is_limited_to_none(tmp_path, memory):
    on = replace(node("cpu=8,memory=32Gi"), hugepage_sizes=(2**21,))
    here = world(tmp_path, memory, on=on)
    file = hugetlb_files(tmp_path)
    await put(here, pod("huge", limits="cpu=1,memory=1Gi"))
    assert (file.read_text(), reserved_of(file)) == ("0", "0")
    assert not (await assess(here)).plan


async def test_huge_pages_are_skipped_where_they_can_not_be_limited(tmp_path, memory):
    here = world(tmp_path, memory, **with_huge_pages())
    file = hugetlb_files(tmp_path, control="cpu")
    report = await put(here, huge())
    assert report.exit_code == 0
    assert [(each.unit, each.name) for each in report.skipped] == [(PAGES, "limits of huge pages")]
    assert file.read_text() == "max"
