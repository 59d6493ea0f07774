"""Probes: those that podman itself can run, and those of a service beside the container.

Podman runs one command in the container, with one set of times, and restarts on the failure of a
startup probe by itself, which systemd does not see. So it gets a probe that is the only one, or the
same for liveness and readiness. All others are run by `podslice __probe`, from outside: requests
need nothing in the image then. Before 5.6 podman gets none, since it waits for a command that hangs
for ever, whatever its time is.

Source: podman 5.4, cmd/podman/utils, makeHealthCheckFromCli; podman-run(1), --health-cmd and
--health-on-failure; libpod/healthcheck.go, incrementStartupHCFailureCounter and runHealthCheck.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

from podslice.errors import Problem
from podslice.features.quadlet.prober import NOT_ALIVE
from podslice.features.quadlet.result import PODMAN, File, Names, Options
from podslice.features.quadlet.unit_text import Section, double, json_words, section, unit, words
from podslice.features.quadlet.workload import (
    Action,
    ContainerWorkload,
    Exec,
    Grpc,
    HttpGet,
    PodWorkload,
    Probe,
    Restart,
    TcpSocket,
)
from podslice.inputs.manifest.fields import checked
from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.pod import ContainerKind
from podslice.model.properties import MEMORY_MAX, TASKS_MAX
from podslice.model.unit import GENERATED, UnitName, control_group_of

# The end of the probing service for any other reason does not concern the container.
_STOP = f'[ "$EXIT_CODE:$EXIT_STATUS" != exited:{NOT_ALIVE} ] || exec {PODMAN} stop "$@" >/dev/null'
_STOP_MARGIN_SEC = 60
"""The time in which podman removes a container after its grace period."""
_MEMORY_MAX, _TASKS_MAX = "128M", 64
"""Several times what the services use at most: 15 MiB with requests, 32 MiB and 16 tasks with podman."""
_SANDBOX = """
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
UMask=0077
"""
"""For services that read what a container sends."""
# `__join` gives up both capabilities before the service makes its first request.
_SYSTEM_SANDBOX = """
DynamicUser=yes
CapabilityBoundingSet=CAP_SYS_ADMIN CAP_SYS_PTRACE
AmbientCapabilities=CAP_SYS_ADMIN CAP_SYS_PTRACE
RestrictNamespaces=net
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
KeyringMode=private
"""
"""What a user's manager can only do in a user namespace, from which a process cannot join others."""
_PROTECTED = ("/home/", "/root/", "/run/user/")
"""The directories that ProtectHome= hides. Source: systemd.exec(5)."""
_USER_SANDBOX = """
RestrictNamespaces=user net
"""
_KEYWORDS = ("CMD", "CMD-SHELL", "NONE")
_TIMEOUT_SINCE = (5, 6)
"""The podman that ends a command after its time. Source: podman, RELEASE_NOTES.md, 5.6.0."""


def podman_probe(container: ContainerWorkload, options: Options) -> Probe | None:
    """Return the probe that podman runs; None if there is none, or another one as well."""
    if options.podman_version < _TIMEOUT_SINCE:
        return None
    if container.startup is not None or (container.readiness and _is_awaited(container)):
        return None
    liveness, readiness = container.liveness, container.readiness
    probe = liveness or readiness
    if probe is None or not isinstance(probe.action, Exec) or probe.success_threshold != 1:
        return None
    if (
        liveness
        and readiness
        and liveness._replace(initial_delay_sec=0) != readiness._replace(initial_delay_sec=0)
    ):
        return None
    # podman starts a single word with a shell, and interprets some words
    command = probe.action.command
    return probe if len(command) > 1 and command[0].upper() not in _KEYWORDS else None


def _is_awaited(container: ContainerWorkload) -> bool:
    """Return whether something waits for the start of a container, but not until it is ready.

    With Notify=healthy systemd takes the one for the other: other containers wait for a sidecar's
    start, and a hook after the start may be what makes a container ready.
    """
    return container.kind is ContainerKind.SIDECAR or container.post_start is not None


def needs_prober(container: ContainerWorkload, options: Options) -> bool:
    """Return whether a service beside the container runs its probes."""
    has_probes = any((container.liveness, container.readiness, container.startup))
    return has_probes and podman_probe(container, options) is None


def program_problem(pod: str, workload: PodWorkload, options: Options) -> Problem | None:
    """Return why the services that make requests cannot execute podslice; None if they can."""
    if options.manager.is_user or not options.program.startswith(_PROTECTED):
        return None
    for container in workload.containers:
        if needs_prober(container, options) and _makes_requests(container):
            return Problem(
                where=f"pod {pod}: container {container.name}",
                message=f"the service that probes it cannot execute {options.program}",
                hint="install podslice where every user can execute it, as the packages do",
            )
    return None


def _makes_requests(container: ContainerWorkload) -> bool:
    return not all(isinstance(each, Exec) for each in _actions(container))


def _actions(container: ContainerWorkload) -> list[Action]:
    probes = container.liveness, container.readiness, container.startup
    return [each.action for each in probes if each is not None]


def add_health(body: Section, container: ContainerWorkload, options: Options) -> None:
    """Add the keys of the probe that podman runs; the image's own is off, as in Kubernetes.

    With HealthCmd=none podman would start a timer that checks nothing.
    """
    probe = podman_probe(container, options)
    if probe is None or not isinstance(probe.action, Exec):
        body.add("PodmanArgs", "--no-healthcheck")
        return
    body.add("HealthCmd", json_words(probe.action.command))
    body.add("HealthInterval", f"{probe.period_sec}s")
    body.add("HealthTimeout", f"{probe.timeout_sec}s")
    body.add("HealthRetries", str(probe.failure_threshold))
    if probe.initial_delay_sec:
        body.add("HealthStartPeriod", f"{probe.initial_delay_sec}s")
    body.add("HealthOnFailure", "kill" if container.liveness else "none")
    if container.readiness:
        body.add("Notify", "healthy")


def prober_files(
    container: ContainerWorkload, workload: PodWorkload, names: Names, options: Options
) -> Iterator[File]:
    """Yield the services that probe a container; the first stops the container that is not alive.

    As the kubelet does, they use the memory and processors of the node's services, not the pod's.
    """
    has_commands = any(isinstance(each, Exec) for each in _actions(container))
    is_sandboxed = _makes_requests(container)
    prober = _Prober(container=container, workload=workload, names=names, options=options)
    yield prober.file(has_commands=has_commands, is_sandboxed=is_sandboxed)
    if has_commands and is_sandboxed:
        yield prober.commands_file()


class _Prober(NamedTuple):
    """The services of one container's probes.

    What a container sends is only read in a sandbox. Commands run outside of it: they have all
    rights of the container, which podman can give them only if it has them itself.
    """

    container: ContainerWorkload
    workload: PodWorkload
    names: Names
    options: Options

    def file(self, *, has_commands: bool, is_sandboxed: bool) -> File:
        """Return the service that decides when a probe is due, and makes the requests."""
        head, body = self._sections("Probes")
        is_awaited = self.container.readiness or self.container.startup
        body.add("Type", "notify" if is_awaited else "exec")
        # only the container can say how long its start takes
        body.add("TimeoutStartSec", "infinity")
        probe = (self.options.program, "__probe", *self._arguments)
        if is_sandboxed:
            join = (self.options.program, "__join", self._podman_name, self._control_group)
            body.add("ExecStart", words((*join, *probe)))
            if has_commands:
                head.add("Requires", self._commands)
                head.add("After", self._commands)
                # systemd connects it, since its directory belongs to another user. Without the same
                # output it would be connected for reading only.
                body.add("StandardInput", f"file:{self._socket}")
                body.add("StandardOutput", f"file:{self._socket}")
                body.add("StandardError", "journal")
            sandbox = _USER_SANDBOX if self.options.manager.is_user else _SYSTEM_SANDBOX
            body.lines += [line for line in f"{_SANDBOX}{sandbox}".split("\n") if line]
        else:
            body.add("ExecStart", words((*probe, self._control_group)))
        # the sandbox is for requests; the command has no input but the exit status
        body.add("ExecStopPost", f"-+{words(self._stop)}")
        grace_sec = self.names.decision.pod.grace_period_sec
        body.add("TimeoutStopSec", f"{grace_sec + _STOP_MARGIN_SEC}s")
        body.add("SuccessExitStatus", str(NOT_ALIVE))
        body.add("RestartPreventExitStatus", str(NOT_ALIVE))
        self._add_end(body)
        content = unit(GENERATED, (head, body)).encode()
        return File(path=self.names.prober(self.container.name), content=content, is_unit=True)

    def commands_file(self) -> File:
        """Return the service that runs commands for the one in the sandbox."""
        head, body = self._sections("Commands of probes")
        body.add("Type", "notify")
        command = (self.options.program, "__commands", *self._arguments, self._control_group)
        body.add("ExecStart", f"{words(command)} {self._socket}")
        body.add("RuntimeDirectory", self._directory)
        body.add("RuntimeDirectoryMode", "0700")
        self._add_end(body)
        content = unit(GENERATED, (head, body)).encode()
        return File(path=self._commands, content=content, is_unit=True)

    def _sections(self, what: str) -> tuple[Section, Section]:
        head, body = section("Unit"), section("Service")
        pod, service = self.names.decision.pod, self.names.service(self.container.name)
        head.add(
            "Description", f"{what} of container {self.container.name} of pod {double(pod.key)}"
        )
        head.add("BindsTo", service)
        head.add("After", service)
        head.add("StartLimitIntervalSec", "0")
        if not self.options.manager.is_user:
            body.add("Slice", KUBE_RESERVED_SLICE)
        return head, body

    def _add_end(self, body: Section) -> None:
        body.add(MEMORY_MAX, _MEMORY_MAX)
        body.add(TASKS_MAX, str(_TASKS_MAX))
        # a request that needs too much memory has failed
        body.add("OOMPolicy", "continue")
        # otherwise a probe that systemd ends with its service would count as a failure
        body.add("KillMode", "mixed")
        body.add("Restart", "on-failure")
        body.add("RestartSec", "1s")

    @property
    def _podman_name(self) -> str:
        return self.names.container(self.container.name)

    @property
    def _arguments(self) -> tuple[str, ...]:
        return self._podman_name, json.dumps(_document(self.container))

    @property
    def _control_group(self) -> str:
        """Return the control group of the container's service."""
        slice_, service = self.names.decision.slice, self.names.service(self.container.name)
        return self.options.manager.path_of(f"{control_group_of(slice_)}/{service}")

    @property
    def _stop(self) -> tuple[str, ...]:
        at_once = ("--time=0",) if _must_fail(self.container) else ()
        return ("/usr/bin/sh", "-c", _STOP, "sh", "--ignore", *at_once, self._podman_name)

    @property
    def _commands(self) -> UnitName:
        return self.names.prober_commands(self.container.name)

    @property
    def _directory(self) -> str:
        """Return the directory of the socket, in 108 characters with its own path."""
        digest = hashlib.sha256(self.names.service(self.container.name).encode()).hexdigest()
        return f"podslice-commands-{digest[:32]}"

    @property
    def _socket(self) -> str:
        return f"%t/{self._directory}/socket"


def _must_fail(container: ContainerWorkload) -> bool:
    """Return whether systemd starts a container again only if its end is a failure.

    The kubelet starts one that is not alive again, whatever its exit code is after its signal.

    Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodActions.
    """
    return container.restart is Restart.ON_FAILURE


def prober_start_line(prober: UnitName, options: Options) -> str:
    """Return the command line of a container's service that starts its probing service.

    The container does not want it: two services that pull in each other are started with any other
    container of their pod, whose restart would end the back-off of this one.

    Source: systemd, src/core/transaction.c, transaction_collect_garbage.
    """
    # a stop of the container that has been requested meanwhile remains
    start = ("start", "--no-block", "--job-mode=fail", prober)
    return f"-{words(('/usr/bin/systemctl', *options.manager.options, *start))}"


def _document(container: ContainerWorkload) -> dict[str, object]:
    """Return the probes as the internal verb reads them."""
    probes = {
        "startup": container.startup,
        "liveness": container.liveness,
        "readiness": container.readiness,
    }
    documents: dict[str, object] = {}
    for name, probe in probes.items():
        if probe is not None:
            numbers = probe._asdict()
            documents[name] = {**_action_document(numbers.pop("action")), **numbers}
    return documents


def _action_document(action: Action) -> dict[str, object]:
    if isinstance(action, Exec):
        return {"exec": [checked("ExecAction.command", each) for each in action.command]}
    if isinstance(action, Grpc):
        service = checked("GRPCAction.service", action.service) if action.service else ""
        return {"grpc": {"port": action.port, "service": service}}
    if action.host:
        checked("HTTPGetAction.host", action.host)
    if isinstance(action, TcpSocket):
        return {"tcp": {"host": action.host, "port": action.port}}
    assert isinstance(action, HttpGet)  # noqa: S101 (the last of the four)
    return {
        "http": {
            "scheme": action.scheme,
            "host": action.host,
            "port": action.port,
            "path": checked("HTTPGetAction.path", action.path),
            "headers": [
                [checked("HTTPHeader.name", name), checked("HTTPHeader.value", value)]
                for name, value in action.headers
            ],
        }
    }
