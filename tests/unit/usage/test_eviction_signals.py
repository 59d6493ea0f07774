import os

import pytest

from podslice.kernel.cgroup import CgroupFs, Sample
from podslice.model.node import Allocation
from podslice.policy.eviction import PodUsage, SignalObservation
from podslice.usage.stats import observe_signals, pod_usage
from tests.unit.builders import amounts, make_files

PODS = "/kubepods.slice"
HOST = {
    "proc/meminfo": "MemTotal: 16384 kB\nMemFree: 1000 kB\nInactive(file): 24 kB\n",
    "proc/sys/kernel/pid_max": "4194304\n",
    "proc/sys/kernel/threads-max": "1000\n",
    "proc/loadavg": "0.30 0.07 0.02 1/57 227\n",
    "sys/fs/cgroup/cgroup.controllers": "memory\n",
    "sys/fs/cgroup/kubepods.slice/memory.current": "5242880\n",
    "sys/fs/cgroup/kubepods.slice/memory.stat": "inactive_file 1048576\n",
}
ALLOCATION = Allocation(
    capacity=amounts("memory=16Mi"),
    allocatable=amounts("memory=9Mi"),
    enforced=amounts("memory=10Mi"),
)


@pytest.fixture
def host(tmp_path):
    return make_files(tmp_path, HOST)


def observe(host, pods_group=PODS, allocation=ALLOCATION):
    cgroups = CgroupFs(mount=host / "sys/fs/cgroup")
    return observe_signals(host, cgroups, allocation, pods_group)


def test_every_signal_is_observed_in_thousandths(host):
    found = observe(host)
    stat = os.statvfs(host)
    assert found["memory.available"] == SignalObservation(
        available=2**20 * 1000, capacity=2**24 * 1000
    )
    assert found["pid.available"] == SignalObservation(available=943_000, capacity=1_000_000)
    assert found["nodefs.available"].capacity == stat.f_blocks * stat.f_frsize * 1000
    assert found["nodefs.inodesFree"].capacity == stat.f_files * 1000


def test_the_memory_left_to_pods_counts_from_their_enforced_limit(host):
    """Allocatable already excludes the threshold, which would count twice."""
    assert observe(host)["allocatableMemory.available"] == SignalObservation(
        available=amounts("memory=6Mi")["memory"], capacity=amounts("memory=10Mi")["memory"]
    )


def test_pods_that_use_more_than_they_are_held_to_leave_nothing(host):
    less = Allocation(capacity={}, enforced=amounts("memory=2Mi"))
    assert observe(host, allocation=less)["allocatableMemory.available"].available == 0


@pytest.mark.parametrize("group", ["", "/nowhere.slice"])
def test_without_a_group_of_pods_nothing_is_left_for_them_or_taken(host, group):
    found = observe(host, group)
    assert "allocatableMemory.available" not in found
    assert "memory.available" in found


TIER = "/kubepods.slice/kubepods-burstable.slice"


def observe_tier(host, **files):
    group = host / "sys/fs/cgroup" / TIER.lstrip("/")
    make_files(group, {name.replace("_", ".", 1): text for name, text in files.items()})
    cgroups = CgroupFs(mount=host / "sys/fs/cgroup")
    tiers = {"burstable.memory.available": TIER}
    found = observe_signals(host, cgroups, ALLOCATION, PODS, tiers)
    return found.get("burstable.memory.available")


USED = {"memory_current": "5242880\n", "memory_stat": "inactive_file 1048576\n"}


@pytest.mark.parametrize(("limit_mib", "left_mib"), [(6, 2), (4, 0), (3, 0)])
def test_the_memory_left_to_a_tier_counts_from_its_limit(host, limit_mib, left_mib):
    """Issue 18, point 8: memory.max - (memory.current - inactive_file)."""
    found = observe_tier(host, memory_max=f"{limit_mib * 2**20}\n", **USED)
    assert found == SignalObservation(
        available=left_mib * 2**20 * 1000, capacity=limit_mib * 2**20 * 1000
    )


@pytest.mark.parametrize(
    "files",
    [USED, {**USED, "memory_max": "max\n"}, {"memory_max": "1048576\n"}],
    ids=["no file", "no limit", "no usage"],
)
def test_a_tier_without_a_limit_or_usage_is_not_observed(host, files):
    assert observe_tier(host, **files) is None


@pytest.mark.parametrize(
    ("path", "signal"), [("proc/meminfo", "memory.available"), ("proc/loadavg", "pid.available")]
)
@pytest.mark.parametrize("text", ["", "odd\n", "MemTotal: much kB\n"])
def test_signals_that_can_not_be_parsed_are_not_observed(host, path, signal, text):
    make_files(host, {path: text})
    found = observe(host)
    assert signal not in found
    assert "nodefs.available" in found


def test_a_file_system_that_makes_inodes_as_it_needs_them_is_never_short_of_them(host, monkeypatch):
    stat = os.statvfs(host)
    without = os.statvfs_result((*stat[:5], 0, 0, 0, *stat[8:]))
    monkeypatch.setattr("podslice.kernel.host.os.statvfs", lambda _: without)
    found = observe(host)
    assert "nodefs.inodesFree" not in found
    assert "nodefs.available" in found


SAMPLE = Sample(
    memory_bytes=9, working_set_bytes=5, tasks=3, written_bytes={"254:0": 100, "254:16": 7}
)


def test_the_usage_of_a_pod_is_in_thousandths():
    assert pod_usage(SAMPLE, "254:0") == PodUsage(
        memory=5000, pids=3000, storage=100_000, inodes=100_000
    )


def test_without_a_known_disk_all_disks_count():
    assert pod_usage(SAMPLE, "").storage == 107_000


def test_a_pod_of_which_nothing_is_counted_takes_nothing():
    assert pod_usage(Sample(), "254:0") == PodUsage()
