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
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

from podslice.dataclass import dataclass
from podslice.model.workload import Action, Exec, HttpGet, TcpSocket

_PODMAN = "podman"
_OK, _FAILED = 0, 1
_UNROUTED = "192.0.2.1"
"""An address for documentation: a datagram socket that names it sends nothing. Source: RFC 5737."""
_SUCCESS = range(200, 400)
"""Source: Kubernetes, pkg/probe/http/http.go, DoHTTPProbe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContainer:
    """A running container."""

    name: str
    pid: int
    """The process whose namespaces are those of the container."""


def attempt(action: Action, target: RunningContainer, timeout_sec: int) -> bool:
    """Try once, and return whether it succeeds in time."""
    if isinstance(action, Exec):
        return _run([_PODMAN, "exec", target.name, *action.command], timeout_sec)

    def work() -> bool:
        join(target.pid)
        return request(action, timeout_sec)

    return in_child(work, timeout_sec)


def request(action: HttpGet | TcpSocket, timeout_sec: int) -> bool:
    """Make a request from this process, and return whether it succeeds.

    Raises:
        OSError, http.client.HTTPException: it fails otherwise.
    """
    if isinstance(action, TcpSocket):
        return _connect(action, timeout_sec)
    return _get(action, timeout_sec)


def _run(command: list[str], timeout_sec: int) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=timeout_sec,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


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


def own_address() -> str:
    """Return the address of the pod: that of its default route, or else the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect((_UNROUTED, 9))
        except OSError:
            return "127.0.0.1"
        return str(found.getsockname()[0])


def _connect(action: TcpSocket, timeout_sec: int) -> bool:
    with socket.create_connection((action.host or own_address(), action.port), timeout_sec):
        return True


def _get(action: HttpGet, timeout_sec: int) -> bool:
    """Request a page; a certificate is not verified, and a redirection is not followed."""
    headers = {"User-Agent": "kube-probe/podslice", "Accept": "*/*", **dict(action.headers)}
    with closing(_connection(action, timeout_sec)) as connection:
        connection.request("GET", action.path, headers=headers)
        with connection.getresponse() as response:
            return response.status in _SUCCESS


def _connection(action: HttpGet, timeout_sec: int) -> HTTPConnection:
    host = action.host or own_address()
    if action.scheme != "HTTPS":
        return HTTPConnection(host, action.port, timeout=timeout_sec)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(host, action.port, timeout=timeout_sec, context=context)
