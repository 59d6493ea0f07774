"""The topology of the host's CPUs, read from /sys; the root directory is a parameter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from podslice.errors import HostError
from podslice.kernel.host import available_cpus
from podslice.kernel.text import read_text, read_value
from podslice.model.cpu_list import parse_cpus
from podslice.model.cpu_topology import Cpu, CpuTopology

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
        return _read(root)
    except (OSError, ValueError) as error:
        raise HostError(f"the topology of this host's CPUs can't be read: {error}") from error


def _read(root: Path) -> CpuTopology:
    cpus = available_cpus(root)
    cpu_dirs = {cpu: root / _SYSTEM / f"cpu/cpu{cpu}" for cpu in cpus}
    cores = _groups(cpus, lambda cpu: _list(cpu_dirs[cpu] / "topology/core_cpus_list"))
    sockets = {cpu: _socket(cpu_dirs[core]) for cpu, core in cores.items()}

    def sharing(cpu: int) -> set[int]:
        same_socket = {other for other in cpus if sockets[other] == sockets[cpu]}
        return _cache(cpu_dirs[cpu]) or same_socket

    caches = _groups(cpus, sharing)
    nodes = _numa_nodes(root)
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


def _numa_nodes(root: Path) -> dict[int, int]:
    return {
        cpu: int(node.name.removeprefix("node"))
        for node in (root / _SYSTEM / "node").glob("node[0-9]*")
        for cpu in _list(node / "cpulist")
    }


def _list(path: Path) -> set[int]:
    return parse_cpus(read_text(path))
