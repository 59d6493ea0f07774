import pytest

from podslice.kernel.cgroup import CgroupFs, Pressure, Sample, Usage, Waited, parse_pressure
from podslice.model.unit import INFINITY
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


def test_limits_of_files_with_several_values(tmp_path):
    """As Linux 6.12 writes them."""
    group = GROUP[1:]
    texts = {
        "io.weight": "default 200\n8:16 50\n",
        "io.max": (
            "254:0 rbps=10485760 wbps=max riops=700 wiops=max\n"
            "8:16 rbps=max wbps=20971520 riops=max wiops=max\n"
        ),
        "memory.zswap.max": "8388608\n",
    }
    files = {"cgroup.controllers": "", **{f"{group}/{name}": each for name, each in texts.items()}}
    found = CgroupFs(mount=make_files(tmp_path, files)).limits(GROUP)
    assert found == {
        "IOWeight": "200; 8:16 50",
        "IOReadBandwidthMax": "254:0 10485760",
        "IOWriteBandwidthMax": "8:16 20971520",
        "IOReadIOPSMax": "254:0 700",
        "IOWriteIOPSMax": "max",
        "MemoryZSwapMax": "8388608",
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
def test_a_missing_group_is_empty(tmp_path, files):
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


def test_the_old_layout_has_no_unreclaimable_memory(v1):
    assert v1.unreclaimable_bytes(GROUP) is None


# The content of a group.

DEEP = f"{GROUP}/podslice-poda-main.scope"


def test_processes_come_by_the_group_that_they_are_in(tmp_path):
    make_files(
        tmp_path,
        {
            "cgroup.controllers": "",
            f"{GROUP[1:]}/cgroup.procs": "",
            f"{DEEP[1:]}/cgroup.procs": "7\n8\n",
            f"{DEEP[1:]}/container/cgroup.procs": "9\n",
            "system.slice/cgroup.procs": "1\n",
        },
    )
    cgroups = CgroupFs(mount=tmp_path)
    assert cgroups.processes(GROUP) == {DEEP: (7, 8), f"{DEEP}/container": (9,)}
    assert cgroups.exists(GROUP)
    assert not cgroups.exists("/kubepods.slice/kubepods-podb.slice")
    assert cgroups.processes("/kubepods.slice/kubepods-podb.slice") == {}


def test_in_the_old_layout_processes_are_found_in_systemds_hierarchy(tmp_path):
    make_files(
        tmp_path, {f"systemd{DEEP}/cgroup.procs": "7\n", f"memory{DEEP}/cgroup.procs": "7\n8\n"}
    )
    cgroups = CgroupFs(mount=tmp_path)
    assert cgroups.processes(GROUP) == {DEEP: (7,)}
    assert cgroups.exists(DEEP)


def test_a_group_removed_while_it_is_read_is_left_out(tmp_path):
    make_files(tmp_path, {"cgroup.controllers": "", f"{DEEP[1:]}/cgroup.procs": "7\n"})
    (tmp_path / GROUP[1:] / "gone").mkdir()
    assert CgroupFs(mount=tmp_path).processes(GROUP) == {DEEP: (7,)}


# Huge pages.


def test_limits_of_huge_pages_come_by_file(tmp_path):
    make_files(
        tmp_path,
        {
            "cgroup.controllers": "",
            f"{GROUP[1:]}/hugetlb.2MB.max": "8388608\n",
            f"{GROUP[1:]}/hugetlb.1GB.max": "max\n",
            f"{GROUP[1:]}/hugetlb.64KB.max": "0\n",
            f"{GROUP[1:]}/hugetlb.2MB.rsvd.max": "max\n",
            f"{GROUP[1:]}/hugetlb.2MB.current": "0\n",
        },
    )
    cgroups = CgroupFs(mount=tmp_path)
    assert cgroups.hugepages(GROUP) == {
        "hugetlb.2MB.max": 2**23,
        "hugetlb.1GB.max": INFINITY,
        "hugetlb.64KB.max": 0,
        "hugetlb.2MB.rsvd.max": INFINITY,
    }
    assert cgroups.hugepages("/kubepods.slice") is None


def test_the_old_layout_has_no_huge_pages(tmp_path):
    make_files(tmp_path, {f"{GROUP[1:]}/hugetlb.2MB.max": "0\n"})
    assert CgroupFs(mount=tmp_path).hugepages(GROUP) is None


def test_controllers_that_are_handed_down(tmp_path):
    files = {"cgroup.controllers": "cpu hugetlb\n", "cgroup.subtree_control": "cpu memory\n"}
    cgroups = CgroupFs(mount=make_files(tmp_path, files))
    assert cgroups.controllers_below("/") == {"cpu", "memory"}
    assert cgroups.controllers_below(GROUP) == frozenset()
    (tmp_path / "cgroup.controllers").unlink()
    assert cgroups.controllers_below("/") == frozenset()


# Samples.

PSI = "some avg10=0.18 avg60=0.03 avg300=0.00 total=22099\nfull avg10=12.50 avg60=0.02 avg300=0.01 total=22088\n"

COUNTED = {
    **V2,
    f"{GROUP[1:]}/cpu.stat": "usage_usec 1500\nnr_periods 10\nnr_throttled 3\nthrottled_usec 700\n",
    f"{GROUP[1:]}/memory.stat": "anon 1000\ninactive_file 3000\npgfault 11\npgmajfault 2\n",
    f"{GROUP[1:]}/memory.swap.current": "64\n",
    f"{GROUP[1:]}/memory.events": "low 0\noom 2\noom_kill 1\n",
    f"{GROUP[1:]}/io.stat": "254:0 rbytes=51 wbytes=37 rios=1 wios=2 dbytes=0 dios=0\n7:0 \n",
    f"{GROUP[1:]}/memory.pressure": PSI,
}


def test_a_sample_has_all_that_is_counted(tmp_path):
    cgroups = CgroupFs(mount=make_files(tmp_path, COUNTED))
    assert cgroups.sample(GROUP) == Sample(
        cpu_usec=1500,
        throttled_usec=700,
        periods=10,
        throttled_periods=3,
        memory_bytes=5000,
        working_set_bytes=2000,
        rss_bytes=1000,
        swap_bytes=64,
        page_faults=11,
        major_page_faults=2,
        tasks=7,
        oom_kills=1,
        read_bytes={"254:0": 51},
        written_bytes={"254:0": 37},
        pressure={
            "memory": Pressure(
                some=Waited(avg10_milli=180, avg60_milli=30, usec=22099),
                full=Waited(avg10_milli=12500, avg60_milli=20, avg300_milli=10, usec=22088),
            )
        },
    )
    assert cgroups.events(GROUP) == {"low": 0, "oom": 2, "oom_kill": 1}
    assert cgroups.working_set_bytes(GROUP) == 2000


def test_a_sample_of_the_old_layout_has_what_there_is(tmp_path):
    counted = {
        **V1,
        f"cpu{GROUP}/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 700999\n",
        f"memory{GROUP}/memory.stat": "rss 1\ninactive_file 1\ntotal_rss 1000\n"
        "total_inactive_file 3000\ntotal_swap 64\ntotal_pgfault 11\ntotal_pgmajfault 2\n",
        f"memory{GROUP}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        f"blkio{GROUP}/blkio.throttle.io_service_bytes_recursive": "254:0 Read 51\n"
        "254:0 Write 37\n254:0 Total 88\nTotal 88\n",
    }
    cgroups = CgroupFs(mount=make_files(tmp_path, counted))
    assert cgroups.sample(GROUP) == Sample(
        cpu_usec=1500,
        throttled_usec=700,
        periods=10,
        throttled_periods=3,
        memory_bytes=5000,
        working_set_bytes=2000,
        rss_bytes=1000,
        swap_bytes=64,
        page_faults=11,
        major_page_faults=2,
        tasks=7,
        read_bytes={"254:0": 51},
        written_bytes={"254:0": 37},
    )
    assert cgroups.events(GROUP) == {}
    assert cgroups.working_set_bytes(GROUP) == 2000


@pytest.mark.parametrize("files", [{}, {"cgroup.controllers": ""}])
def test_a_sample_of_a_missing_group_is_empty(tmp_path, files):
    cgroups = CgroupFs(mount=make_files(tmp_path, files))
    assert cgroups.sample(GROUP) == Sample()
    assert cgroups.events(GROUP) == {}
    assert cgroups.working_set_bytes(GROUP) is None


def test_the_root_group_has_no_memory_of_its_own(tmp_path):
    files = {"cgroup.controllers": "", "cpu.stat": "usage_usec 9\n", "memory.stat": "anon 5\n"}
    sample = CgroupFs(mount=make_files(tmp_path, files)).sample("/")
    assert (sample.cpu_usec, sample.rss_bytes) == (9, 5)
    assert sample.memory_bytes is sample.working_set_bytes is None


def test_a_working_set_is_never_below_nothing(v2):
    make_files(v2.mount, {f"{GROUP[1:]}/memory.stat": "inactive_file 9000\n"})
    assert v2.sample(GROUP).working_set_bytes == 0


def test_kernels_before_5_13_have_no_full_pressure_of_cpus():
    line = "some avg10=0.50 avg60=0.03 avg300=0.00 total=22099\n"
    assert parse_pressure(line) == Pressure(
        some=Waited(avg10_milli=500, avg60_milli=30, usec=22099)
    )


def test_a_long_file_is_read_to_its_end(v2):
    long = "".join(f"field_{number} 1\n" for number in range(10_000)) + "inactive_file 1000\n"
    make_files(v2.mount, {f"{GROUP[1:]}/memory.stat": long})
    assert v2.working_set_bytes(GROUP) == 4000
