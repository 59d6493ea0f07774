"""The internal verbs of services that probe a container, as `quadlet.probes` writes them.

They run as long as the container, one process or two for each, and read few modules: with all of them
each process would take 11 MiB more.

Source of when a probe is due, and of what its results mean: Kubernetes, pkg/kubelet/prober/worker.go,
doProbe.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from podslice.cli.output import note
from podslice.errors import FORMAT_ERRORS, HostError, PodsliceError, excerpt, invalid
from podslice.features.quadlet.workload import (
    Action,
    Exec,
    Grpc,
    HttpGet,
    Probe,
    ProbeKind,
    TcpSocket,
)
from podslice.kernel.proc import read_process
from podslice.kernel.text import read_text, split_lines
from podslice.systemd.notify import Notifier

_WHOLE_MAX = 2**31 - 1
"""Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, Probe: its numbers are of type int32."""
_PORT_MAX = 65_535


def parse_probes(text: str) -> dict[ProbeKind, Probe]:
    """Return the probes that a generated unit states.

    Raises:
        InputError: the text is not what `quadlet.probes` writes.
    """
    try:
        document = json.loads(text)
        found = {kind: _probe(document[kind]) for kind in ProbeKind if kind in document}
    except FORMAT_ERRORS as error:
        reason = excerpt(repr(error))
        raise invalid(f"not the probes of a unit: {reason}", "render the pod again") from error
    if not found:
        raise invalid("there is no probe in it", "render the pod again")
    return found


def _probe(document: Mapping[str, Any]) -> Probe:
    return Probe(
        action=_action(document),
        initial_delay_sec=_whole(document["initial_delay_sec"]),
        period_sec=max(1, _whole(document["period_sec"])),
        timeout_sec=max(1, _whole(document["timeout_sec"])),
        success_threshold=_whole(document["success_threshold"]),
        failure_threshold=_whole(document["failure_threshold"]),
    )


def _action(document: Mapping[str, Any]) -> Action:
    if "exec" in document:
        command = document["exec"]
        if not isinstance(command, list):
            raise TypeError(command)
        return Exec(command=tuple(map(_text, command)))
    if "tcp" in document:
        tcp = document["tcp"]
        return TcpSocket(host=_text(tcp["host"]), port=_whole(tcp["port"], _PORT_MAX))
    if "grpc" in document:
        grpc = document["grpc"]
        return Grpc(port=_whole(grpc["port"], _PORT_MAX), service=_text(grpc["service"]))
    http = document["http"]
    return HttpGet(
        scheme=_text(http["scheme"]),
        host=_text(http["host"]),
        port=_whole(http["port"], _PORT_MAX),
        path=_text(http["path"]),
        headers=tuple((_text(name), _text(value)) for name, value in http["headers"]),
    )


def _whole(value: Any, most: int = _WHOLE_MAX) -> int:  # noqa: ANN401 (JSON)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    if not isinstance(value, str):
        raise TypeError(value)
    return value


@dataclass(slots=True)
class ProbeCounter:
    """The results of one probe so far."""

    probe: Probe
    due: float
    """When it runs next, on the clock of the caller."""
    passes: bool
    """Its state: a result counts once it has been repeated often enough."""
    _last: bool | None = None
    _repeated: int = 0

    def count(self, *, success: bool, now: float) -> bool:
        """Count a result; return whether the state now equals the result."""
        self.due = now + self.probe.period_sec
        self._repeated = self._repeated + 1 if success is self._last else 1
        self._last = success
        probe = self.probe
        threshold = probe.success_threshold if success else probe.failure_threshold
        if self._repeated < threshold:
            return False
        self.passes = success
        return True


@dataclass(slots=True)
class ProbedContainer:
    """The probes of a container that has started at some time."""

    counters: dict[ProbeKind, ProbeCounter] = field(default_factory=dict)
    must_stop: bool = False
    """Whether the container is to be stopped: it is not alive, or has not started in time."""

    @property
    def is_ready(self) -> bool:
        """Return whether it has started and is ready."""
        waited = (ProbeKind.STARTUP, ProbeKind.READINESS)
        return all(each.passes for kind, each in self.counters.items() if kind in waited)

    def next(self) -> ProbeKind | None:
        """Return the probe that is due first; None if none will run again."""
        startup = self.counters.get(ProbeKind.STARTUP)
        if startup is not None and not startup.passes:
            return ProbeKind.STARTUP
        others = [kind for kind in self.counters if kind is not ProbeKind.STARTUP]
        return min(others, key=lambda kind: self.counters[kind].due, default=None)

    def record(self, kind: ProbeKind, *, success: bool, now: float) -> None:
        """Record the result of a probe."""
        settled = self.counters[kind].count(success=success, now=now)
        if settled and not success and kind is not ProbeKind.READINESS:
            self.must_stop = True


def begin(probes: Mapping[ProbeKind, Probe], now: float) -> ProbedContainer:
    """Return a container that has started now: alive until shown otherwise, and not ready."""
    return ProbedContainer(
        {
            kind: ProbeCounter(
                probe=probe, due=now + probe.initial_delay_sec, passes=kind is ProbeKind.LIVENESS
            )
            for kind, probe in probes.items()
        }
    )


def in_child(work: Callable[[], bool], timeout_sec: float) -> bool:
    """Run in a child process, which is killed after a time; return whether it succeeds."""
    pid = os.fork()
    if pid == 0:
        success = False
        with suppress(BaseException):
            success = work()
        os._exit(0 if success else 1)
    descriptor = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        if not poll.poll(timeout_sec * 1000):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


_UNROUTED = "192.0.2.1"
"""An address for documentation: a datagram socket that names it sends nothing. Source: RFC 5737."""


def own_address() -> str:
    """Return the pod's address on its default route, or else the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect((_UNROUTED, 9))
        except OSError:
            return "127.0.0.1"
        return str(found.getsockname()[0])


def connect(action: TcpSocket, timeout_sec: int) -> bool:
    """Connect, and return true.

    Raises:
        OSError: it fails.
    """
    with socket.create_connection((action.host or own_address(), action.port), timeout_sec):
        return True


_PODMAN = "podman"
_MARK = "PODSLICE_PROBE"
"""A variable of the processes of a probe, by which they are found among the container's processes."""
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
                # another process may have got the id since the list was read
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
"""The control group of a container, below its service's and beside conmon's control group.

Source: podman 5.4, libpod/oci_conmon_common.go and utils/utils_supported.go, --cgroups=split.
"""


def list_processes(control_group: str, root: Path = Path("/")) -> Iterator[int]:
    """Yield the processes of a container, which are below the control group of its service."""
    service = root / "sys/fs/cgroup" / control_group.lstrip("/")
    for file in service.glob(f"{_PAYLOAD}/**/cgroup.procs"):
        with suppress(OSError):  # the group has been removed
            yield from map(int, split_lines(read_text(file)))


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
            return  # the pod has the host's network
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


NOT_ALIVE = 3
"""The exit status after which the service stops the container."""
_STANDARD_INPUT = 0
RunCommand = Callable[[ProbeKind, Probe], bool]
"""A function that runs the command of a probe, and returns whether it succeeds in time."""


def probe(arguments: list[str]) -> int:
    """Probe a container until it is not alive: `__probe CONTAINER PROBES [CONTROL_GROUP]`.

    Commands run here if the control group of the container's service is stated, and otherwise by
    the service that is connected to standard input.
    """
    try:
        if len(arguments) not in (2, 3):
            raise invalid("__probe has a container and its probes", "render the pod again")
        container, text, *groups = arguments
        probes = parse_probes(text)
        run_command = _own_runner(container, *groups) if groups else _request
        if not _run(probes, container, run_command):
            note(f"container {container} is not alive")
            return NOT_ALIVE
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    return 0


def run_commands(arguments: list[str]) -> int:
    """Run commands of probes on request: `__commands CONTAINER PROBES CONTROL_GROUP SOCKET`."""
    try:
        if len(arguments) != 4:
            raise invalid("__commands has four arguments", "render the pod again")
        container, text, control_group, path = arguments
        probes = parse_probes(text)
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    target = ProbedTarget(name=container, control_group=control_group)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        Notifier(os.environ).ready("waiting for probes")
        return serve(listening, target, probes)


def join(arguments: list[str]) -> int:
    """Execute a program in a container's network: `__join CONTAINER CONTROL_GROUP COMMAND...`.

    The program has no capabilities, and cannot get any.
    """
    try:
        if len(arguments) < 3:
            raise invalid("__join has a container and a command", "render the pod again")
        container, control_group, *command = arguments
        pid = find_process(control_group)
        if pid is None:
            raise HostError(f"container {container} does not run")
        join_network(pid)
        give_up_rights()
    except PodsliceError as error:
        note(f"error: {error}")
        return error.exit_code
    return os.execv(command[0], command)  # noqa: S606 (there is no shell to need)


def _request(kind: ProbeKind, _: Probe) -> bool:
    return request_command(kind, _STANDARD_INPUT)


def _own_runner(container: str, control_group: str) -> RunCommand:
    """Return a function that runs commands in a container, from this process."""
    target = ProbedTarget(name=container, control_group=control_group)
    return lambda _, probe: attempt_command(probe, target)


def _run(probes: Mapping[ProbeKind, Probe], container: str, run_command: RunCommand) -> bool:
    """Probe until nothing is left to probe, or the container is not alive; return whether it is."""
    state = begin(probes, time.monotonic())
    notifier = Notifier(os.environ)
    was_ready: bool | None = None
    while not state.must_stop and (kind := state.next()) is not None:
        counter = state.counters[kind]
        time.sleep(max(0.0, counter.due - time.monotonic()))
        started = time.monotonic()
        success = attempt(kind, counter.probe, run_command)
        if not success:
            note(f"the {kind} probe of container {container} has failed")
        state.record(kind, success=success, now=started)
        if state.is_ready is not was_ready:
            was_ready = state.is_ready
            if was_ready:
                notifier.ready("the container is ready")
            else:
                notifier.status("the container is not ready")
    return not state.must_stop


def attempt(kind: ProbeKind, probe: Probe, run_command: RunCommand) -> bool:
    """Try once, and return whether it succeeds in time."""
    if isinstance(probe.action, Exec):
        return run_command(kind, probe)
    request = requester(probe.action)
    return in_child(lambda: request(probe.timeout_sec), probe.timeout_sec)


def requester(action: HttpGet | TcpSocket | Grpc) -> Callable[[int], bool]:
    """Return a function that makes the request from its process, and returns whether it succeeds.

    It has the time in seconds, and raises OSError or http.client.HTTPException if it fails otherwise.
    """
    if isinstance(action, TcpSocket):
        return partial(connect, action)
    if isinstance(action, Grpc):
        from podslice.features.quadlet.probe_grpc import is_serving

        return partial(is_serving, action)
    # with OpenSSL, which takes 6 MiB, and other probes do not need
    from podslice.features.quadlet.probe_http import get

    return partial(get, action)
