"""Containers of podman and docker, as reported by their tools.

A container belongs to a pod by its labels, by the label of its podman pod, or by the name that
`podman kube play` gives to a container of exactly one applied pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from podslice.errors import FORMAT_ERRORS, excerpt, printable
from podslice.kernel.proc import read_process
from podslice.kernel.programs import NoAnswerError, run_program
from podslice.kernel.text import read_value, split_lines
from podslice.model.container_exit import ContainerExit, exit_of_runtime
from podslice.model.naming import CONTAINER_LABEL, POD_LABEL
from podslice.model.pod import Pod
from podslice.model.unit import Manager
from podslice.systemd.journal import Entry

KUBERNETES = "io.kubernetes"
"""Source: Kubernetes, staging/src/k8s.io/kubelet/pkg/types/labels.go."""
KUBERNETES_SANDBOX = "POD"
"""The container that only keeps a pod's namespaces, as the kubelet's runtimes label it."""

LIMIT_SEC = 5.0
"""How long a runtime may take to answer, where its containers are a part of what is shown."""
PATIENT_LIMIT_SEC = 60.0
"""The same where the command is useless without them."""

_KILLED_CODE = 128 + signal.SIGKILL

Communicate = Callable[..., Awaitable[tuple[int, str, str]]]
"""Runs a command, and returns its exit code, its output and what it wrote to standard error."""
RunCommand = Callable[..., Awaitable[str]]
"""Runs a command and returns its output."""
GroupOf = Callable[[int], str]
"""Returns the control group of a process; empty once it has exited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPort:
    """Ports of a container, and the ports of the host that lead to the container."""

    host_ip: str
    """Empty for all addresses."""
    host_port: int
    container_port: int
    count: int
    """The number of successive ports."""
    protocol: str

    def __str__(self) -> str:
        """Return `127.0.0.1:8080->80/tcp`, as podman and docker print it."""
        host = f"[{self.host_ip}]" if ":" in self.host_ip else self.host_ip or "0.0.0.0"  # noqa: S104
        ports = "->".join(map(self._range, (self.host_port, self.container_port)))
        return printable(f"{host}:{ports}/{self.protocol}")

    def _range(self, first: int) -> str:
        return f"{first}-{first + self.count - 1}" if self.count > 1 else str(first)


class RuntimeContainer(NamedTuple):
    """A container of a pod, as reported by its runtime."""

    runtime: str
    """`podman` or `docker`."""
    id: str
    name: str
    pid: int
    """Its first process, in the host's PID namespace; 0 after its exit."""
    pod_key: str | None
    """`namespace/name` of the pod; None where only the uid is known."""
    pod_uid: str | None
    container: str | None
    """The container of the pod; None where it is not reported."""
    control_group: str
    """The control group of its first process; empty after its exit."""
    exit_code: int | None = None
    """None while it runs, and before its first start."""
    is_oom: bool = False
    """Whether the kernel killed its first process for lack of memory."""
    image: str = ""
    """Empty where it runs from a directory."""
    ports: tuple[PublishedPort, ...] = ()
    """Also those of its podman pod."""
    restarts: int = 0
    """The restarts by the runtime."""
    podman_pod: str = ""
    """The podman pod whose own container it is; empty for others."""

    @property
    def last_exit(self) -> ContainerExit | None:
        """Return how it ended; None while it runs, and before its first start."""
        return exit_of_runtime(self.exit_code, is_oom=self.is_oom)


async def containers(
    pods: Collection[Pod],
    *,
    manager: Manager,
    on_note: Callable[[str], None],
    with_exited: bool = False,
    run_command: RunCommand | None = None,
    root: Path = Path("/"),
) -> tuple[RuntimeContainer, ...]:
    """List the containers of podman and docker that belong to pods.

    Only runtimes of the manager's user are queried: root's for the system manager. A runtime that is
    not running, or does not answer in time, has no containers.

    Args:
        pods: the applied pods; a name alone identifies only one of these.
        manager: the service manager of the pods.
        on_note: receives the runtimes that did not answer, with the reason.
        with_exited: list containers without processes, too.
        run_command: runs a command, for tests.
        root: the directory of /proc.
    """
    if manager.is_user != bool(os.geteuid()):
        return ()
    run_command = run_command or run

    def group_of(pid: int) -> str:
        process = read_process(pid, root)
        return process.control_group if process else ""

    # a query would create podman's directories, and start docker's daemon by its socket
    running = _running(root)
    queries = []
    # a container without processes is only of interest in an applied pod
    has_exited = with_exited and bool(pods) and podman_storage(root).exists()
    has_podman = "conmon" in running or has_exited
    if has_podman and shutil.which("podman"):
        podman = _podman(pods, run_command, group_of, with_exited=with_exited)
        # A runtime that fails does not hide the containers of the other one.
        queries.append(_list_or_note("podman", podman, on_note))
    socket = root / manager.runtime_directory.lstrip("/") / "docker.sock"
    if "dockerd" in running and socket.exists() and shutil.which("docker"):
        docker = _docker(socket, run_command, group_of, with_exited=with_exited)
        queries.append(_list_or_note("docker", docker, on_note))
    found = (each for answer in await asyncio.gather(*queries) for each in answer)
    # one that has exited since the runtime listed it has no control group
    return tuple(each for each in found if with_exited or each.control_group)


def podman_storage(root: Path) -> Path:
    """Return the default directory of this user's containers. Source: containers-storage.conf(5)."""
    if os.geteuid():
        return root / Path.home().relative_to("/") / ".local/share/containers/storage"
    return root / "var/lib/containers/storage"


def _running(root: Path) -> frozenset[str]:
    """Return the names of this user's processes."""
    names = set()
    for directory in (root / "proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has exited
            if directory.stat().st_uid == os.geteuid():
                names.add(read_value(directory / "comm"))
    return frozenset(names)


async def run(*argv: str, limit_sec: float = LIMIT_SEC) -> str:
    """Run a command and return its output.

    Raises:
        NoAnswerError: it failed, or exceeded a limit.
    """
    try:
        code, out, err = await communicate(*argv, limit_sec=limit_sec)
    except OSError as error:
        raise NoAnswerError(str(error.strerror)) from error
    if code:
        last = err.rstrip("\n").rpartition("\n")[2]
        raise NoAnswerError(excerpt(last) or f"exit code {code}")
    return out


async def run_patiently(*argv: str) -> str:
    """Run a command as `run` does, with the longer limit."""
    return await run(*argv, limit_sec=PATIENT_LIMIT_SEC)


async def communicate(*argv: str, limit_sec: float) -> tuple[int, str, str]:
    """Run a command, and return its exit code, its output and what it wrote to standard error.

    It is killed if the caller is cancelled.

    Raises:
        NoAnswerError: it exceeded a limit.
        OSError: it cannot be started.
    """
    # A thread cannot be cancelled: when this end of the pipe is closed, it kills the program.
    until, held = os.pipe()
    running = asyncio.ensure_future(
        asyncio.to_thread(run_program, argv, limit_sec=limit_sec, until=until)
    )
    try:
        # The thread goes on after a cancellation, and reads from the pipe: it is waited for below.
        code, out, err = await asyncio.shield(running)
    finally:
        os.close(held)
        await asyncio.wait({running})
        os.close(until)
    return code, out.decode(errors="replace"), err.decode(errors="replace")


async def _list_or_note(
    name: str, answer: Awaitable[list[RuntimeContainer]], on_note: Callable[[str], None]
) -> list[RuntimeContainer]:
    try:
        return await answer
    except NoAnswerError as error:
        reason = str(error)
    except FORMAT_ERRORS:
        reason = "its output has an unknown format"
    on_note(f"{name}: {reason}; its containers are unknown")
    return []


async def _podman(
    pods: Collection[Pod], run_command: RunCommand, group_of: GroupOf, *, with_exited: bool
) -> list[RuntimeContainer]:
    alive = ("--filter=status=running", "--filter=status=paused")
    options = ("--all",) if with_exited else alive
    listed = json.loads(await run_command("podman", "ps", "--format=json", *options))
    podman_pods = []
    if any(entry["Pod"] for entry in listed):
        podman_pods = json.loads(await run_command("podman", "pod", "ps", "--format=json"))
    found = list(parse_podman(listed, podman_pods, pods, group_of))
    killed = [each.id for each in found if each.exit_code == _KILLED_CODE]
    if not killed:
        return found
    # podman ps does not report why
    inspected = json.loads(await run_command("podman", "inspect", "--type=container", *killed))
    oom = {each["Id"] for each in inspected if each["State"]["OOMKilled"]}
    return [each._replace(is_oom=each.id in oom) for each in found]


async def _docker(
    socket: Path, run_command: RunCommand, group_of: GroupOf, *, with_exited: bool
) -> list[RuntimeContainer]:
    docker = partial(run_command, "docker", f"--host=unix://{socket}")
    options = ("--all",) if with_exited else ()
    ids = list(filter(None, split_lines(await docker("ps", "--quiet", "--no-trunc", *options))))
    return list(parse_docker(json.loads(await docker("inspect", *ids)), group_of)) if ids else []


async def docker_messages(
    container: RuntimeContainer,
    lines: int,
    manager: Manager,
    communicate: Communicate = communicate,
) -> tuple[Entry, ...]:
    """Return the last messages of a container of docker, which keeps them in files by default.

    Raises:
        NoAnswerError: docker does not answer, or its driver keeps no messages.
    """
    socket = f"{manager.runtime_directory}/docker.sock"
    command = ("docker", f"--host=unix://{socket}", "logs", f"--tail={lines}", "--timestamps")
    try:
        code, out, err = await communicate(*command, container.id, limit_sec=LIMIT_SEC)
    except OSError as error:
        raise NoAnswerError(str(error.strerror)) from error
    if code:
        raise NoAnswerError(excerpt(err.rstrip("\n")) or f"exit code {code}")
    # each stream has its own order; the times have a fixed width
    return tuple(map(_docker_message, sorted([*split_lines(out), *split_lines(err)])[-lines:]))


def _docker_message(line: str) -> Entry:
    """Parse `2026-11-26T15:19:36.123456789Z text`.

    Raises:
        NoAnswerError: it has no time.

    Source: moby, api/types/backend/backend.go; daemon/logger, RFC3339NanoFixed.
    """
    time, _, text = line.partition(" ")
    try:
        usec = round(datetime.fromisoformat(time).timestamp() * 1e6)
    except ValueError as error:
        raise NoAnswerError("its messages have an unknown format") from error
    return Entry(
        time_usec=usec, kind="", level="info", pod=None, unit=None, message=text, fields={}
    )


def parse_podman(
    listed: Iterable[Any], podman_pods: Iterable[Any], pods: Iterable[Pod], group_of: GroupOf
) -> Iterator[RuntimeContainer]:
    """Yield the containers of `podman ps` that belong to a pod.

    Infra containers of podman pods are ignored: they only sleep, and podman can't put them into
    another slice. That of a podman pod whose label names a pod that is not applied is yielded.

    Args:
        listed: the output of `podman ps`.
        podman_pods: the output of `podman pod ps`, for names and labels.
        pods: the applied pods.
        group_of: returns the control group of a process.
    """
    by_id = {each["Id"]: each for each in podman_pods}
    played = dict(_played(pods))
    applied = {pod.key for pod in pods}
    for entry in listed:
        name, labels, podman_pod = entry["Names"][0], entry["Labels"] or {}, entry["Pod"]
        is_infra = entry["IsInfra"]
        claim = None if is_infra else _labelled(labels)
        if claim is None and podman_pod in by_id:
            if key := (by_id[podman_pod]["Labels"] or {}).get(POD_LABEL):
                claim = _Claim(key=key, container=labels.get(CONTAINER_LABEL))
            else:
                claim = played.get((by_id[podman_pod]["Name"], name))
        if claim and not (is_infra and claim.key in applied):
            found = _container("podman", entry["Id"], name, entry["Pid"], claim, group_of)
            yield found._replace(
                exit_code=entry["ExitCode"] if entry.get("Exited") else None,
                image=printable(entry.get("Image") or ""),
                ports=tuple(map(_podman_port, entry.get("Ports") or ())),
                restarts=int(entry.get("Restarts") or 0),
                podman_pod=printable(by_id[podman_pod]["Name"]) if is_infra else "",
            )


def parse_docker(inspected: Iterable[Any], group_of: GroupOf) -> Iterator[RuntimeContainer]:
    """Yield the containers of `docker inspect` that belong to a pod."""
    for entry in inspected:
        name, state = entry["Name"].removeprefix("/"), entry["State"]
        claim = _labelled(entry["Config"]["Labels"] or {})
        if claim:
            found = _container("docker", entry["Id"], name, state["Pid"], claim, group_of)
            has_exited = state.get("Status") == "exited"
            yield found._replace(
                exit_code=state["ExitCode"] if has_exited else None,
                is_oom=has_exited and state["OOMKilled"],
                image=printable(entry["Config"].get("Image") or ""),
                ports=tuple(_docker_ports(entry)),
                restarts=int(entry.get("RestartCount") or 0),
            )


def _podman_port(entry: Mapping[str, Any]) -> PublishedPort:
    """Parse a port of `podman ps`.

    Source: containers/common 0.62, libnetwork/types/network.go, PortMapping.
    """
    return PublishedPort(
        host_ip=str(entry.get("host_ip") or ""),
        host_port=int(entry["host_port"]),
        container_port=int(entry["container_port"]),
        count=int(entry.get("range") or 1),
        protocol=str(entry.get("protocol") or "tcp"),
    )


def _docker_ports(entry: Mapping[str, Any]) -> Iterator[PublishedPort]:
    """Yield the published ports of `docker inspect`: `{"80/tcp": [{"HostIp", "HostPort"}]}`.

    Ports that are only exposed are null, and the host's port is empty until it is assigned.

    Source: moby, api/swagger.yaml, PortMap and PortBinding.
    """
    listed = (entry.get("NetworkSettings") or {}).get("Ports") or {}
    for name, bindings in listed.items():
        port, _, protocol = name.partition("/")
        for each in bindings or ():
            if not each["HostPort"]:
                continue
            host_ip = str(each["HostIp"])
            yield PublishedPort(
                host_ip="" if host_ip == "0.0.0.0" else host_ip,  # noqa: S104
                host_port=int(each["HostPort"]),
                container_port=int(port),
                count=1,
                protocol=protocol or "tcp",
            )


class _Claim(NamedTuple):
    """The pod and container that labels or names state."""

    key: str | None
    uid: str | None = None
    container: str | None = None


def _labelled(labels: Mapping[str, str]) -> _Claim | None:
    """Return the claim of labels: podslice's first, then those of Kubernetes' runtimes."""
    if POD_LABEL in labels:
        return _Claim(key=labels[POD_LABEL], container=labels.get(CONTAINER_LABEL))
    container = labels.get(f"{KUBERNETES}.container.name")
    # It has no container of the pod in it.
    if container == KUBERNETES_SANDBOX:
        return None
    uid = labels.get(f"{KUBERNETES}.pod.uid")
    if uid:
        # another uid means another pod, whatever its name
        return _Claim(key=None, uid=uid, container=container)
    name = labels.get(f"{KUBERNETES}.pod.name")
    namespace = labels.get(f"{KUBERNETES}.pod.namespace")
    if name and namespace:
        return _Claim(key=f"{namespace}/{name}", container=container)
    return None


def _played(pods: Iterable[Pod]) -> Iterator[tuple[tuple[str, str], _Claim]]:
    """Yield the names that `podman kube play` gives to pods and containers, with their claims.

    These do not contain the namespace, so a name that two applied pods share is ignored.

    Source: podman 5.4, pkg/specgen/generate/kube/kube.go, ToSpecGen.
    """
    pods = tuple(pods)
    counts = Counter(pod.name for pod in pods)
    for pod in pods:
        if counts[pod.name] == 1:
            for container in pod.containers:
                claim = _Claim(key=pod.key, container=container.name)
                yield (pod.name, f"{pod.name}-{container.name}"), claim


def _container(
    runtime: str,
    id_: Any,  # noqa: ANN401 (JSON)
    name: str,
    pid: Any,  # noqa: ANN401 (JSON)
    claim: _Claim,
    group_of: GroupOf,
) -> RuntimeContainer:
    if not isinstance(id_, str) or not isinstance(pid, int):
        raise TypeError(id_, pid)
    return RuntimeContainer(
        runtime=runtime,
        id=id_,
        name=printable(name),
        pid=pid,
        pod_key=claim.key,
        pod_uid=claim.uid,
        container=claim.container and printable(claim.container),
        control_group=group_of(pid) if pid else "",
    )
