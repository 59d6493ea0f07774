"""The few counters of a control group that a history of usage needs, for thousands of groups."""

from __future__ import annotations

import os
from typing import NamedTuple

from podslice.kernel.cgroup import CgroupFs, parse_pressure

_BYTES_MAX = 2**14


class _Layout(NamedTuple):
    """The files of one layout of control groups, and their directories below the mount."""

    cpu_directory: str
    memory_directory: str
    cpu: str
    current: str
    peak: str
    inactive: str
    """The counter of inactive file pages in memory.stat."""


_V2 = _Layout("", "", "cpu.stat", "memory.current", "memory.peak", "inactive_file")
_V1 = _Layout(
    *("/cpuacct", "/memory", "cpuacct.usage", "memory.usage_in_bytes"),
    *("memory.max_usage_in_bytes", "total_inactive_file"),
)
"""As `_V2`. Remove once systemd < 258 is no longer supported."""


class UsageCounters:
    """Reads counters of control groups; None where the kernel does not count."""

    def __init__(self, cgroups: CgroupFs) -> None:
        self._is_v2 = cgroups.is_v2
        self._layout = _V2 if self._is_v2 else _V1
        self._cpu = f"{cgroups.mount}{self._layout.cpu_directory}"
        self._memory = f"{cgroups.mount}{self._layout.memory_directory}"

    def cpu_usec(self, group: str) -> int | None:
        """Return the CPU time since the group was created."""
        text = _read(f"{self._cpu}{group}/{self._layout.cpu}")
        if self._is_v2:
            return _field(text, "usage_usec")
        return None if (nsec := _number(text)) is None else nsec // 1000

    def current_bytes(self, group: str) -> int | None:
        """Return the memory that is charged, with cached files."""
        return _number(_read(f"{self._memory}{group}/{self._layout.current}"))

    def peak_bytes(self, group: str) -> int | None:
        """Return the most of `current_bytes` since the group was created.

        Source: Linux, admin-guide/cgroup-v2.rst, memory.peak (since 5.19).
        """
        return _number(_read(f"{self._memory}{group}/{self._layout.peak}"))

    def inactive_bytes(self, group: str) -> int:
        """Return the inactive cached files, which are not part of the working set."""
        text = _read(f"{self._memory}{group}/memory.stat")
        return _field(text, self._layout.inactive) or 0

    def oom_kills(self, group: str) -> int | None:
        """Return the OOM kills since the group was created, with those of descendants (v2 only)."""
        if not self._is_v2:
            return None
        return _field(_read(f"{self._memory}{group}/memory.events"), "oom_kill")

    def waits_usec(self, group: str) -> tuple[int, int] | None:
        """Return how long a task waited for a CPU, and for memory, since the group was created.

        Source: Linux, Documentation/accounting/psi.rst, "some".
        """
        if not self._is_v2:
            return None
        texts = [_read(f"{self._cpu}{group}/{name}.pressure") for name in ("cpu", "memory")]
        cpu, memory = (parse_pressure(text).some.usec if text else None for text in texts)
        return None if cpu is None or memory is None else (cpu, memory)


def _read(path: str) -> str:
    """Return the text of a small file, empty if it can't be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(handle, _BYTES_MAX).decode()
    except OSError:  # the group was removed
        return ""
    finally:
        os.close(handle)


def _number(text: str) -> int | None:
    text = text.removesuffix("\n")
    return int(text) if text.isdecimal() else None


def _field(text: str, name: str) -> int | None:
    """Return one value of lines of `name value`."""
    _, found, rest = f"\n{text}".partition(f"\n{name} ")
    return _number(rest.partition("\n")[0]) if found else None
