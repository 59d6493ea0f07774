"""The network of a container: a process joins it, and gives up all its rights.

A process needs rights only to join: CAP_SYS_PTRACE to open the namespace of a process of another
user, and CAP_SYS_ADMIN to join it. With rootless podman it needs none, since the owner of a user
namespace may join that, and has all capabilities in it.

Source: setns(2), user_namespaces(7), capabilities(7).
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from podslice.features.quadlet.probe_commands import list_processes
from podslice.kernel.proc import read_process

_USER, _NETWORK = 0x10000000, 0x40000000
"""Source: Linux, include/uapi/linux/sched.h, CLONE_NEWUSER and CLONE_NEWNET."""
_SET_SECUREBITS, _SET_NO_NEW_PRIVILEGES, _AMBIENT = 28, 38, 47
_CLEAR_ALL = 4
"""Source: Linux, include/uapi/linux/prctl.h, PR_CAP_AMBIENT_CLEAR_ALL."""
_NO_ROOT = 0b11
"""Source: Linux, include/uapi/linux/securebits.h, SECBIT_NOROOT and SECBIT_NOROOT_LOCKED."""


def find_process(control_group: str, root: Path = Path("/")) -> int | None:
    """Return the process of a container that its runtime has started; None if it has exited.

    Others may have left the namespaces of the container. The parent of this one is outside of it.
    """
    present = frozenset(list_processes(control_group, root))
    for pid in sorted(present):
        process = read_process(pid)
        if process is not None and process.parent not in present:
            return pid
    return None


def join_network(pid: int) -> None:
    """Join the network of a process.

    Raises:
        OSError: the process has exited, or its namespaces may not be joined.
    """
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.path.samestat(os.fstat(network), Path("/proc/self/ns/net").stat()):
            return  # the pod has that of the host
        try:
            _set_namespace(network, _NETWORK)
        except PermissionError:
            user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _set_namespace(user, _USER)
            finally:
                os.close(user)
            _set_namespace(network, _NETWORK)
    finally:
        os.close(network)


def give_up_rights() -> None:
    """Let this process, and all that it executes, have no capabilities once it executes a program.

    A process of user 0, as in the user namespace of a container of rootless podman, would otherwise
    get the capabilities of that namespace.

    Raises:
        OSError: the kernel refuses it.
    """
    _control(_SET_NO_NEW_PRIVILEGES, 1)
    _control(_AMBIENT, _CLEAR_ALL)
    if os.geteuid() == 0:
        _control(_SET_SECUREBITS, _NO_ROOT)


def _set_namespace(descriptor: int, kind: int) -> None:
    # os.setns is in Python 3.12 and later
    _checked(ctypes.CDLL(None, use_errno=True).setns(descriptor, kind))


def _control(option: int, value: int) -> None:
    unused = ctypes.c_ulong(0)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    _checked(prctl(option, ctypes.c_ulong(value), unused, unused, unused))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
