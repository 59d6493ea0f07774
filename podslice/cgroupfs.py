"""Reads what the kernel enforces and counts; never writes. Both cgroup layouts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from podslice.model.unit import INFINITY

_V2 = {
    "CPUWeight": "cpu.weight",
    "CPUQuotaPerSecUSec": "cpu.max",
    "MemoryMin": "memory.min",
    "MemoryLow": "memory.low",
    "MemoryHigh": "memory.high",
    "MemoryMax": "memory.max",
    "TasksMax": "pids.max",
}
"""The file that each property ends in. Source: Linux, admin-guide/cgroup-v2.rst."""

_V1 = {
    "CPUWeight": "cpu/cpu.shares",
    "CPUQuotaPerSecUSec": "cpu/cpu.cfs_quota_us",
    "MemoryMax": "memory/memory.limit_in_bytes",
    "TasksMax": "pids/pids.max",
}
"""As `_V2`, with the controller's directory. Drop when systemd < 258 is gone."""

# `hugetlb.2MB.max`. Source: Linux, mm/hugetlb_cgroup.c, mem_fmt
_HUGETLB_FILE = re.compile(r"hugetlb\.(\d+)(KB|MB|GB)\.max")
_HUGETLB_UNITS = {"KB": 2**10, "MB": 2**20, "GB": 2**30}

# what memory.stat counts that no reclaim can free without swap
_UNRECLAIMABLE = ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a control group uses now; None where the kernel does not count it."""

    memory_bytes: int | None = None
    cpu_usec: int | None = None
    tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFs:
    """The control groups below one mount."""

    mount: Path = Path("/sys/fs/cgroup")

    @property
    def is_v2(self) -> bool:
        """Whether the host has the unified layout with its controllers."""
        return (self.mount / "cgroup.controllers").exists()

    def limits(self, control_group: str) -> Mapping[str, str]:
        """What the kernel holds, per property of systemd, in the kernel's own words."""
        files = _V2 if self.is_v2 else _V1
        found = {name: self._read(file, control_group) for name, file in files.items()}
        return {name: text for name, text in found.items() if text is not None}

    def usage(self, control_group: str) -> Usage:
        """What a control group and everything below it use."""
        if self.is_v2:
            stat = _keyed(self._read("cpu.stat", control_group))
            return Usage(
                memory_bytes=_number(self._read("memory.current", control_group)),
                cpu_usec=stat.get("usage_usec"),
                tasks=_number(self._read("pids.current", control_group)),
            )
        cpu_nsec = _number(self._read("cpuacct/cpuacct.usage", control_group))
        return Usage(
            memory_bytes=_number(self._read("memory/memory.usage_in_bytes", control_group)),
            cpu_usec=None if cpu_nsec is None else cpu_nsec // 1000,
            tasks=_number(self._read("pids/pids.current", control_group)),
        )

    def exists(self, control_group: str) -> bool:
        """Whether there is such a control group."""
        return self._tree(control_group).is_dir()

    def processes(self, control_group: str) -> Mapping[str, tuple[int, ...]]:
        """The processes in a control group and below it, by the group that each is in.

        Groups without any are left out; so is what ends while this is read.
        """
        top = self._tree(control_group)
        found = {}
        for directory, _, _ in os.walk(top):
            try:
                text = Path(directory, "cgroup.procs").read_text()
            except OSError:
                continue
            if pids := tuple(map(int, text.split())):
                below = Path(directory).relative_to(top)
                found[str(PurePosixPath(control_group) / below)] = pids
        return found

    def controllers_below(self, control_group: str) -> frozenset[str]:
        """The controllers that a control group hands down to those in it (v2 only)."""
        text = self._read("cgroup.subtree_control", control_group) if self.is_v2 else None
        return frozenset((text or "").split())

    def hugepages(self, control_group: str) -> Mapping[int, int] | None:
        """Limits of huge pages by the size of a page, in bytes; None where nobody counts them."""
        limits = {}
        directory = self.mount / control_group.lstrip("/")
        for path in sorted(directory.glob("hugetlb.*.max")) if self.is_v2 else ():
            found = _HUGETLB_FILE.fullmatch(path.name)
            text = self._read(path.name, control_group)
            if found and text is not None:
                size = int(found[1]) * _HUGETLB_UNITS[found[2]]
                limits[size] = int(text) if text.isdigit() else INFINITY
        return limits or None

    def unreclaimable_bytes(self, control_group: str) -> int | None:
        """Memory that no reclaim can free, of the group and everything below it (v2 only)."""
        stat = _keyed(self._read("memory.stat", control_group) if self.is_v2 else None)
        return sum(stat.get(name, 0) for name in _UNRECLAIMABLE) if stat else None

    def _tree(self, control_group: str) -> Path:
        """Its directory where systemd keeps its processes."""
        hybrid = self.mount / "systemd"
        mount = hybrid if not self.is_v2 and hybrid.is_dir() else self.mount
        return mount / control_group.lstrip("/")

    def _read(self, file: str, control_group: str) -> str | None:
        controller, _, name = file.rpartition("/")
        path = self.mount / controller / control_group.lstrip("/") / name
        try:
            return path.read_text().strip()
        except OSError:
            return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _keyed(text: str | None) -> dict[str, int]:
    """A file of `name value` lines."""
    fields = (line.split() for line in (text or "").splitlines())
    return {words[0]: int(words[1]) for words in fields if len(words) == 2 and words[1].isdigit()}
