import pytest

from podslice.errors import HostError
from podslice.kernel.cgroup import CgroupFs, limit_hugepages
from tests.unit.builders import make_files

ROOT = "/kubepods.slice"
TIER = f"{ROOT}/kubepods-burstable.slice"
POD = f"{TIER}/kubepods-burstable-podweb.slice"
SCOPE = f"{POD}/podslice-podweb-main.scope"
GROUPS = ("", ROOT, TIER, POD, SCOPE)


@pytest.fixture
def mount(tmp_path):
    """Control groups of which the top one hands the controller down, and no other."""
    files = {f"{group[1:]}/cgroup.subtree_control": "cpu\n" for group in GROUPS if group}
    files |= {f"{group[1:]}/hugetlb.2MB.max": "max\n" for group in (POD, SCOPE)}
    files |= {"cgroup.controllers": "", "cgroup.subtree_control": "cpu hugetlb\n"}
    return make_files(tmp_path, files)


def read(mount, group, name):
    return (mount / group[1:] / name).read_text()


def controls(mount):
    return [read(mount, group, "cgroup.subtree_control") for group in GROUPS]


def test_a_pod_is_limited_and_its_parents_hand_the_controller_down(mount):
    limit_hugepages(CgroupFs(mount=mount), ROOT, POD, {"hugetlb.2MB.max": 2**23})
    assert read(mount, POD, "hugetlb.2MB.max") == "8388608"
    assert controls(mount) == ["cpu hugetlb\n", "+hugetlb", "+hugetlb", "cpu\n", "cpu\n"]
    assert read(mount, SCOPE, "hugetlb.2MB.max") == "max\n"


def test_for_a_container_its_pod_hands_it_down_too(mount):
    limit_hugepages(CgroupFs(mount=mount), ROOT, SCOPE, {"hugetlb.2MB.max": 0})
    assert read(mount, SCOPE, "hugetlb.2MB.max") == "0"
    assert controls(mount) == ["cpu hugetlb\n", "+hugetlb", "+hugetlb", "+hugetlb", "cpu\n"]


def test_what_hands_it_down_already_is_not_written(mount):
    for group in (ROOT, TIER):
        (mount / group[1:] / "cgroup.subtree_control").write_text("cpu hugetlb\n")
    before = controls(mount)
    limit_hugepages(CgroupFs(mount=mount), ROOT, POD, {"hugetlb.2MB.max": 0})
    assert controls(mount) == before


@pytest.mark.parametrize(
    "group", ["/", "/system.slice", "/kubepods.slicer/a", f"{ROOT}/../system.slice"]
)
def test_nothing_outside_the_root_is_written(mount, group):
    before = controls(mount)
    with pytest.raises(HostError, match=f"{group} is not below {ROOT}"):
        limit_hugepages(CgroupFs(mount=mount), ROOT, group, {"hugetlb.2MB.max": 0})
    assert controls(mount) == before


def test_with_another_root_nothing_above_it_is_written(mount):
    limit_hugepages(CgroupFs(mount=mount), TIER, POD, {"hugetlb.2MB.max": 0})
    assert controls(mount) == ["cpu hugetlb\n", "cpu\n", "+hugetlb", "cpu\n", "cpu\n"]


def test_a_kernel_without_files_of_reserved_pages_is_accepted(mount):
    limit_hugepages(
        CgroupFs(mount=mount), ROOT, POD, {"hugetlb.2MB.max": 5, "hugetlb.2MB.rsvd.max": 5}
    )
    assert read(mount, POD, "hugetlb.2MB.max") == "5"
    assert not (mount / POD[1:] / "hugetlb.2MB.rsvd.max").exists()


def test_a_size_that_the_kernel_does_not_have_is_reported(mount):
    with pytest.raises(HostError, match=r"hugetlb.1GB.max: 5 can't be written: No such file"):
        limit_hugepages(CgroupFs(mount=mount), ROOT, POD, {"hugetlb.1GB.max": 5})


def test_a_failed_write_is_reported_with_its_path(mount):
    (mount / POD[1:] / "hugetlb.2MB.max").unlink()
    (mount / POD[1:] / "hugetlb.2MB.max").mkdir()
    with pytest.raises(HostError) as caught:
        limit_hugepages(CgroupFs(mount=mount), ROOT, POD, {"hugetlb.2MB.max": 5})
    path = mount / POD[1:] / "hugetlb.2MB.max"
    assert str(caught.value) == f"{path}: 5 can't be written: Is a directory"
