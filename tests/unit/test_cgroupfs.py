import pytest

from podslice.cgroupfs import CgroupFs, Usage
from tests.unit.builders import make_files

GROUP = "/kubepods.slice/kubepods-poda.slice"

V2 = {
    "cgroup.controllers": "cpu memory pids\n",
    f"{GROUP[1:]}/cpu.weight": "24\n",
    f"{GROUP[1:]}/cpu.max": "11000 100000\n",
    f"{GROUP[1:]}/cpu.stat": "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
    f"{GROUP[1:]}/memory.min": "0\n",
    f"{GROUP[1:]}/memory.low": "4096\n",
    f"{GROUP[1:]}/memory.high": "max\n",
    f"{GROUP[1:]}/memory.max": "8192\n",
    f"{GROUP[1:]}/memory.current": "5000\n",
    f"{GROUP[1:]}/memory.stat": "anon 1000\nfile 4000\nshmem 10\nslab_unreclaimable 1\n"
    "kernel_stack 2\npagetables 3\npercpu 4\nodd line here\n",
    f"{GROUP[1:]}/pids.max": "max\n",
    f"{GROUP[1:]}/pids.current": "7\n",
}

V1 = {
    f"cpu{GROUP}/cpu.shares": "256\n",
    f"cpu{GROUP}/cpu.cfs_quota_us": "11000\n",
    f"cpuacct{GROUP}/cpuacct.usage": "1500999\n",
    f"memory{GROUP}/memory.limit_in_bytes": "8192\n",
    f"memory{GROUP}/memory.usage_in_bytes": "5000\n",
    f"pids{GROUP}/pids.max": "max\n",
    f"pids{GROUP}/pids.current": "7\n",
}


@pytest.fixture
def v2(tmp_path):
    return CgroupFs(mount=make_files(tmp_path, V2))


@pytest.fixture
def v1(tmp_path):
    return CgroupFs(mount=make_files(tmp_path, V1))


def test_limits_are_in_the_kernels_words(v2):
    assert v2.is_v2
    assert v2.limits(GROUP) == {
        "CPUWeight": "24",
        "CPUQuotaPerSecUSec": "11000 100000",
        "MemoryMin": "0",
        "MemoryLow": "4096",
        "MemoryHigh": "max",
        "MemoryMax": "8192",
        "TasksMax": "max",
    }


def test_limits_of_the_old_layout(v1):
    assert not v1.is_v2
    assert v1.limits(GROUP) == {
        "CPUWeight": "256",
        "CPUQuotaPerSecUSec": "11000",
        "MemoryMax": "8192",
        "TasksMax": "max",
    }


def test_usage(v2):
    assert v2.usage(GROUP) == Usage(memory_bytes=5000, cpu_usec=1500, tasks=7)


def test_usage_of_the_old_layout(v1):
    assert v1.usage(GROUP) == Usage(memory_bytes=5000, cpu_usec=1500, tasks=7)


@pytest.mark.parametrize("files", [{}, {"cgroup.controllers": ""}])
def test_a_group_that_is_not_there_has_nothing(tmp_path, files):
    cgroups = CgroupFs(mount=make_files(tmp_path, files))
    assert cgroups.limits(GROUP) == {}
    assert cgroups.usage(GROUP) == Usage()
    assert cgroups.unreclaimable_bytes(GROUP) is None


def test_a_controller_that_is_off_leaves_its_fields_out(v2):
    for name in ("memory.current", "memory.max", "memory.stat"):
        (v2.mount / GROUP[1:] / name).unlink()
    assert v2.usage(GROUP) == Usage(memory_bytes=None, cpu_usec=1500, tasks=7)
    assert "MemoryMax" not in v2.limits(GROUP)
    assert v2.unreclaimable_bytes(GROUP) is None


def test_the_root_group_is_the_mount_itself(v2):
    make_files(v2.mount, {"pids.current": "3\n"})
    assert v2.usage("/").tasks == 3


def test_unreclaimable_memory_leaves_the_page_cache_out(v2):
    assert v2.unreclaimable_bytes(GROUP) == 1020


def test_the_old_layout_does_not_tell_unreclaimable_memory(v1):
    assert v1.unreclaimable_bytes(GROUP) is None
