import os

import pytest

from podslice.errors import HostError
from podslice.kernel.host import (
    Availability,
    inodes_availability,
    memory_availability,
    nodefs_availability,
    nodefs_device,
    pids_availability,
    process_named,
    read_meminfo,
    read_node,
)
from tests.cases.tables import cases
from tests.unit.builders import amounts, make_files

HOST = {
    "sys/devices/system/cpu/online": "0-3,6\n",
    "proc/meminfo": "MemTotal:       16384 kB\nSwapTotal:       1024 kB\nHugePages_Total:     5\n",
    "proc/sys/kernel/pid_max": "4194304\n",
    "proc/sys/kernel/threads-max": "1000\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
}


@pytest.fixture
def host(tmp_path):
    return make_files(tmp_path, HOST)


def test_the_capacity_is_what_the_host_has(host):
    (host / "var/lib").mkdir(parents=True)
    found = read_node(host)
    stat = os.statvfs(host)
    assert found.capacity == {
        **amounts("cpu=5,memory=16Mi,pid=1000,hugepages-2Mi=16Mi"),
        "ephemeral-storage": stat.f_blocks * stat.f_frsize * 1000,
    }
    assert found.hugepage_sizes == (2**21, 2**30)
    assert found.swap_bytes == 2**20
    assert found.page_size_bytes == os.sysconf("SC_PAGE_SIZE")


def test_a_host_without_swap_and_huge_pages(host):
    make_files(host, {"proc/meminfo": "MemTotal: 16384 kB\n"})
    for path in host.glob("sys/kernel/mm/hugepages/*/nr_hugepages"):
        path.write_text("0\n")
    found = read_node(host)
    assert found.swap_bytes == 0
    assert not any(name.startswith("hugepages") for name in found.capacity)


@cases
def test_whether_huge_pages_count_as_memory_is_read_from_the_mount(host, mounts, counts):
    make_files(host, {} if mounts is None else {"proc/self/mounts": mounts})
    assert read_node(host).counts_hugepages is counts


@pytest.mark.parametrize(("effective", "cpus"), [("0-1\n", 2), ("2-6\n", 3), ("\n", 5), ("9\n", 5)])
def test_only_cpus_that_may_be_used_count(host, effective, cpus):
    """An empty intersection means that the file is of no use, not that there are no CPUs."""
    make_files(host, {"sys/fs/cgroup/cpuset.cpus.effective": effective})
    assert read_node(host).capacity["cpu"] == cpus * 1000


@cases
def test_the_cpus_of_a_partition_of_all_pods_count(host, files, cpus):
    """The kernel takes them from the root of the control groups."""
    cpus = set(cpus)
    group = "sys/fs/cgroup/kubepods.slice"
    make_files(host, {"sys/fs/cgroup/cpuset.cpus.effective": "0\n"})
    make_files(host, {f"{group}/{name}": text for name, text in files.items()})
    assert read_node(host).cpus == cpus


V2 = {
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n",
    "sys/fs/cgroup/user.slice/u.service/cgroup.controllers": "cpu memory pids\n",
}
V1 = {"sys/fs/cgroup/cpuset/cgroup.procs": "1\n", "sys/fs/cgroup/unified/cgroup.procs": "1\n"}


@pytest.mark.parametrize(
    ("files", "group", "controllers"),
    [
        (V2, "/", {"cpuset", "cpu", "io", "memory", "hugetlb", "pids"}),
        (V2, "/user.slice/u.service", {"cpu", "memory", "pids"}),
        (V2, "/user.slice/other.service", None),
        (V1, "/", {"cpu", "io", "memory", "pids"}),
        (V1, "/user.slice/u.service", set()),
        ({}, "/", None),
    ],
)
def test_the_controllers_are_those_of_the_manager(host, files, group, controllers):
    make_files(host, files)
    assert read_node(host, group).controllers == controllers


def test_the_numbers_of_cpus_are_known(host):
    assert read_node(host).cpus == {0, 1, 2, 3, 6}


@cases
def test_an_unreadable_host_is_an_error_with_a_hint(host, path, text):
    make_files(host, {path: text})
    with pytest.raises(
        HostError, match=r"can't be read: .*state it: --set capacity=cpu=8,memory=32Gi"
    ):
        read_node(host)


def test_a_host_without_proc_is_an_error(tmp_path):
    with pytest.raises(HostError, match="this host's capacity can't be read"):
        read_node(tmp_path)


def test_a_process_is_found_by_its_name(tmp_path):
    make_files(tmp_path, {"proc/1/comm": "systemd\n", "proc/42/comm": "kubelet\n"})
    assert process_named("kubelet", tmp_path) == 42
    assert process_named("kube", tmp_path) is None


@pytest.mark.parametrize("name", [b"\xff", b"kubelet ", b"kubelet\f", b"\xc2\x85kubelet"])
def test_a_process_of_another_name_is_not_taken_for_it(tmp_path, name):
    make_files(tmp_path, {"proc/42/comm": ""})
    (tmp_path / "proc/42/comm").write_bytes(name + b"\n")
    assert process_named("kubelet", tmp_path) is None


def test_a_process_that_terminates_meanwhile_is_ignored(tmp_path):
    make_files(tmp_path, {"proc/42/comm": "kubelet\n"})
    (tmp_path / "proc/41/comm").mkdir(parents=True)  # can't be read, like one that has exited
    assert process_named("kubelet", tmp_path) == 42
    assert process_named("sshd", tmp_path) is None


def test_without_proc_no_process_is_found(tmp_path):
    assert process_named("kubelet", tmp_path) is None


# What is left.


def test_available_memory_is_outside_of_working_sets(host):
    text = "MemTotal: 16384 kB\nMemFree: 1000 kB\nMemAvailable: 9000 kB\nInactive(file): 24 kB\n"
    make_files(host, {"proc/meminfo": text})
    assert memory_availability(read_meminfo(host)) == Availability(available=2**20, capacity=2**24)


def test_storage_that_is_left_is_that_of_who_is_not_root(host):
    stat = os.statvfs(host)
    assert nodefs_availability(host).capacity == stat.f_blocks * stat.f_frsize
    assert 0 < nodefs_availability(host).available <= stat.f_bfree * stat.f_frsize
    assert inodes_availability(host).capacity == stat.f_files


@pytest.mark.parametrize(("tasks", "available"), [(57, 943), (1200, 0)])
def test_processes_that_are_left(host, tasks, available):
    make_files(host, {"proc/loadavg": f"0.30 0.07 0.02 1/{tasks} 227\n"})
    assert pids_availability(host) == Availability(available=available, capacity=1000)


def test_the_disk_of_a_partition_is_what_the_kernel_counts_by(host):
    number = host.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    disk = make_files(host / "sys/devices/vda", {"dev": "254:0\n", "vda1/dev": f"{name}\n"})
    (host / "sys/dev/block").mkdir(parents=True)
    (host / "sys/dev/block" / name).symlink_to(disk / "vda1")
    assert nodefs_device(host) == name
    make_files(disk, {"vda1/partition": "1\n"})
    assert nodefs_device(host) == "254:0"


def test_a_file_system_without_a_device_has_none(host):
    assert nodefs_device(host) == ""
