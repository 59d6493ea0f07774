"""Reads what the kernel enforces and counts; never writes. Both cgroup layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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

    def unreclaimable_bytes(self, control_group: str) -> int | None:
        """Memory that no reclaim can free, of the group and everything below it (v2 only)."""
        stat = _keyed(self._read("memory.stat", control_group) if self.is_v2 else None)
        return sum(stat.get(name, 0) for name in _UNRECLAIMABLE) if stat else None

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
