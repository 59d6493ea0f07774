"""Processes as /proc shows them; the root directory is a parameter."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from podslice.errors import printable
from podslice.kernel.text import (
    read_text,
    read_value,
    read_value_or_empty,
    split_lines,
    split_words,
)
from podslice.model.node_state import Kubelet
from podslice.model.unit import SYSTEM, SYSTEM_BUS_ADDRESS, Manager, user_manager

_KERNEL_THREAD = 0x00200000
"""Source: Linux, include/linux/sched.h, PF_KTHREAD."""

ENDED_STATES = "ZX"
"""The states of a terminated process. Source: proc_pid_stat(5)."""
_REMOVED = " (deleted)"
"""The mark of a removed group. A group with a live process cannot be removed: then it is a name's end.

Source: Linux, kernel/cgroup/cgroup.c, proc_cgroup_show and cgroup_destroy_locked.
"""

# fields of /proc/<pid>/stat behind the name, which is in brackets and may hold anything
_STATE, _PARENT, _FLAGS, _THREADS, _STARTED = 0, 1, 6, 17, 19
_CPU_TICKS = slice(11, 15)
"""In user and kernel mode, also of children that have terminated. Source: proc_pid_stat(5)."""


class Process(NamedTuple):
    """A process at one moment."""

    pid: int
    name: str
    """Safe to print on a terminal."""
    parent: int
    """The id of its parent; 0 where that is outside of this view."""
    state: str
    """One letter: `Z` is a zombie, which its parent has not reaped."""
    is_kernel_thread: bool
    started_ticks: int
    """When it started, in clock ticks since boot; with the id it identifies one process uniquely."""
    control_group: str
    """The one in systemd's hierarchy; empty if it can't be read."""
    leader: int
    """The process that it is a thread of; a process leads itself."""
    uid: int
    """The user that it runs as (the real one)."""


def read_process(pid: int, root: Path = Path("/")) -> Process | None:
    """Return a process, or one of its threads; None if the id does not exist."""
    place = root / "proc" / str(pid)
    try:
        stat = read_value(place / "stat")
        groups = read_text(place / "cgroup")
        status = _keyed(read_text(place / "status"))
    except OSError:
        return None
    head, _, tail = stat.rpartition(")")
    fields = split_words(tail)
    state, group = fields[_STATE], parse_control_group(groups)
    return Process(
        pid=pid,
        name=printable(head.partition("(")[2]),
        parent=int(fields[_PARENT]),
        state=state,
        is_kernel_thread=bool(int(fields[_FLAGS]) & _KERNEL_THREAD),
        started_ticks=int(fields[_STARTED]),
        control_group=group.removesuffix(_REMOVED) if state in ENDED_STATES else group,
        leader=int(status["Tgid"][0]),
        uid=int(status["Uid"][0]),
    )


class ProcessUse(NamedTuple):
    """What one process uses, with all its threads."""

    cpu_ticks: int
    """Of the process and its terminated children, in clock ticks."""
    threads: int
    started_ticks: int
    """When it started, in clock ticks since boot."""
    memory_bytes: int
    """Its resident memory, shared pages included."""
    peak_bytes: int
    """The most resident memory since it started."""


def read_process_use(pid: int, root: Path = Path("/")) -> ProcessUse | None:
    """Return what a process uses; None if it has terminated, or is a kernel thread."""
    place = root / "proc" / str(pid)
    try:
        fields = split_words(read_value(place / "stat").rpartition(")")[2])
        status = _keyed(read_text(place / "status"))
    except OSError:
        return None
    if "VmRSS" not in status:
        return None
    return ProcessUse(
        cpu_ticks=sum(map(int, fields[_CPU_TICKS])),
        threads=int(fields[_THREADS]),
        started_ticks=int(fields[_STARTED]),
        memory_bytes=int(status["VmRSS"][0]) * 1024,
        peak_bytes=int(status["VmHWM"][0]) * 1024,
    )


def has_mounts_of_host(pid: int, root: Path = Path("/")) -> bool:
    """Return whether a process is in the mount namespace of process 1; no container is.

    False where it has terminated, or only root may read that.
    """
    try:
        own, first = ((root / f"proc/{each}/ns/mnt").readlink() for each in (pid, 1))
    except OSError:
        return False
    return own == first


def descendants(pid: int, root: Path = Path("/")) -> tuple[int, ...]:
    """Return a process and all running processes below it."""
    found = [pid]
    # The list grows while it is read: children of children follow.
    for each in found:
        found += (child for child in children(each, root) if child not in found)
    return tuple(found)


def process_name(pid: int, root: Path = Path("/")) -> str:
    """Return the name of a process, safe for a terminal; `?` if it has terminated."""
    try:
        return printable(read_value(root / "proc" / str(pid) / "comm"))
    except OSError:
        return "?"


def children(pid: int, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the ids of the running child processes of a process; none if it has terminated.

    Source: proc_pid_task_children(5).
    """
    found: list[int] = []
    threads: list[Path] = []
    with contextlib.suppress(OSError):
        # The kernel lists a child with the thread that has started it.
        threads += (root / "proc" / str(pid) / "task").iterdir()
    for thread in threads:
        with contextlib.suppress(OSError):
            found += map(int, split_words(read_value(thread / "children")))
    return tuple(sorted(found))


_NO_LOGIN = 2**32 - 1


def read_login_uid(root: Path = Path("/")) -> int | None:
    """Return the uid with which the user of this process has logged in, None without a login.

    It stays the same through su and sudo. Source: proc(5), /proc/PID/loginuid.
    """
    try:
        uid = int(read_value(root / "proc/self/loginuid"))
    except (OSError, ValueError):  # a kernel without audit
        return None
    return None if uid == _NO_LOGIN else uid


def find_manager(*, user: bool = False) -> Manager:
    """Return the system's manager, or with `user` that of the user who runs this process."""
    if not user:
        address = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", SYSTEM_BUS_ADDRESS)
        return replace(SYSTEM, bus_address=address)
    manager = user_manager(os.getuid(), {**os.environ, "HOME": _home()})
    session = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    # the bus of a session may be one without a systemd: it is only the second choice
    if session and not Path(manager.runtime_directory, "bus").exists():
        return replace(manager, bus_address=session)
    return manager


def _home() -> str:
    """Return the home directory: HOME, or that of the user database if HOME is not absolute.

    Source: systemd, src/basic/user-util.c, get_home_dir.
    """
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        return home
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user without an entry
        return "/"


def read_oom_score_adj(pid: int, root: Path = Path("/")) -> int:
    """Return the oom_score_adj of a process.

    Raises:
        OSError: it does not exist.
    """
    return int(read_text(root / "proc" / str(pid) / "oom_score_adj"))


def set_oom_score_adj(pid: int, value: int, root: Path = Path("/")) -> None:
    """Set how readily the OOM killer chooses a process.

    Raises:
        OSError: it has terminated, or the kernel refuses: lowering requires CAP_SYS_RESOURCE.
    """
    (root / "proc" / str(pid) / "oom_score_adj").write_text(str(value))


class PidFd:
    """A reference to one process, which its id alone is not: ids are used again.

    Raises:
        OSError: there is no such process, or no descriptor is left.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd = os.pidfd_open(pid)

    @property
    def has_ended(self) -> bool:
        """Return whether the process has terminated; its id is not used again before that."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


def ancestors(pid: int, root: Path = Path("/")) -> Iterator[int]:
    """Yield the ids of a process's ancestors, the nearest first."""
    # Ids may be used again between two reads, which could result in a cycle.
    seen = {pid}
    process = read_process(pid, root)
    while process is not None and process.parent not in {0, *seen}:
        yield process.parent
        seen.add(process.parent)
        process = read_process(process.parent, root)


def parse_control_group(text: str) -> str:
    """Return the control group that systemd keeps a process in, of /proc/<pid>/cgroup.

    It is the unified hierarchy's, and on hosts with the old layouts systemd's own. A process at the
    root of the latter is in a container that has the unified hierarchy alone, on such a host.

    Source: cgroups(7), "/proc/pid/cgroup".
    """
    found = legacy = ""
    for line in split_lines(text):
        number, controllers, path = line.split(":", 2)
        if controllers == "name=systemd":
            legacy = path
        if number == "0":
            found = path
    return (found or legacy) if legacy in ("", "/") else legacy


def _keyed(status: str) -> dict[str, list[str]]:
    """Parse /proc/<pid>/status into the words of each line, by key."""
    lines = (line.partition(":") for line in split_lines(status))
    return {key: split_words(words) for key, _, words in lines}


_UNSET = str(2**32 - 1)
"""The login uid of a process outside of any login. Source: proc_pid_loginuid(5)."""

Arguments = Sequence[str]


def _first_is(*verbs: str) -> Callable[[Arguments], bool]:
    return lambda words: next((each for each in words if not each.startswith("-")), "") in verbs


def _is_k0s_node(arguments: Arguments) -> bool:
    is_worker = bool({"--enable-worker", "--single"}.intersection(arguments))
    return _first_is("worker")(arguments) or (_first_is("controller")(arguments) and is_worker)


_PROGRAMS: Mapping[str, Callable[[Arguments], bool]] = {
    **dict.fromkeys(("kubelet", "kubelite", "k3s-server", "k3s-agent"), lambda _: True),
    "k3s": _first_is("server", "agent"),
    "rke2": _first_is("server", "agent"),
    "microshift": _first_is("run"),
    "k0s": _is_k0s_node,
}
"""The programs that contain or supervise a kubelet, and with which arguments they do.

Source: K3s, pkg/cli/cmds; RKE2, pkg/cli/cmds; MicroShift, pkg/cmd/run.go; k0s, cmd/worker and
cmd/controller (--enable-worker, --single); MicroK8s, snap/snapcraft.yaml (kubelite).
"""


def find_kubelets(root: Path = Path("/")) -> Iterator[Kubelet | None]:
    """Yield one value for each process: the kubelet that it runs, or None.

    A caller with an event loop can give way between two of them. A process counts if it runs as
    root, outside of containers, and not from the login of another user: a program such as sudo
    becomes root under whatever name a user starts it.
    """
    # strings: paths as objects take as long as the reading
    proc = f"{root}/proc"
    own_login = read_value_or_empty(f"{proc}/1/loginuid")
    with suppress(OSError):
        for pid in os.listdir(proc):  # noqa: PTH208 - thousands
            if pid.isdecimal():
                yield _kubelet(pid, f"{proc}/{pid}", own_login)


def _kubelet(pid: str, process: str, own_login: str) -> Kubelet | None:
    name = read_value_or_empty(f"{process}/comm")
    if name not in _PROGRAMS:
        return None
    # a program that sets its title writes it as one argument
    words = split_words(read_value_or_empty(f"{process}/cmdline").replace("\0", " "))
    if not _PROGRAMS[name](words[1:]):
        return None
    # it belongs to no login, to root's, or to that of process 1
    is_of_no_user = read_value_or_empty(f"{process}/loginuid") in {"", "0", _UNSET, own_login}
    if not is_of_no_user or not _is_of_the_host(process):
        return None
    return Kubelet(pid=int(pid), name=name)


def _is_of_the_host(process: str) -> bool:
    """Return whether root runs a process, in the namespace of process ids that /proc shows.

    Source: proc_pid_status(5), Uid (real, effective, saved, file system) and NSpid, which has one
    id more for each namespace further down.
    """
    lines = (line.partition(":") for line in split_lines(read_value_or_empty(f"{process}/status")))
    fields = {key: split_words(value) for key, _, value in lines}
    return set(fields.get("Uid", ())) == {"0"} and len(fields.get("NSpid", ())) <= 1
