"""Facts about a host that matter to podslice; the root directory is a parameter.

They are read from files that every user may read; nothing is written.
"""

from __future__ import annotations

import pwd
from contextlib import suppress
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from podslice.errors import HostError, Problem
from podslice.features.doctor.runtime_drivers import Runtime, Surroundings, read_runtimes
from podslice.kernel.host import cgroup2_options, read_meminfo
from podslice.kernel.text import read_value, read_value_or_empty, split_words
from podslice.model.node_state import Foreign, Kubelet
from podslice.model.unit import SYSTEM, Manager

_CGROUP = "sys/fs/cgroup"
# controllers that cgroup v2 names differently
_RENAMED = {"blkio": "io"}


class Layout(StrEnum):
    """The layout of the mounted control groups. Source: systemd, docs/CGROUP_DELEGATION.md."""

    V2 = "v2"
    HYBRID = "hybrid"
    """Version 1 with the controllers, and version 2 without any."""
    V1 = "v1"
    NONE = "none"


class SystemdReply(NamedTuple):
    """The reply of the service manager, and the owner of the root."""

    version: int | None
    error: str = ""
    """Why there is no reply."""
    foreign: Foreign | None = None
    """Why the root is not podslice's own, judged by its units and the kubelets."""
    kubelets: tuple[Kubelet, ...] = ()
    """The kubelets that run on the host."""
    claims: tuple[Problem, ...] = ()
    """The resources that both podslice and a kubelet claim."""


class Subject(NamedTuple):
    """The manager and the pods that are checked, and the user who checks them."""

    uid: int
    manager: Manager = SYSTEM
    cgroup_root: str = "/"
    control_group: str = "/kubepods.slice"
    """The slice that holds all pods, below the manager's own control group."""


class Session(NamedTuple):
    """The session that a user needs for `--user`."""

    name: str
    directory: str
    """XDG_RUNTIME_DIR; empty where it is not set."""
    owner: int | None
    """The uid of that directory's owner; None where it cannot be read."""
    lingers: bool
    """Whether the user's manager keeps running after the last session."""


class Hugetlb(NamedTuple):
    """The state of the controller of huge pages."""

    pages: int
    """The number of huge pages of all sizes."""
    known: bool
    """Whether the kernel has the controller."""
    stops_at: str | None
    """The control group above the root slice that does not enable it below; None if all do."""


class Facts(NamedTuple):
    """The state of a host, as it was read once."""

    manager: Manager
    systemd: SystemdReply
    uid: int
    session: Session | None
    """None for the system's manager."""
    first_process: str
    """The name of process 1; empty where it cannot be read."""
    kernel: str
    """Its release: `6.12.1-amd64`."""
    command_line: frozenset[str]
    """The words of the kernel's command line."""
    layout: Layout
    mount_options: frozenset[str]
    """The options of cgroup v2. Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "Mounting"."""
    controllers: frozenset[str]
    """The controllers that the manager may use."""
    root_slice: str
    """The name of the slice that holds all pods."""
    cgroup_root: str
    slice_controllers: frozenset[str] | None
    """The controllers of the root slice; None where it does not exist or they are not known."""
    hugetlb: Hugetlb
    has_pressure: bool
    swap_bytes: int
    oom_score_adj: int
    """The value of this process."""
    has_manifest_dir: bool
    """Whether the packages' directory of manifests exists."""
    runtimes: tuple[Runtime, ...]

    @property
    def protects_below(self) -> bool:
        """Return whether the protection of a control group applies to all groups below it."""
        return "memory_recursiveprot" in self.mount_options

    @property
    def counts_hugepages(self) -> bool:
        """Return whether huge pages count as memory of their control group."""
        return "memory_hugetlb_accounting" in self.mount_options


def read_facts(systemd: SystemdReply, subject: Subject, root: Path = Path("/")) -> Facts:
    """Read the facts of a host.

    Raises:
        HostError: /proc cannot be read.
    """
    manager = subject.manager
    try:
        swap_bytes = read_meminfo(root).get("SwapTotal", 0)
        kernel = read_value(root / "proc/sys/kernel/osrelease")
        oom_score_adj = int(read_value(root / "proc/self/oom_score_adj"))
    except (OSError, ValueError) as error:
        raise HostError(f"this host cannot be read: {error}; is /proc mounted?") from error
    layout = _layout(root)
    group = PurePosixPath(manager.path_of(subject.control_group))
    return Facts(
        manager=manager,
        systemd=systemd,
        uid=subject.uid,
        session=_session(manager.uid, manager, root) if manager.uid is not None else None,
        first_process=read_value_or_empty(root / "proc/1/comm"),
        kernel=kernel,
        command_line=frozenset(split_words(read_value_or_empty(root / "proc/cmdline"))),
        layout=layout,
        mount_options=cgroup2_options(root),
        controllers=_controllers(root, layout, manager),
        root_slice=group.name,
        cgroup_root=subject.cgroup_root,
        slice_controllers=_controllers_of(root, group) if layout is Layout.V2 else None,
        hugetlb=_hugetlb(root, layout, group),
        # the kernel may list the file, and deny to read it
        has_pressure=bool(read_value_or_empty(root / "proc/pressure/memory")),
        swap_bytes=swap_bytes,
        oom_score_adj=oom_score_adj,
        has_manifest_dir=(root / "etc/podslice/manifests").is_dir(),
        runtimes=installed_runtimes(manager, root),
    )


def installed_runtimes(manager: Manager, root: Path = Path("/")) -> tuple[Runtime, ...]:
    """Return the container runtimes of a manager's user, with their drivers."""
    surroundings = Surroundings(
        root=root,
        uid=manager.uid,
        config_directory=manager.config_directory,
        has_systemd=read_value_or_empty(root / "proc/1/comm") == "systemd",
        is_v2=_layout(root) is Layout.V2,
    )
    return read_runtimes(surroundings)


def _layout(root: Path) -> Layout:
    mount = root / _CGROUP
    if (mount / "cgroup.controllers").exists():
        return Layout.V2
    if (mount / "unified/cgroup.procs").exists():
        return Layout.HYBRID
    return Layout.V1 if any(mount.glob("*/cgroup.procs")) else Layout.NONE


def _controllers(root: Path, layout: Layout, manager: Manager) -> frozenset[str]:
    """Return the controllers that a manager may use, by their names in cgroup v2."""
    if layout is Layout.V2:
        return _controllers_of(root, PurePosixPath(manager.control_group)) or frozenset()
    if manager.is_user:
        return frozenset()  # systemd delegates none of version 1 to users
    found = (root / _CGROUP).glob("*/cgroup.procs")
    return frozenset(_RENAMED.get(path.parent.name, path.parent.name) for path in found)


def _controllers_of(root: Path, group: PurePosixPath) -> frozenset[str] | None:
    """Return the controllers of a control group; None if it does not exist."""
    return _words(root / _CGROUP / group.relative_to("/") / "cgroup.controllers")


def _hugetlb(root: Path, layout: Layout, group: PurePosixPath) -> Hugetlb:
    counts = (root / "sys/kernel/mm/hugepages").glob("*/nr_hugepages")
    stops_at = None
    for above in reversed(group.parents):
        enabled = _words(root / _CGROUP / above.relative_to("/") / "cgroup.subtree_control")
        if enabled is not None and "hugetlb" not in enabled:
            stops_at = str(above)
            break
    known = _words(root / _CGROUP / "cgroup.controllers") or frozenset()
    return Hugetlb(
        pages=sum(int(read_value_or_empty(path) or 0) for path in counts),
        known=layout is Layout.V2 and "hugetlb" in known,
        stops_at=stops_at,
    )


def _session(uid: int, manager: Manager, root: Path) -> Session:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    directory = manager.runtime_directory if manager.has_session else ""
    owner = None
    if directory:
        with suppress(OSError):
            owner = (root / directory.lstrip("/")).stat().st_uid
    return Session(
        name=name,
        directory=directory,
        owner=owner,
        lingers=(root / "var/lib/systemd/linger" / name).exists(),
    )


def _words(path: Path) -> frozenset[str] | None:
    try:
        return frozenset(split_words(read_value(path)))
    except OSError:
        return None
