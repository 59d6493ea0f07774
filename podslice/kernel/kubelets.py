"""Kubelet processes on this host; the root directory is a parameter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from podslice.kernel.text import read_value_or_empty, split_lines, split_words
from podslice.model.node_state import Kubelet

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
