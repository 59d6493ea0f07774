"""Reads what the kernel enforces and counts; never writes. Both cgroup layouts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from podslice.kernel.text import read_text, read_value, split_lines, split_words
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

# `hugetlb.2MB.max`, `hugetlb.2MB.rsvd.max`. Source: Linux, mm/hugetlb_cgroup.c, mem_fmt
_HUGETLB_FILE = re.compile(r"hugetlb\.\d+(KB|MB|GB)(\.rsvd)?\.max")

PRESSURES = ("cpu", "memory", "io")
"""The resources that the kernel tells the pressure of."""

_SMALL_BYTES = 2**12

Counts = Callable[[str], tuple[int | None, int | None]]
"""Bytes and tasks of a control group; None where the kernel does not count them."""

# what memory.stat counts that no reclaim can free without swap
_UNRECLAIMABLE = ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a control group uses now; None where the kernel does not count it."""

    memory_bytes: int | None = None
    cpu_usec: int | None = None
    tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """How long it was waited: the percentage of the last seconds, in thousandths, and in all."""

    avg10_milli: int = 0
    avg60_milli: int = 0
    avg300_milli: int = 0
    usec: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """How much a resource was waited for. Source: Linux, Documentation/accounting/psi.rst."""

    some: Waited = Waited()
    """By some task."""
    full: Waited = Waited()
    """By all that there was to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Everything that the kernel counts of a control group; None where it does not."""

    cpu_usec: int | None = None
    throttled_usec: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    memory_bytes: int | None = None
    working_set_bytes: int | None = None
    """Usage without inactive file pages, never below 0.

    Source: cAdvisor, container/libcontainer/handler.go, setMemoryStats.
    """
    rss_bytes: int | None = None
    """Anonymous memory."""
    swap_bytes: int | None = None
    page_faults: int | None = None
    major_page_faults: int | None = None
    tasks: int | None = None
    oom_kills: int | None = None
    """Processes that the kernel has killed for want of memory, here and below."""
    written_bytes: Mapping[str, int] = field(default_factory=dict)
    """What was written, by device (`254:0`)."""
    pressure: Mapping[str, Pressure] = field(default_factory=dict)
    """Of `cpu`, `memory` and `io`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFs:
    """The control groups below one mount."""

    mount: Path = Path("/sys/fs/cgroup")

    @property
    def is_v2(self) -> bool:
        """Whether the host has the unified layout with its controllers."""
        return os.access(f"{self.mount}/cgroup.controllers", os.F_OK)

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

    def counts(self) -> Counts:
        """Memory and tasks of a control group alone, for who asks of thousands."""
        memory, tasks = (
            ("memory.current", "pids.current")
            if self.is_v2
            else ("memory/memory.usage_in_bytes", "pids/pids.current")
        )

        def count(control_group: str) -> tuple[int | None, int | None]:
            return _count(self._path(memory, control_group)), _count(
                self._path(tasks, control_group)
            )

        return count

    def sample(self, control_group: str) -> Sample:
        """Everything that the kernel counts of a control group and everything below it.

        Of the root, `/`, it does not count memory and tasks.
        """
        return self._sample_v2(control_group) if self.is_v2 else self._sample_v1(control_group)

    def working_set_bytes(self, control_group: str) -> int | None:
        """That part of a sample alone, for who asks many times a second."""
        if self.is_v2:
            stat = _keyed(self._read("memory.stat", control_group))
            used = _number(self._read("memory.current", control_group))
            return _working_set(used, stat.get("inactive_file"))
        stat = _keyed(self._read("memory/memory.stat", control_group))
        used = _number(self._read("memory/memory.usage_in_bytes", control_group))
        return _working_set(used, stat.get("total_inactive_file"))

    def events(self, control_group: str) -> Mapping[str, int]:
        """How often memory was short, by kind (`oom_kill`), here and below (v2 only).

        Source: Linux, admin-guide/cgroup-v2.rst, memory.events.
        """
        return _keyed(self._read("memory.events", control_group) if self.is_v2 else None)

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
                text = read_text(f"{directory}/cgroup.procs")
            except OSError:
                continue
            if pids := tuple(map(int, split_lines(text))):
                below = Path(directory).relative_to(top)
                found[str(PurePosixPath(control_group) / below)] = pids
        return found

    def controllers_below(self, control_group: str) -> frozenset[str]:
        """The controllers that a control group hands down to those in it (v2 only)."""
        text = self._read("cgroup.subtree_control", control_group) if self.is_v2 else None
        return frozenset(split_words(text or ""))

    def hugepages(self, control_group: str) -> Mapping[str, int] | None:
        """Return limits of huge pages in bytes by file; None where they are not counted."""
        limits = {}
        directory = self.mount / control_group.lstrip("/")
        for path in sorted(directory.glob("hugetlb.*.max")) if self.is_v2 else ():
            found = _HUGETLB_FILE.fullmatch(path.name)
            text = self._read(path.name, control_group)
            if found and text is not None:
                limits[path.name] = int(text) if text.isdigit() else INFINITY
        return limits or None

    def unreclaimable_bytes(self, control_group: str) -> int | None:
        """Memory that no reclaim can free, of the group and everything below it (v2 only)."""
        stat = _keyed(self._read("memory.stat", control_group) if self.is_v2 else None)
        return sum(stat.get(name, 0) for name in _UNRECLAIMABLE) if stat else None

    def _sample_v2(self, control_group: str) -> Sample:
        cpu = _keyed(self._read("cpu.stat", control_group))
        memory = _keyed(self._read("memory.stat", control_group))
        used = _number(self._read("memory.current", control_group))
        return Sample(
            cpu_usec=cpu.get("usage_usec"),
            throttled_usec=cpu.get("throttled_usec"),
            periods=cpu.get("nr_periods"),
            throttled_periods=cpu.get("nr_throttled"),
            memory_bytes=used,
            working_set_bytes=_working_set(used, memory.get("inactive_file")),
            rss_bytes=memory.get("anon"),
            swap_bytes=_number(self._read("memory.swap.current", control_group)),
            page_faults=memory.get("pgfault"),
            major_page_faults=memory.get("pgmajfault"),
            tasks=_number(self._read("pids.current", control_group)),
            oom_kills=self.events(control_group).get("oom_kill"),
            written_bytes=_written(self._read("io.stat", control_group)),
            pressure=self._pressure(control_group),
        )

    def _sample_v1(self, control_group: str) -> Sample:
        usage = self.usage(control_group)
        cpu = _keyed(self._read("cpu/cpu.stat", control_group))
        memory = _keyed(self._read("memory/memory.stat", control_group))
        throttled_nsec = cpu.get("throttled_time")
        return Sample(
            cpu_usec=usage.cpu_usec,
            throttled_usec=None if throttled_nsec is None else throttled_nsec // 1000,
            periods=cpu.get("nr_periods"),
            throttled_periods=cpu.get("nr_throttled"),
            memory_bytes=usage.memory_bytes,
            working_set_bytes=_working_set(usage.memory_bytes, memory.get("total_inactive_file")),
            rss_bytes=memory.get("total_rss"),
            swap_bytes=memory.get("total_swap"),
            page_faults=memory.get("total_pgfault"),
            major_page_faults=memory.get("total_pgmajfault"),
            tasks=usage.tasks,
            # memory.oom_control does not count what happens below
            oom_kills=None,
            written_bytes=_written_v1(
                self._read("blkio/blkio.throttle.io_service_bytes_recursive", control_group)
            ),
        )

    def _pressure(self, control_group: str) -> Mapping[str, Pressure]:
        texts = {name: self._read(f"{name}.pressure", control_group) for name in PRESSURES}
        return {name: parse_pressure(text) for name, text in texts.items() if text}

    def _tree(self, control_group: str) -> Path:
        """Its directory where systemd keeps its processes."""
        hybrid = self.mount / "systemd"
        mount = hybrid if not self.is_v2 and hybrid.is_dir() else self.mount
        return mount / control_group.lstrip("/")

    def _read(self, file: str, control_group: str) -> str | None:
        try:
            return read_value(self._path(file, control_group))
        except OSError:
            return None

    def _path(self, file: str, control_group: str) -> str:
        controller, _, name = file.rpartition("/")
        return f"{self.mount}/{controller}/{control_group.strip('/')}/{name}"


def read_small(path: str) -> str:
    """A file's text, where that is so short that it is read at once.

    Raises:
        OSError: it can't be read.
        ValueError: it is longer, or no text.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(handle, _SMALL_BYTES)
    finally:
        os.close(handle)
    if len(text) == _SMALL_BYTES:
        raise ValueError(f"{path} is longer than {_SMALL_BYTES - 1} bytes")
    return text.decode()


def parse_pressure(text: str) -> Pressure:
    """A file of pressures: `some avg10=0.18 avg60=0.03 avg300=0.00 total=22099`, and `full …`."""
    found = {}
    for line in split_lines(text):
        kind, *pairs = line.split(" ")
        found[kind] = dict(pair.split("=", 1) for pair in pairs)
    # older kernels have no `full` for the CPU
    return Pressure(some=_waited(found["some"]), full=_waited(found.get("full", {})))


def _waited(pairs: Mapping[str, str]) -> Waited:
    return Waited(
        avg10_milli=_milli(pairs.get("avg10", "0")),
        avg60_milli=_milli(pairs.get("avg60", "0")),
        avg300_milli=_milli(pairs.get("avg300", "0")),
        usec=int(pairs.get("total", "0")),
    )


def _milli(text: str) -> int:
    return round(float(text) * 1000)


def _working_set(used: int | None, inactive_file: int | None) -> int | None:
    return None if used is None else max(used - (inactive_file or 0), 0)


def _written(io_stat: str | None) -> dict[str, int]:
    """Lines of `254:0 rbytes=51 wbytes=37 …`; a device may have none of them."""
    found = {}
    for line in split_lines(io_stat or ""):
        device, *pairs = line.split(" ")
        for pair in pairs:
            if pair.startswith("wbytes="):
                found[device] = int(pair.removeprefix("wbytes="))
    return found


def _written_v1(service_bytes: str | None) -> dict[str, int]:
    """Lines of `254:0 Write 37`, and such of other operations."""
    lines = (line.split(" ") for line in split_lines(service_bytes or ""))
    return {words[0]: int(words[2]) for words in lines if words[1:2] == ["Write"]}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _count(path: str) -> int | None:
    try:
        return int(read_small(path))
    except (OSError, ValueError):
        return None


def _keyed(text: str | None) -> dict[str, int]:
    """A file of `name value` lines."""
    fields = (line.split(" ") for line in split_lines(text or ""))
    return {words[0]: int(words[1]) for words in fields if len(words) == 2 and words[1].isdigit()}
