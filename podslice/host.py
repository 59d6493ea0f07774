"""What the host has, read from /proc, /sys and statvfs; the root directory is a parameter."""

from __future__ import annotations

import os
from pathlib import Path

from podslice.errors import HostError
from podslice.model.node import Node
from podslice.model.quantity import format_bytes
from podslice.model.resources import CPU, EPHEMERAL_STORAGE, HUGEPAGES_PREFIX, MEMORY, PIDS

NODEFS = "var/lib"
"""The file system that counts as ephemeral storage, as the kubelet's default root directory."""


def read_node(root: Path = Path("/")) -> Node:
    """The node's capacity.

    Raises:
        HostError: /proc or /sys can't be read, or say something that is not understood.
    """
    try:
        meminfo = _meminfo(root)
        capacity = {
            CPU: len(_cpus(root)) * 1000,
            MEMORY: meminfo["MemTotal"] * 1000,
            EPHEMERAL_STORAGE: _nodefs_bytes(root) * 1000,
            PIDS: _pids(root) * 1000,
            **_hugepages(root),
        }
        swap_bytes = meminfo.get("SwapTotal", 0)
    except (OSError, ValueError, KeyError) as error:
        raise HostError(
            f"this host's capacity can't be read: {error}; state it: --capacity cpu=8,memory=32Gi"
        ) from error
    return Node(
        capacity=capacity, swap_bytes=swap_bytes, page_size_bytes=os.sysconf("SC_PAGE_SIZE")
    )


def process_named(name: str, root: Path = Path("/")) -> int | None:
    """The id of a running process with this name; None when there is none."""
    for comm in (root / "proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text().strip() == name:
                return int(comm.parent.name)
        except OSError:
            continue
    return None


def _cpus(root: Path) -> set[int]:
    """The CPUs that are online and that this process tree may use."""
    online = parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())
    try:
        allowed = parse_cpu_list((root / "sys/fs/cgroup/cpuset.cpus.effective").read_text())
    except OSError:
        return online
    return online & allowed or online


def parse_cpu_list(text: str) -> set[int]:
    """The kernel's list format: `0-3,8` → {0, 1, 2, 3, 8}.

    Source: Linux, Documentation/admin-guide/cputopology.rst.
    """
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def _meminfo(root: Path) -> dict[str, int]:
    """The lines of /proc/meminfo in bytes."""
    lines = (root / "proc/meminfo").read_text().splitlines()
    fields = (line.replace(":", "").split() for line in lines)
    return {words[0]: int(words[1]) * 1024 for words in fields if words[-1:] == ["kB"]}


def _pids(root: Path) -> int:
    """How many processes and threads the kernel allows.

    Source: Kubernetes, pkg/kubelet/stats/pidlimit/pidlimit_linux.go, Stats.
    """
    names = ("pid_max", "threads-max")
    return min(int((root / "proc/sys/kernel" / name).read_text()) for name in names)


def _nodefs_bytes(root: Path) -> int:
    path = root / NODEFS
    stat = os.statvfs(path if path.is_dir() else root)
    return stat.f_blocks * stat.f_frsize


def _hugepages(root: Path) -> dict[str, int]:
    """Huge pages per size: `hugepages-2Mi` → thousandths of a byte."""
    pages = {}
    for path in (root / "sys/kernel/mm/hugepages").glob("hugepages-*kB"):
        size = int(path.name.removeprefix("hugepages-").removesuffix("kB")) * 1024
        count = int((path / "nr_hugepages").read_text())
        if count:
            pages[HUGEPAGES_PREFIX + format_bytes(size)] = count * size * 1000
    return pages
