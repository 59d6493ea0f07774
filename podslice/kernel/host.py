"""The host's resources and the topology of its CPUs, read from /proc, /sys and statvfs.

The root directory is a parameter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from podslice.errors import HostError
from podslice.kernel.text import parse_mounts, read_text, read_value, split_lines, split_words
from podslice.model.naming import Tree
from podslice.model.node import Cpu, CpuTopology, Node, format_cpus, parse_cpus
from podslice.model.properties import PARTITION_ROOT, PROPERTIES
from podslice.model.quantity import format_bytes
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, PIDS

_MOUNT = "/sys/fs/cgroup"
_CGROUP2 = (_MOUNT, "cgroup2")
_CONTROLLERS = "cgroup.controllers"
_CONTROLLERS_V1 = frozenset({"cpu", "io", "memory", "pids"})
"""What systemd uses of version 1. Source: systemd, src/basic/cgroup-util.h, CGROUP_MASK_V1."""
NODEFS = "var/lib"
"""The file system that counts as ephemeral storage, as the kubelet's default root directory."""


class Availability(NamedTuple):
    """The available amount of a resource and its capacity, in bytes or counts."""

    available: int
    capacity: int


def read_node(root: Path = Path("/"), control_group: str = "/") -> Node:
    """Return the node's capacity, and the controllers of a manager with this control group.

    Raises:
        HostError: /proc or /sys can't be read or parsed.
    """
    try:
        meminfo = read_meminfo(root)
        cpus = available_cpus(root)
        capacity = {
            CPU: len(cpus) * 1000,
            MEMORY: meminfo["MemTotal"] * 1000,
            EPHEMERAL_STORAGE: nodefs_availability(root).capacity * 1000,
            PIDS: _pids_max(root) * 1000,
        }
        hugepages = _hugepage_counts(root)
        swap_bytes = meminfo.get("SwapTotal", 0)
    except (OSError, ValueError, KeyError) as error:
        raise HostError(
            f"this host's capacity can't be read: {error};"
            " state it: --set capacity=cpu=8,memory=32Gi"
        ) from error
    for size, count in hugepages.items():
        if count:
            capacity[HUGEPAGES_PREFIX + format_bytes(size)] = count * size * 1000
    return Node(
        capacity=capacity,
        swap_bytes=swap_bytes,
        page_size_bytes=os.sysconf("SC_PAGE_SIZE"),
        hugepage_sizes=tuple(sorted(hugepages)),
        counts_hugepages="memory_hugetlb_accounting" in cgroup2_options(root),
        cpus=frozenset(cpus),
        controllers=usable_controllers(root, control_group),
    )


def usable_controllers(root: Path, control_group: str) -> frozenset[str] | None:
    """Return the controllers that a manager with this control group can use.

    None where they are not known, as without control groups.
    """
    mount = root / _MOUNT.lstrip("/")
    try:
        if (mount / _CONTROLLERS).exists():
            # A user's manager has only the controllers that are delegated to its control group.
            path = mount / control_group.lstrip("/") / _CONTROLLERS
            return frozenset(split_words(read_value(path)))
        if any(mount.glob("*/cgroup.procs")):
            # systemd delegates none of version 1 to users
            return _CONTROLLERS_V1 if control_group == "/" else frozenset()
    except OSError:
        pass
    return None


def cgroup2_options(root: Path = Path("/")) -> frozenset[str]:
    """Return the mount options of cgroup v2 at /sys/fs/cgroup; none if it is not mounted there.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Mounting".
    """
    try:
        mounts = parse_mounts(read_text(root / "proc/self/mounts"))
        return next((m.options for m in mounts if (m.place, m.kind) == _CGROUP2), frozenset())
    except OSError:
        return frozenset()


def process_named(name: str, root: Path = Path("/")) -> int | None:
    """Return the id of a running process with this name; None if there is none."""
    for comm in (root / "proc").glob("[0-9]*/comm"):
        try:
            if read_value(comm) == name:
                return int(comm.parent.name)
        except OSError:
            continue
    return None


def available_cpus(root: Path) -> set[int]:
    """Return the CPUs that are online and available to this process tree, or to all pods.

    The kernel takes the CPUs of a partition from all other control groups, the root included.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition.
    """
    online = parse_cpus(read_text(root / "sys/devices/system/cpu/online"))
    cgroups = root / "sys/fs/cgroup"
    try:
        allowed = parse_cpus(read_text(cgroups / "cpuset.cpus.effective"))
    except OSError:
        return online
    with suppress(OSError):
        of_pods = cgroups / Tree().root
        if read_value(of_pods / "cpuset.cpus.partition") == PARTITION_ROOT:
            allowed |= parse_cpus(read_text(of_pods / "cpuset.cpus"))
    return online & allowed or online


def read_meminfo(root: Path = Path("/")) -> dict[str, int]:
    """Return the fields of /proc/meminfo in bytes.

    Raises:
        OSError: it can't be read.
        ValueError: it can't be parsed.
    """
    lines = split_lines(read_text(root / "proc/meminfo"))
    fields = (split_words(line.replace(":", "")) for line in lines)
    return {words[0]: int(words[1]) * 1024 for words in fields if words[-1:] == ["kB"]}


def memory_availability(meminfo: Mapping[str, int]) -> Availability:
    """Return the available memory in bytes: all of it outside working sets.

    It is less than the kernel's MemAvailable, which counts more of the page cache.

    Raises:
        KeyError: /proc/meminfo lacks a line.

    Source: opencontainers/cgroups, fs2/memory.go, rootStatsFromMeminfo; cAdvisor,
    container/libcontainer/handler.go, setMemoryStats.
    """
    available = meminfo["MemFree"] + meminfo["Inactive(file)"]
    return Availability(available=available, capacity=meminfo["MemTotal"])


def nodefs_availability(root: Path = Path("/")) -> Availability:
    """Return the available bytes of the file system of ephemeral storage, for non-root users.

    Raises:
        OSError: its status can't be read.
    """
    stat = os.statvfs(_nodefs(root))
    return Availability(
        available=stat.f_bavail * stat.f_frsize, capacity=stat.f_blocks * stat.f_frsize
    )


def inodes_availability(root: Path = Path("/")) -> Availability:
    """Return the available inodes of that file system; one with dynamic inodes has none.

    Raises:
        OSError: its status can't be read.
    """
    stat = os.statvfs(_nodefs(root))
    return Availability(available=stat.f_favail, capacity=stat.f_files)


def pids_availability(root: Path = Path("/")) -> Availability:
    """Return how many more processes and threads may be started.

    Raises:
        OSError: /proc can't be read.
        ValueError: it can't be parsed.

    Source: Kubernetes, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats; proc_loadavg(5).
    """
    capacity = _pids_max(root)
    # The fourth field has the runnable and all existing tasks: `2/345`.
    _, tasks = read_value(root / "proc/loadavg").split(" ")[3].split("/")
    return Availability(available=max(capacity - int(tasks), 0), capacity=capacity)


def nodefs_device(root: Path = Path("/")) -> str:
    """Return the disk of ephemeral storage, as the kernel's counters of writes name it: `254:0`.

    Empty where the file system has no device of its own (btrfs, overlay).
    """
    try:
        number = _nodefs(root).stat().st_dev
        block = root / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}"
        # the kernel counts by disk, not by partition
        disk = block.resolve().parent if (block / "partition").exists() else block
        return read_value(disk / "dev")
    except OSError:
        return ""


def _pids_max(root: Path) -> int:
    """Return how many processes and threads the kernel allows.

    Source: Kubernetes, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats.
    """
    names = ("pid_max", "threads-max")
    return min(int(read_value(root / "proc/sys/kernel" / name)) for name in names)


def _nodefs(root: Path) -> Path:
    path = root / NODEFS
    return path if path.is_dir() else root


def _hugepage_counts(root: Path) -> dict[int, int]:
    """Return how many huge pages are set aside, by their size in bytes, for each that is known.

    Source: Linux, Documentation/admin-guide/mm/hugetlbpage.rst.
    """
    pages = {}
    for path in (root / "sys/kernel/mm/hugepages").glob("hugepages-*kB"):
        size = int(path.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        pages[size] = int(read_value(path / "nr_hugepages"))
    return pages


def read_possible(name: str, root: Path = Path("/")) -> str:
    """Return the value of a property that allows all of them; empty if the property has no such value.

    A kernel without NUMA has no list of nodes.

    Source: Linux, Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu.
    """
    path = PROPERTIES[name].possible
    try:
        return format_cpus(parse_cpus(read_text(root / path))) if path else ""
    except (OSError, ValueError):
        return ""


_SYSTEM = "sys/devices/system"


def read_cpu_topology(root: Path = Path("/")) -> CpuTopology:
    """Return the CPUs that are online and available to this process tree.

    The number of a core or a cache is that of its first CPU. Without a cache the CPUs of a socket
    count as one that shares it, and a CPU without a NUMA node belongs to node 0.

    Raises:
        HostError: /sys can't be read or parsed.

    Source: Linux, Documentation/admin-guide/cputopology.rst,
    Documentation/ABI/stable/sysfs-devices-system-cpu; Kubernetes,
    pkg/kubelet/cm/cpumanager/topology/topology.go, getUniqueCoreID, getUncoreCacheID.
    """
    try:
        return _read_cpu_topology(root)
    except (OSError, ValueError) as error:
        raise HostError(f"the topology of this host's CPUs can't be read: {error}") from error


def _read_cpu_topology(root: Path) -> CpuTopology:
    cpus = available_cpus(root)
    cpu_dirs = {cpu: root / _SYSTEM / f"cpu/cpu{cpu}" for cpu in cpus}
    cores = _groups(cpus, lambda cpu: _list(cpu_dirs[cpu] / "topology/core_cpus_list"))
    sockets = {cpu: _socket(cpu_dirs[core]) for cpu, core in cores.items()}
    caches = _groups(
        cpus,
        lambda cpu: (
            _cache(cpu_dirs[cpu]) or {other for other in cpus if sockets[other] == sockets[cpu]}
        ),
    )
    nodes = {
        cpu: int(node.name.removeprefix("node"))
        for node in (root / _SYSTEM / "node").glob("node[0-9]*")
        for cpu in _list(node / "cpulist")
    }
    return CpuTopology(
        cpus=tuple(
            Cpu(
                cpu=cpu,
                core=cores[cpu],
                socket=sockets[cpu],
                numa=nodes.get(cpu, 0),
                uncore=caches[cpu],
            )
            for cpu in sorted(cpus)
        )
    )


def _groups(cpus: set[int], members: Callable[[int], set[int]]) -> dict[int, int]:
    """Return for each CPU the first CPU of its group, whose members that one lists."""
    groups: dict[int, int] = {}
    for first in sorted(cpus):
        if first not in groups:
            groups |= dict.fromkeys({first, *members(first)} & cpus, first)
    return groups


def _socket(cpu_dir: Path) -> int:
    """Return the number of a CPU's socket; firmware that states none has -1, which counts as 0."""
    return max(int(read_value(cpu_dir / "topology/physical_package_id")), 0)


def _cache(cpu_dir: Path) -> set[int]:
    """Return the CPUs that share the cache of the highest level; none if the kernel lists no cache."""
    levels = [(int(read_value(each / "level")), each) for each in cpu_dir.glob("cache/index[0-9]*")]
    return _list(max(levels)[1] / "shared_cpu_list") if levels else set()


def _list(path: Path) -> set[int]:
    return parse_cpus(read_text(path))
