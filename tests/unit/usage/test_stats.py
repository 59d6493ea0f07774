import os
from dataclasses import replace

import pytest

from podslice.errors import HostError
from podslice.kernel.cgroup import CgroupFs, Pressure, Waited
from podslice.model.pod import MemoryVolume
from podslice.model.unit import Caps, Observed, UnitKind, UnitName
from podslice.usage.stats import read_stats
from tests.cases.tables import cases
from tests.unit.builders import (
    USER,
    as_observed,
    besteffort,
    burstable,
    config,
    desired_for,
    guaranteed,
    make_files,
)

HOST = {
    "proc/meminfo": "MemTotal: 16384 kB\nMemFree: 1000 kB\nInactive(file): 24 kB\n"
    "AnonPages: 300 kB\nSwapTotal: 20 kB\nSwapFree: 5 kB\n",
    "proc/sys/kernel/pid_max": "4194304\n",
    "proc/sys/kernel/threads-max": "1000\n",
    "proc/loadavg": "0.30 0.07 0.02 1/57 227\n",
    "proc/stat": "cpu 1 2 3\nbtime 1700000000\nprocesses 5\n",
    "proc/vmstat": "nr_free_pages 1\npgfault 70\npgmajfault 7\noom_kill 2\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0.03 avg300=0.00 total=5\n",
    "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 123\n",
}
BOOT_USEC = 1_700_000_000 * 10**6
PODS = (burstable("web"), besteffort("batch"), guaranteed("db"))


def counting(root, group, usec):
    """Create a control group with a usage of CPU time."""
    make_files(root / "sys/fs/cgroup" / group.strip("/"), {"cpu.stat": f"usage_usec {usec}\n"})


@pytest.fixture
def root(tmp_path):
    return make_files(tmp_path, HOST)


def read(root, desired, observed, by=None, **more):
    cgroups = CgroupFs(mount=root / "sys/fs/cgroup")
    return read_stats(desired.pods, observed, by or config(), cgroups=cgroups, root=root, **more)


def everything(root, *pods):
    """Create running pods, each with a different usage of CPU time."""
    desired = desired_for(*pods)
    for number, unit in enumerate(desired.lasting):
        counting(root, unit.control_group, number)
    times = {unit.name: number for number, unit in enumerate(desired.lasting)}
    return desired, as_observed(desired), times


def test_the_node(root):
    node = read(root, *everything(root)[:2])
    stat = os.statvfs(root)
    assert node.boot_time_usec == BOOT_USEC
    assert (node.memory.capacity, node.memory.available) == (2**24, 2**20)
    assert (node.pids_max, node.pids) == (1000, 57)
    assert node.file_system.capacity_bytes == stat.f_blocks * stat.f_frsize
    assert node.file_system.inodes == stat.f_files
    assert node.sample == replace(
        node.sample,
        cpu_usec=123,
        memory_bytes=(16384 - 1000) * 1024,
        working_set_bytes=2**24 - 2**20,
        rss_bytes=300 * 1024,
        swap_bytes=15 * 1024,
        page_faults=70,
        major_page_faults=7,
        oom_kills=2,
        tasks=57,
        pressure={"cpu": Pressure(some=Waited(avg10_milli=1000, avg60_milli=30, usec=5))},
    )


def test_rates_can_be_made_of_two_looks(root):
    first, second = (read(root, *everything(root)[:2]) for _ in range(2))
    assert second.uptime_usec > first.uptime_usec
    assert second.time_usec > first.time_usec > first.boot_time_usec


def test_pods_come_by_key_with_their_containers(root):
    desired, observed, times = everything(root, *PODS)
    node = read(root, desired, observed)
    assert [pod.decision.pod.key for pod in node.pods] == [
        "default/batch",
        "default/db",
        "default/web",
    ]
    for pod in node.pods:
        assert pod.sample.cpu_usec == times[pod.decision.slice]
        (main,) = pod.containers
        assert (main.name, main.unit) == ("main", pod.decision.containers[0].scope)
        assert main.sample.cpu_usec == times[main.unit]


def test_a_container_that_systemd_has_started_is_its_service(root):
    desired, observed, _ = everything(root, burstable("web"))
    (scope,) = [name for name in observed.units if name.endswith(".scope")]
    service = UnitName(scope.replace(".scope", ".service"))
    unit = replace(
        observed.units[scope],
        name=service,
        control_group=observed.units[scope].control_group.replace(".scope", ".service"),
    )
    counting(root, unit.control_group, 99)
    units = {name: each for name, each in observed.units.items() if name != scope}
    node = read(root, desired, replace(observed, units={**units, service: unit}))
    assert [(each.unit, each.sample.cpu_usec) for each in node.pods[0].containers] == [
        (service, 99)
    ]


def test_missing_pods_and_containers_are_omitted(root):
    desired, observed, _ = everything(root, *PODS)
    gone = [pod.slice for pod in desired.pods if pod.pod.name == "web"]
    empty = [name for name in observed.units if name.endswith(".scope")]
    units = {name: unit for name, unit in observed.units.items() if name not in (*gone, *empty)}
    (batch,) = [pod.slice for pod in desired.pods if pod.pod.name == "batch"]
    units[batch] = replace(units[batch], control_group="")  # systemd is just stopping it
    node = read(root, desired, replace(observed, units=units))
    assert [pod.decision.pod.name for pod in node.pods] == ["db"]
    assert node.pods[0].containers == ()


def test_a_pod_starts_with_its_slice(root):
    desired, observed, _ = everything(root, burstable("web"))
    (name,) = [pod.slice for pod in desired.pods]
    unit = replace(observed.units[name], started_usec=1_700_000_123 * 10**6)
    units = {**observed.units, name: unit}
    node = read(root, desired, replace(observed, units=units))
    assert node.pods[0].started_usec == 1_700_000_123 * 10**6


# Groups.


def names(node):
    return {group.name: group.unit for group in node.groups}


def test_groups_have_the_kubelets_names(root):
    desired, observed, times = everything(root, *PODS)
    for number, group in enumerate(
        ("podruntime.slice", "podruntime.slice/podslice-agent.service", "system.slice")
    ):
        counting(root, group, 100 + number)
    agent = "/podruntime.slice/podslice-agent.service"
    node = read(root, desired, observed, agent_group=agent)
    assert [(group.name, group.unit, group.sample.cpu_usec) for group in node.groups] == [
        ("pods", "kubepods.slice", times["kubepods.slice"]),
        ("burstable", "kubepods-burstable.slice", times["kubepods-burstable.slice"]),
        ("besteffort", "kubepods-besteffort.slice", times["kubepods-besteffort.slice"]),
        ("kubelet", "podslice-agent.service", 101),
        ("runtime", "podruntime.slice", 100),
        ("misc", "system.slice", 102),
    ]


def test_reserved_slices_are_those_that_are_configured(root):
    by = config(kube_reserved_cgroup="/a/kube", system_reserved_cgroup="/sys.slice")
    for group in ("a.slice/a-kube.slice", "sys.slice", "system.slice"):
        counting(root, group, 1)
    node = read(root, *everything(root)[:2], by=by)
    assert names(node)["runtime"] == "a-kube.slice"
    assert names(node)["misc"] == "sys.slice"


def test_a_users_manager_has_no_reserved_slices(root):
    counting(root, "system.slice", 1)
    desired, observed, _ = everything(root, *PODS)
    observed = Observed(caps=Caps(systemd_version=257, manager=USER), units=observed.units)
    assert names(read(root, desired, observed)).keys() == {"pods", "burstable", "besteffort"}
    nothing = replace(observed, units={})
    assert read(root, desired, nothing).groups == ()


# Volumes.


def mounted(root, monkeypatch, *, paths):
    desired, observed, _ = everything(root, replace(PODS[0], volumes=(MemoryVolume(name="tmp"),)))
    assert any(unit.kind is UnitKind.MOUNT for unit in desired.lasting)
    monkeypatch.setattr("podslice.usage.stats.os.path.ismount", paths.__contains__)
    return desired, observed


STAT = os.statvfs_result((4096, 4096, 100, 40, 30, 50, 20, 20, 0, 255))


def test_statistics_of_volumes_are_those_of_their_file_systems(root, monkeypatch):
    path = "/run/podslice/pods/web/volumes/tmp"
    desired, observed = mounted(root, monkeypatch, paths={path})
    real = os.statvfs
    monkeypatch.setattr(
        "podslice.usage.stats.os.statvfs", lambda at: STAT if at == path else real(at)
    )
    volume = read(root, desired, observed).pods[0].volumes["tmp"]
    assert (volume.capacity_bytes, volume.available_bytes) == (409_600, 122_880)
    assert volume.used_bytes == 60 * 4096
    assert (volume.inodes, volume.inodes_free) == (50, 20)


def test_a_volume_that_nothing_is_mounted_on_is_left_out(root, monkeypatch):
    desired, observed = mounted(root, monkeypatch, paths=set())
    assert read(root, desired, observed).pods[0].volumes == {}


def test_a_volume_that_is_removed_meanwhile_is_omitted(root, monkeypatch):
    desired, observed = mounted(root, monkeypatch, paths={"/run/podslice/pods/web/volumes/tmp"})
    assert read(root, desired, observed).pods[0].volumes == {}


# A host with fewer files.


def test_a_kernel_with_fewer_counters(root):
    make_files(root, {"proc/vmstat": "pgfault 70\npgmajfault 7\n"})
    (root / "proc/pressure/cpu").unlink()
    sample = read(root, *everything(root)[:2]).sample
    assert sample.oom_kills is None
    assert sample.pressure == {}


@cases
def test_a_host_that_is_not_understood_is_an_error(root, path, text):
    make_files(root, {path: text})
    with pytest.raises(HostError, match="the usage of this host can't be read"):
        read(root, *everything(root)[:2])
