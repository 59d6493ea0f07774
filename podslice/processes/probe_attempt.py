"""One attempt of a probe: in the container, or from a child process in its network.

The child joins the container's network namespace, and with rootless podman its user namespace
before. So requests need nothing in the image and no address that other hosts can reach; the
container need not listen on the loopback address either.

Source: setns(2), user_namespaces(7): the owner of a user namespace may join it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from podslice.dataclass import dataclass
from podslice.model.workload import Exec

_PODMAN = "podman"
_OK, _FAILED = 0, 1
_MARK = "PODSLICE_PROBE"
"""A variable of the processes of a probe, by which they are found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContainer:
    """A running container."""

    name: str
    pid: int
    """The process whose namespaces are those of the container."""


def attempt_request(
    request: Callable[[int], bool], target: RunningContainer, timeout_sec: int
) -> bool:
    """Make a request from the network of a container, and return whether it succeeds in time."""

    def work() -> bool:
        join(target.pid)
        return request(timeout_sec)

    return in_child(work, timeout_sec)


def attempt_command(action: Exec, target: RunningContainer, timeout_sec: int) -> bool:
    """Run a command in a container, and return whether it succeeds in time.

    Its processes end with its time, as in the kubelet.
    """
    mark = f"{_MARK}={target.name}"
    try:
        done = subprocess.run(
            [_PODMAN, "exec", f"--env={mark}", target.name, *action.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_sec,
            check=False,
        )
    except subprocess.TimeoutExpired:
        kill_marked(mark)
        return False
    except OSError:
        return False
    return done.returncode == 0


def kill_marked(mark: str) -> None:
    """Kill the processes with this variable: the end of podman leaves them as they are."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has exited, or is of another user
            descriptor = os.pidfd_open(int(directory.name))
            try:
                if mark.encode() in (directory / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


def in_child(work: Callable[[], bool], timeout_sec: float) -> bool:
    """Run in a child process, which is killed after a time; return whether it succeeds."""
    pid = os.fork()
    if pid == 0:
        code = _FAILED
        with suppress(BaseException):
            code = _OK if work() else _FAILED
        os._exit(code)
    descriptor = os.pidfd_open(pid)
    try:
        if not _wait(descriptor, timeout_sec):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == _OK


def _wait(descriptor: int, timeout_sec: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout_sec * 1000))


def join(pid: int) -> None:
    """Join the user namespace of a process, if it is another one, and its network namespace.

    Raises:
        OSError: the process has exited, or its namespaces may not be joined.
    """
    for kind in ("user", "net"):
        theirs = Path(f"/proc/{pid}/ns/{kind}")
        if not theirs.samefile(f"/proc/self/ns/{kind}"):
            descriptor = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _set_namespace(descriptor)
            finally:
                os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    # os.setns is in Python 3.12 and later
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
