"""The slices of the host, from a tree of files."""

from podslice.features.simulate.sharing import CpuGroup
from podslice.features.simulate.verb import read_host_slices, usual_slices
from podslice.kernel.cgroup import CgroupFs
from podslice.model.unit import SYSTEM
from tests.unit.builders import USER, make_files

BUSY = {"cgroup.events": "populated 1\nfrozen 0\n"}


def cgroups(tmp_path, tree):
    make_files(tmp_path, {"cgroup.controllers": "cpu memory\n"})
    for name, contents in tree.items():
        make_files(tmp_path, {f"{name}/{file}": text for file, text in contents.items()})
    return CgroupFs(mount=tmp_path)


def test_slices_with_processes_and_what_they_have(tmp_path):
    fs = cgroups(
        tmp_path,
        {
            "user.slice": {**BUSY, "cpu.weight": "100\n", "cpu.max": "max 100000\n"},
            "system.slice": {
                **BUSY,
                "cpu.weight": "250\n",
                "cpu.max": "75000 50000\n",
                "cpuset.cpus": "0-1,4\n",
            },
            "machine.slice": {"cgroup.events": "populated 0\nfrozen 0\n", "cpu.weight": "7\n"},
            "init.scope": BUSY,
        },
    )
    busy = CpuGroup(name="system.slice", weight=250, quota_milli=1500, cpus=frozenset({0, 1, 4}))
    assert read_host_slices(fs, SYSTEM) == (busy, CpuGroup(name="user.slice"))


def test_slices_of_a_user_s_manager(tmp_path):
    name = f"{USER.control_group[1:]}/app.slice"
    fs = cgroups(tmp_path, {"system.slice": BUSY, name: BUSY})
    assert read_host_slices(fs, USER) == (CpuGroup(name="app.slice"),)


def test_without_the_cpu_controller_they_have_the_defaults(tmp_path):
    fs = cgroups(tmp_path, {"system.slice": {**BUSY, "cpuset.cpus": "\n"}})
    assert read_host_slices(fs, SYSTEM) == (CpuGroup(name="system.slice"),)


def test_a_directory_that_is_not_a_slice_is_ignored(tmp_path):
    fs = cgroups(tmp_path, {"a--b.slice": BUSY, "a\n.slice": BUSY})
    assert read_host_slices(fs, SYSTEM) == ()


def test_what_is_assumed_where_there_is_nothing_to_read(tmp_path):
    v1 = CgroupFs(mount=tmp_path)
    usual = (CpuGroup(name="system.slice"), CpuGroup(name="user.slice"))
    assert read_host_slices(v1, SYSTEM) == usual_slices(SYSTEM) == usual
    v2 = cgroups(tmp_path, {"system.slice": BUSY})
    assert read_host_slices(v2, USER) == usual_slices(USER) == ()
