"""The limits and counters of control groups, in both layouts.

Only `limit_hugepages` writes.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple, Self

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

# the counters of memory.stat that can't be reclaimed without swap
_UNRECLAIMABLE = ("anon", "shmem", "slab_unreclaimable", "kernel_stack", "pagetables", "percpu")

Counter = Literal[
    "cpu_usec",
    "throttled_usec",
    "periods",
    "throttled_periods",
    "memory_bytes",
    "peak_bytes",
    "inactive_bytes",
    "rss_bytes",
    "swap_bytes",
    "page_faults",
    "major_page_faults",
    "tasks",
    "oom_kills",
]
"""A counter of a control group and its descendants; `inactive_bytes` are inactive cached files."""

_V2: Mapping[Counter, tuple[str, str]] = {
    "cpu_usec": ("cpu.stat", "usage_usec"),
    "throttled_usec": ("cpu.stat", "throttled_usec"),
    "periods": ("cpu.stat", "nr_periods"),
    "throttled_periods": ("cpu.stat", "nr_throttled"),
    "memory_bytes": ("memory.current", ""),
    # since Linux 5.19
    "peak_bytes": ("memory.peak", ""),
    "inactive_bytes": ("memory.stat", "inactive_file"),
    "rss_bytes": ("memory.stat", "anon"),
    "swap_bytes": ("memory.swap.current", ""),
    "page_faults": ("memory.stat", "pgfault"),
    "major_page_faults": ("memory.stat", "pgmajfault"),
    "tasks": ("pids.current", ""),
    "oom_kills": ("memory.events", "oom_kill"),
}
"""The file that has a counter, and the name of its line; empty for a file with one number.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
"""

_V1: Mapping[Counter, tuple[str, str]] = {
    "cpu_usec": ("cpuacct/cpuacct.usage", ""),
    "throttled_usec": ("cpu/cpu.stat", "throttled_time"),
    "periods": ("cpu/cpu.stat", "nr_periods"),
    "throttled_periods": ("cpu/cpu.stat", "nr_throttled"),
    "memory_bytes": ("memory/memory.usage_in_bytes", ""),
    "peak_bytes": ("memory/memory.max_usage_in_bytes", ""),
    "inactive_bytes": ("memory/memory.stat", "total_inactive_file"),
    "rss_bytes": ("memory/memory.stat", "total_rss"),
    "swap_bytes": ("memory/memory.stat", "total_swap"),
    "page_faults": ("memory/memory.stat", "total_pgfault"),
    "major_page_faults": ("memory/memory.stat", "total_pgmajfault"),
    "tasks": ("pids/pids.current", ""),
    # memory.oom_control does not count kills in descendants
}
"""As `_V2`, below the controller's directory. Remove once systemd < 258 is no longer supported."""


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


class CgroupFs(NamedTuple):
    """The control groups below one mount."""

    mount: Path = Path("/sys/fs/cgroup")

    @property
    def is_v2(self) -> bool:
        """Return whether the host has the unified layout with its controllers."""
        return os.access(f"{self.mount}/cgroup.controllers", os.F_OK)

    def limits(self, control_group: str) -> Mapping[str, str]:
        """Return the text of the kernel's limits, by systemd's property."""
        of_file = attrgetter("kernel_file" if self.is_v2 else "kernel_file_v1")
        # A property without a file in this layout has an empty name.
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

    def counters(self, control_group: str, names: Collection[Counter]) -> dict[Counter, int | None]:
        """Return counters of a control group; None for what the kernel does not count."""
        is_v2 = self.is_v2
        places = _V2 if is_v2 else _V1
        texts: dict[str, str | None] = {"": None}
        found: dict[Counter, int | None] = {}
        for name in names:
            file, key = places.get(name, ("", ""))
            if file not in texts:
                texts[file] = self._read(file, control_group)
            text = texts[file]
            number = _field(text or "", key) if key else _number(text)
            if number is not None and name in ("cpu_usec", "throttled_usec") and not is_v2:
                number //= 1000  # ns
            found[name] = number
        return found

    def counter(self, control_group: str, name: Counter) -> int | None:
        """Return one counter of a control group; None if the kernel does not count it."""
        return self.counters(control_group, (name,))[name]

    def usage(self, control_group: str) -> Usage:
        """Return the usage of a control group and its descendants."""
        return Usage(**self.counters(control_group, ("memory_bytes", "cpu_usec", "tasks")))

    def sample(self, control_group: str) -> Sample:
        """Return all of the kernel's counters of a control group and its descendants.

        The root, `/`, has no counters of memory and tasks.
        """
        found = self.counters(control_group, _V2)
        inactive, _ = found.pop("inactive_bytes"), found.pop("peak_bytes")
        if self.is_v2:
            io_stat = self._read("io.stat", control_group)
            read_bytes, written_bytes = (_by_device(io_stat, key) for key in ("rbytes", "wbytes"))
        else:
            file = "blkio/blkio.throttle.io_service_bytes_recursive"
            io_stat = self._read(file, control_group)
            read_bytes, written_bytes = (_by_device_v1(io_stat, key) for key in ("Read", "Write"))
        pressure = {name: self._read(f"{name}.pressure", control_group) for name in PRESSURES}
        return Sample(
            **found,
            working_set_bytes=_working_set(found["memory_bytes"], inactive),
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            pressure={name: parse_pressure(text) for name, text in pressure.items() if text},
        )

    def waits_usec(self, control_group: str) -> tuple[int, int] | None:
        """Return how long a task waited for a CPU, and for memory, since the group was created.

        Source: Linux, Documentation/accounting/psi.rst, "some".
        """
        texts = [self._read(f"{name}.pressure", control_group) for name in ("cpu", "memory")]
        cpu, memory = (parse_pressure(text).some.usec if text else None for text in texts)
        return None if cpu is None or memory is None else (cpu, memory)

    def working_set_bytes(self, control_group: str) -> int | None:
        """Return only the working set, for callers that read it many times a second."""
        found = self.counters(control_group, ("memory_bytes", "inactive_bytes"))
        return _working_set(found["memory_bytes"], found["inactive_bytes"])

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
        # In cgroup v1 each controller is mounted in a directory of its name, above all control
        # groups.
        controller, _, name = file.rpartition("/")
        return f"{self.mount}/{controller}/{control_group.strip('/')}/{name}"


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


def _working_set(used: int | None, inactive: int | None) -> int | None:
    return None if used is None else max(used - (inactive or 0), 0)


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


def _field(text: str, name: str) -> int | None:
    """Return one value of lines of `name value`."""
    _, found, rest = f"\n{text}".partition(f"\n{name} ")
    return _number(rest.partition("\n")[0]) if found else None


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
    # From the root down: a controller can be enabled only where the parent has enabled it.
    # Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Top-down Constraint".
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
