"""The host's cgroup hierarchies, and the location of a machine's cgroups in them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.lab.machine import LabError

NEEDED_V1 = frozenset({"cpu", "cpuacct", "memory", "pids"})
SYSTEMD_V1 = "name=systemd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    names: str  # "memory", "cpu,cpuacct", "name=systemd"; empty for cgroup v2
    mount_point: Path
    own: Path  # the cgroup of this process, below the mount point

    @property
    def dir_name(self) -> str:
        """Return the name of the mount point below /sys/fs/cgroup, by systemd's rule."""
        if not self.names:
            return "unified"
        return self.names.removeprefix("name=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The hierarchies of this host that a namespace can use."""

    version: Literal[1, 2]
    hierarchies: tuple[Hierarchy, ...]


def host_layout() -> Layout:
    """Return the hierarchies of this host."""
    paths = _own_paths(Path("/proc/self/cgroup").read_text())
    found = _mounted(Path("/proc/self/mountinfo").read_text(), paths)
    unified = tuple(h for h in found if not h.names)
    legacy = tuple(h for h in found if NEEDED_V1 & set(h.names.split(",")))
    named = tuple(h for h in found if h.names == SYSTEMD_V1)
    if legacy and named:
        return Layout(version=1, hierarchies=(*legacy, *named, *unified))
    if unified:
        return Layout(version=2, hierarchies=unified)
    raise LabError("no cgroup hierarchy is mounted which a systemd could use")


def unified_only(layout: Layout) -> tuple[Hierarchy, ...]:
    """Return the hierarchy of cgroup v2."""
    found = tuple(h for h in layout.hierarchies if not h.names)
    if not found:
        raise LabError("the cgroup v2 hierarchy is not mounted, and this systemd needs it")
    return found


def is_systemd_host() -> bool:
    """Return whether systemd is the host's PID 1, and thus owns the cgroup tree."""
    return Path("/run/systemd/system").is_dir()


def _own_paths(text: str) -> dict[str, str]:
    """Parse /proc/self/cgroup: "4:memory:/user.slice" → {"memory": "/user.slice"}."""
    rows = (line.split(":", 2) for line in text.splitlines())
    return {names: path for _, names, path in rows}


def _mounted(text: str, paths: dict[str, str]) -> list[Hierarchy]:
    """Parse /proc/self/mountinfo: the first mount of each hierarchy with our own cgroup."""
    found: dict[str, Hierarchy] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        root, mount_point = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        names = "" if kind == "cgroup2" else _names_in(options, paths)
        own = paths.get(names)
        if own is None or names in found or os.path.commonpath([own, root]) != root:
            continue
        mounted_at = Path(mount_point)
        found[names] = Hierarchy(
            names=names, mount_point=mounted_at, own=mounted_at / os.path.relpath(own, root)
        )
    return list(found.values())


def _names_in(options: str, paths: dict[str, str]) -> str:
    """Return the row of /proc/self/cgroup that super block options belong to."""
    words = set(options.split(","))
    for names in paths:
        if names and set(names.split(",")) <= words:
            return names
    return "none"
