"""Commands of probes, which podman runs in the container.

A service that makes requests has a sandbox, in which podman cannot work: the command would have no
more rights than the service has. So another service runs the commands of such a container. The only
input that it takes is which probe is due; what a command prints is dropped.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

from podslice.errors import HostError
from podslice.features.quadlet.probing import ProbeKind
from podslice.features.quadlet.workload import Exec, Probe
from podslice.kernel.text import read_text, split_lines

_PODMAN = "podman"
_MARK = "PODSLICE_PROBE"
"""A variable of the processes of a probe, by which they are found among those of the container."""
_SUCCESS, _FAILURE = b"+", b"-"


class ProbedTarget(NamedTuple):
    """A container in which commands run."""

    name: str
    """Podman's name of it."""
    control_group: str
    """The control group of its service."""
    root: Path = Path("/")
    """The directory of the host's files."""


def attempt_command(probe: Probe, target: ProbedTarget) -> bool:
    """Run the command of a probe in a container, and return whether it succeeds in time.

    Its processes end with its time, as in the kubelet.
    """
    assert isinstance(probe.action, Exec)  # noqa: S101 (other probes make requests)
    mark = f"{_MARK}={target.name}"
    try:
        done = subprocess.run(
            [_PODMAN, "exec", f"--env={mark}", target.name, *probe.action.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=probe.timeout_sec,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _kill_marked(mark, target)
        return False
    except OSError:
        return False
    return done.returncode == 0


def _kill_marked(mark: str, target: ProbedTarget) -> None:
    """Kill the processes of a container with this variable: the end of podman leaves them running.

    A process outside of the container may have the same variable, and is not affected.
    """
    for pid in list_processes(target.control_group, target.root):
        with suppress(OSError):  # it has exited
            descriptor = os.pidfd_open(pid)
            try:
                # the id may be that of another process since the list was read
                is_inside = pid in list_processes(target.control_group, target.root)
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if is_inside and mark.encode() in variables:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            finally:
                os.close(descriptor)


def serve(
    listening: socket.socket, target: ProbedTarget, probes: Mapping[ProbeKind, Probe]
) -> NoReturn:
    """Run the commands of probes for one client after the other, without end.

    A client names a probe by its first letter, and gets whether its command has succeeded.
    """
    commands = {
        _letter(kind): each for kind, each in probes.items() if isinstance(each.action, Exec)
    }
    while True:
        client, _ = listening.accept()
        with client, suppress(OSError):  # the client has ended
            while (probe := commands.get(client.recv(1))) is not None:
                client.sendall(_SUCCESS if attempt_command(probe, target) else _FAILURE)


def request_command(kind: ProbeKind, descriptor: int) -> bool:
    """Have the command of a probe run at the other end of a socket, and return whether it succeeds.

    Raises:
        HostError: the service at the other end has ended.
    """
    try:
        os.write(descriptor, _letter(kind))
        answer = os.read(descriptor, 1)
    except OSError as error:
        raise HostError(f"the service of commands: {error.strerror}") from error
    if not answer:
        raise HostError("the service of commands has ended")
    return answer == _SUCCESS


def _letter(kind: ProbeKind) -> bytes:
    return kind[:1].encode()


_PAYLOAD = "libpod-payload-*"
"""The control group of a container in that of its service, beside that of conmon.

Source: podman 5.4, libpod/oci_conmon_common.go and utils/utils_supported.go, --cgroups=split.
"""


def list_processes(control_group: str, root: Path = Path("/")) -> Iterator[int]:
    """Yield the processes of a container, which are below the control group of its service."""
    service = root / "sys/fs/cgroup" / control_group.lstrip("/")
    for file in service.glob(f"{_PAYLOAD}/**/cgroup.procs"):
        with suppress(OSError):  # the group has been removed
            yield from map(int, split_lines(read_text(file)))
