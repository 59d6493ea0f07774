"""Read the limits and counters of control groups, in both layouts; never write."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Self

from podslice.errors import HostError
from podslice.kernel.text import (
    read_text,
    read_value,
    split_lines,
    split_words,
)
from podslice.model.properties import MEMORY_MAX, PROPERTIES
from podslice.model.resources import RESERVED_SUFFIX
from podslice.model.unit import INFINITY

# `hugetlb.2MB.max`, `hugetlb.2MB.rsvd.max`. Source: Linux, mm/hugetlb_cgroup.c, mem_fmt
_HUGETLB_FILE = re.compile(r"hugetlb\.\d+(KB|MB|GB)(\.rsvd)?\.max")

PRESSURES = ("cpu", "memory", "io")
"""The resources for which the kernel reports pressure."""

_SMALL_BYTES = 2**12

Counts = Callable[[str], tuple[int | None, int | None]]
"""Bytes and tasks of a control group; None where the kernel does not count them."""

# the counters of memory.stat that can't be reclaimed without swap
_UNRECLAIMABLE = ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The current usage of a control group; None where the kernel does not count it."""

    memory_bytes: int | None = None
    cpu_usec: int | None = None
    tasks: int | None = None


class Waited(NamedTuple):
    """The time that tasks waited: a percentage in thousandths for the last seconds, and the total."""

    avg10_milli: int = 0
    avg60_milli: int = 0
    avg300_milli: int = 0
    usec: int = 0


class Pressure(NamedTuple):
    """The pressure on a resource. Source: Linux, Documentation/accounting/psi.rst."""

    some: Waited = Waited()
    """Some task waited."""
    full: Waited = Waited()
    """All tasks waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The kernel's counters of a control group; None where it has none."""

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
    """Processes that the OOM killer has killed, with those of descendants."""
    read_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes read, by device (`254:0`); empty without any."""
    written_bytes: Mapping[str, int] = field(default_factory=dict)
    pressure: Mapping[str, Pressure] = field(default_factory=dict)
    """Of `cpu`, `memory` and `io`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupFs:
    """The control groups below one mount."""

    mount: Path = Path("/sys/fs/cgroup")

    @property
    def is_v2(self) -> bool:
        """Return whether the host has the unified layout with its controllers."""
        return os.access(f"{self.mount}/cgroup.controllers", os.F_OK)

    def limits(self, control_group: str) -> Mapping[str, str]:
        """Return the text of the kernel's limits, by systemd's property."""
        of_file = attrgetter("kernel_file" if self.is_v2 else "kernel_file_v1")
        texts: dict[str, str | None] = {"": None}
        found = {}
        for row in PROPERTIES.values():
            file = of_file(row)
            if file not in texts:
                texts[file] = self._read(file, control_group)
            if (text := texts[file]) is not None:
                found[row.name] = row.of_kernel(text)
        return found

    def files(self, control_group: str, names: Iterable[str]) -> Mapping[str, str]:
        """Return the text of files of a control group (v2 only); those that do not exist are left out."""
        found = {name: self._read(name, control_group) for name in names if self.is_v2}
        return {name: text for name, text in found.items() if text is not None}

    def usage(self, control_group: str) -> Usage:
        """Return the usage of a control group and its descendants."""
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
        """Return a function that reads only memory and tasks, for thousands of control groups."""
        memory, tasks = "memory.current", "pids.current"
        if not self.is_v2:
            memory, tasks = "memory/memory.usage_in_bytes", "pids/pids.current"
        return lambda control_group: (
            _count(self._path(memory, control_group)),
            _count(self._path(tasks, control_group)),
        )

    def sample(self, control_group: str) -> Sample:
        """Return all of the kernel's counters of a control group and its descendants.

        The root, `/`, has no counters of memory and tasks.
        """
        return self._sample_v2(control_group) if self.is_v2 else self._sample_v1(control_group)

    def peak_bytes(self, control_group: str) -> int | None:
        """Return the most memory since the group was created; None where it is not recorded.

        Source: Linux, admin-guide/cgroup-v2.rst, memory.peak (since 5.19).
        """
        file = "memory.peak" if self.is_v2 else "memory/memory.max_usage_in_bytes"
        return _number(self._read(file, control_group))

    def working_set_bytes(self, control_group: str) -> int | None:
        """Return only the working set, for callers that read it many times a second."""
        stat, usage, inactive = "memory.stat", "memory.current", "inactive_file"
        if not self.is_v2:
            stat, usage = "memory/memory.stat", "memory/memory.usage_in_bytes"
            inactive = "total_inactive_file"
        counters = _keyed(self._read(stat, control_group))
        return _working_set(_number(self._read(usage, control_group)), counters.get(inactive))

    def memory_limit_bytes(self, control_group: str) -> int | None:
        """Return only the limit of memory; None without one."""
        row = PROPERTIES[MEMORY_MAX]
        file = row.kernel_file if self.is_v2 else row.kernel_file_v1
        return _number(self._read(file, control_group))

    def events(self, control_group: str) -> Mapping[str, int]:
        """Return the counts of memory events by kind (`oom_kill`), with descendants (v2 only).

        Source: Linux, admin-guide/cgroup-v2.rst, memory.events.
        """
        return _keyed(self._read("memory.events", control_group) if self.is_v2 else None)

    def events_path(self, control_group: str) -> str:
        """Return the file of `events`."""
        return self._path("memory.events", control_group)

    def exists(self, control_group: str) -> bool:
        """Return whether the control group exists."""
        return self.directory(control_group).is_dir()

    def children(self, control_group: str) -> tuple[str, ...]:
        """Return the names of the control groups directly below one; none if it does not exist."""
        try:
            with os.scandir(self.directory(control_group)) as entries:
                return tuple(sorted(each.name for each in entries if each.is_dir()))
        except OSError:
            return ()

    def processes(self, control_group: str) -> Mapping[str, tuple[int, ...]]:
        """Return the processes of a control group and its descendants, by group.

        Groups without processes are left out, and so are groups that are removed meanwhile.
        """
        top = self.directory(control_group)
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
        """Return the controllers that a control group enables for its children (v2 only)."""
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
        """Return the memory that can't be reclaimed, with that of descendants (v2 only)."""
        stat = _keyed(self._read("memory.stat", control_group) if self.is_v2 else None)
        return sum(stat.get(name, 0) for name in _UNRECLAIMABLE) if stat else None

    def _sample_v2(self, control_group: str) -> Sample:
        cpu = _keyed(self._read("cpu.stat", control_group))
        memory = _keyed(self._read("memory.stat", control_group))
        used = _number(self._read("memory.current", control_group))
        io_stat = self._read("io.stat", control_group)
        pressure = {name: self._read(f"{name}.pressure", control_group) for name in PRESSURES}
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
            read_bytes=_by_device(io_stat, "rbytes"),
            written_bytes=_by_device(io_stat, "wbytes"),
            pressure={name: parse_pressure(text) for name, text in pressure.items() if text},
        )

    def _sample_v1(self, control_group: str) -> Sample:
        usage = self.usage(control_group)
        cpu = _keyed(self._read("cpu/cpu.stat", control_group))
        memory = _keyed(self._read("memory/memory.stat", control_group))
        throttled_nsec = cpu.get("throttled_time")
        io = self._read("blkio/blkio.throttle.io_service_bytes_recursive", control_group)
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
            # memory.oom_control does not count kills in descendants
            oom_kills=None,
            read_bytes=_by_device_v1(io, "Read"),
            written_bytes=_by_device_v1(io, "Write"),
        )

    def directory(self, control_group: str) -> Path:
        """Return the directory of a control group in systemd's hierarchy."""
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
    """Return the text of a file that is small enough to be read in one call.

    Raises:
        OSError: it can't be read.
        ValueError: it is longer, or not text.
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
    """Parse a pressure file: `some avg10=0.18 avg60=0.03 avg300=0.00 total=22099`, and `full …`."""
    found = {}
    for line in split_lines(text):
        kind, *pairs = line.split(" ")
        found[kind] = dict(pair.split("=", 1) for pair in pairs)
    # older kernels have no `full` for the CPU
    return Pressure(some=_waited(found["some"]), full=_waited(found.get("full", {})))


def _waited(pairs: Mapping[str, str]) -> Waited:
    milli = [round(float(pairs.get(f"avg{each}", "0")) * 1000) for each in (10, 60, 300)]
    return Waited(milli[0], milli[1], milli[2], usec=int(pairs.get("total", "0")))


def _working_set(used: int | None, inactive_file: int | None) -> int | None:
    return None if used is None else max(used - (inactive_file or 0), 0)


def _by_device(io_stat: str | None, key: str) -> dict[str, int]:
    """Parse lines of `254:0 rbytes=51 wbytes=37 …`; a device may have none of them."""
    found = {}
    for line in split_lines(io_stat or ""):
        device, *pairs = line.split(" ")
        for pair in pairs:
            name, _, number = pair.partition("=")
            if name == key:
                found[device] = int(number)
    return found


def _by_device_v1(service_bytes: str | None, operation: str) -> dict[str, int]:
    """Parse lines of `254:0 Write 37`; other operations are ignored."""
    lines = (line.split(" ") for line in split_lines(service_bytes or ""))
    return {words[0]: int(words[2]) for words in lines if words[1:2] == [operation]}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _count(path: str) -> int | None:
    try:
        return int(read_small(path))
    except (OSError, ValueError):
        return None


def _keyed(text: str | None) -> dict[str, int]:
    """Parse a file of `name value` lines."""
    fields = (line.split(" ") for line in split_lines(text or ""))
    return {words[0]: int(words[1]) for words in fields if len(words) == 2 and words[1].isdigit()}


_KILLS = "user.oomd_ooms"
_COUNT = re.compile(rb"[0-9]{1,18}")


class OpenGroup(NamedTuple):
    """The open directory of a control group, for kills by systemd-oomd.

    The kernel does not count them in memory.events. systemd-oomd does, in an extended attribute that is
    lost with the control group, which systemd removes once it is empty. Of an open directory it can
    still be read.
    """

    descriptor: int
    inode: int

    @classmethod
    def open(cls, cgroups: CgroupFs, group: str) -> Self | None:
        """Open a control group; None if it does not exist, or there are no descriptors left."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        try:
            descriptor = os.open(cgroups.directory(group), flags)
        except OSError:
            return None
        return cls(descriptor=descriptor, inode=os.fstat(descriptor).st_ino)

    def close(self) -> None:
        """Close the directory."""
        os.close(self.descriptor)

    def is_at(self, cgroups: CgroupFs, group: str) -> bool:
        """Return whether this is still the control group of that name."""
        try:
            return cgroups.directory(group).stat().st_ino == self.inode
        except OSError:
            return False

    def oomd_kills(self) -> int:
        """Return how often systemd-oomd has killed its processes; it counts before it kills.

        Source: systemd, src/oom/oomd-util.c, oomd_cgroup_kill; src/core/cgroup.c,
        unit_check_oomd_kill.
        """
        try:
            value = os.getxattr(self.descriptor, _KILLS)
        except OSError:
            return 0  # it has never killed there
        return int(value) if _COUNT.fullmatch(value) else 0


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
    """Reads the counters of a history of usage, for thousands of groups; None: they are not counted."""

    def __init__(self, cgroups: CgroupFs) -> None:
        self._is_v2 = cgroups.is_v2
        self._layout = _V2 if self._is_v2 else _V1
        self._cpu = f"{cgroups.mount}{self._layout.cpu_directory}"
        self._memory = f"{cgroups.mount}{self._layout.memory_directory}"

    def cpu_usec(self, group: str) -> int | None:
        """Return the CPU time since the group was created."""
        text = _read_beginning(f"{self._cpu}{group}/{self._layout.cpu}")
        if self._is_v2:
            return _field(text, "usage_usec")
        return None if (nsec := _number(text)) is None else nsec // 1000

    def current_bytes(self, group: str) -> int | None:
        """Return the memory that is charged, with cached files."""
        return _number(_read_beginning(f"{self._memory}{group}/{self._layout.current}"))

    def peak_bytes(self, group: str) -> int | None:
        """Return the most of `current_bytes` since the group was created.

        Source: Linux, admin-guide/cgroup-v2.rst, memory.peak (since 5.19).
        """
        return _number(_read_beginning(f"{self._memory}{group}/{self._layout.peak}"))

    def inactive_bytes(self, group: str) -> int:
        """Return the inactive cached files, which are not part of the working set."""
        text = _read_beginning(f"{self._memory}{group}/memory.stat")
        return _field(text, self._layout.inactive) or 0

    def oom_kills(self, group: str) -> int | None:
        """Return the OOM kills since the group was created, with those of descendants (v2 only)."""
        if not self._is_v2:
            return None
        return _field(_read_beginning(f"{self._memory}{group}/memory.events"), "oom_kill")

    def waits_usec(self, group: str) -> tuple[int, int] | None:
        """Return how long a task waited for a CPU, and for memory, since the group was created.

        Source: Linux, Documentation/accounting/psi.rst, "some".
        """
        if not self._is_v2:
            return None
        texts = [
            _read_beginning(f"{self._cpu}{group}/{name}.pressure") for name in ("cpu", "memory")
        ]
        cpu, memory = (parse_pressure(text).some.usec if text else None for text in texts)
        return None if cpu is None or memory is None else (cpu, memory)


def _read_beginning(path: str) -> str:
    """Return the text of a small file, empty if it can't be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(handle, _BYTES_MAX).decode().removesuffix("\n")
    except OSError:  # the group was removed
        return ""
    finally:
        os.close(handle)


def _field(text: str, name: str) -> int | None:
    """Return one value of lines of `name value`."""
    _, found, rest = f"\n{text}".partition(f"\n{name} ")
    return _number(rest.partition("\n")[0]) if found else None


_CONTROLLER = "hugetlb"


def limit_hugepages(
    cgroups: CgroupFs, root: str, control_group: str, files: Mapping[str, int]
) -> None:
    """Limit the huge pages of a control group at or below the root: file → bytes.

    Raises:
        HostError: the control group is elsewhere, or one of its files can't be written.
    """
    group, top = PurePosixPath(control_group), PurePosixPath(root)
    if not group.is_relative_to(top) or ".." in group.parts:
        raise HostError(
            f"{control_group} is not below {root}; its huge pages are not limited by podslice"
        )
    above = [parent for parent in reversed(group.parents) if parent.is_relative_to(top)]
    for parent in above:
        if _CONTROLLER not in cgroups.controllers_below(str(parent)):
            _write_limit(cgroups, parent, "cgroup.subtree_control", f"+{_CONTROLLER}")
    for name, limit_bytes in files.items():
        _write_limit(cgroups, group, name, str(limit_bytes))


def _write_limit(cgroups: CgroupFs, group: PurePosixPath, name: str, text: str) -> None:
    path = Path(cgroups.mount, *group.parts[1:], name)
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC), "w") as file:
            file.write(text)
    except OSError as error:
        if error.errno == errno.ENOENT and name.endswith(RESERVED_SUFFIX):
            return  # Linux 5.6 has no such file
        hint = "; the current usage is higher" if error.errno == errno.EBUSY else ""
        raise HostError(f"{path}: {text} can't be written: {error.strerror}{hint}") from error
