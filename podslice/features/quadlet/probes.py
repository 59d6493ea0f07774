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

from podslice.errors import Problem
from podslice.features.quadlet.prober import NOT_ALIVE
from podslice.features.quadlet.result import PODMAN, File, Options, PodSource
from podslice.features.quadlet.unit_text import (
    Section,
    double,
    json_words,
    section,
    shell,
    unit_file,
    words,
)
from podslice.features.quadlet.workload import (
    Action,
    ContainerWorkload,
    Exec,
    Grpc,
    HttpGet,
    PodWorkload,
    Probe,
    ProbeKind,
    Restart,
    TcpSocket,
)
from podslice.inputs.manifest.fields import checked
from podslice.model.pod import ContainerKind
from podslice.model.properties import MEMORY_MAX, TASKS_MAX
from podslice.model.unit import UnitName, control_group_of

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
    liveness = container.probes.get(ProbeKind.LIVENESS)
    readiness = container.probes.get(ProbeKind.READINESS)
    if ProbeKind.STARTUP in container.probes or (readiness and _is_awaited(container)):
        return None
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
    return bool(container.probes) and podman_probe(container, options) is None


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
    return not all(isinstance(each.action, Exec) for each in container.probes.values())


def _has_commands(container: ContainerWorkload) -> bool:
    return any(isinstance(each.action, Exec) for each in container.probes.values())


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
    body.add("HealthOnFailure", "kill" if ProbeKind.LIVENESS in container.probes else "none")
    if ProbeKind.READINESS in container.probes:
        body.add("Notify", "healthy")


def prober_files(container: ContainerWorkload, pod: PodSource) -> Iterator[File]:
    """Yield the services that probe a container; the first stops the container that is not alive.

    As the kubelet does, they use the memory and processors of the node's services, not the pod's.
    What a container sends is only read in a sandbox. Commands run outside of it: they have all
    rights of the container, which podman can give them only if it has them itself.
    """
    yield _prober_file(container, pod)
    if _has_commands(container) and _makes_requests(container):
        yield _commands_file(container, pod)


def _prober_file(container: ContainerWorkload, pod: PodSource) -> File:
    """Return the service that decides when a probe is due, and makes the requests."""
    manager, program = pod.options.manager, pod.options.program
    name, group = pod.container(container.name), _control_group(container, pod)
    head, body = _sections("Probes", container, pod)
    # systemd waits for the end of the startup probe, and for a container that is ready
    body.add("Type", "exec" if container.probes.keys() == {ProbeKind.LIVENESS} else "notify")
    # only the container can say how long its start takes
    body.add("TimeoutStartSec", "infinity")
    probe = (program, "__probe", name, _document(container))
    if _makes_requests(container):
        body.add("ExecStart", words((program, "__join", name, group, *probe)))
        if _has_commands(container):
            head.add("Requires", pod.prober_commands(container.name))
            head.add("After", pod.prober_commands(container.name))
            # systemd connects it, since its directory belongs to another user. Without the same
            # output it would be connected for reading only.
            socket = f"file:{_socket(_directory(container, pod))}"
            body.add("StandardInput", socket)
            body.add("StandardOutput", socket)
            body.add("StandardError", "journal")
        sandbox = _USER_SANDBOX if manager.is_user else _SYSTEM_SANDBOX
        body.lines += [line for line in f"{_SANDBOX}{sandbox}".split("\n") if line]
    else:
        body.add("ExecStart", words((*probe, group)))
    # The kubelet starts a container that is not alive again, whatever its exit code is after its
    # signal. systemd does so with OnFailure only if the end is a failure.
    # Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodActions.
    at_once = ("--time=0",) if container.restart is Restart.ON_FAILURE else ()
    # the sandbox is for requests; the command has no input but the exit status
    body.add("ExecStopPost", f"-+{shell(_STOP, '--ignore', *at_once, name)}")
    grace_sec = pod.decision.pod.grace_period_sec
    body.add("TimeoutStopSec", f"{grace_sec + _STOP_MARGIN_SEC}s")
    body.add("SuccessExitStatus", str(NOT_ALIVE))
    body.add("RestartPreventExitStatus", str(NOT_ALIVE))
    _add_end(body)
    return unit_file(pod.prober(container.name), head, body)


def _commands_file(container: ContainerWorkload, pod: PodSource) -> File:
    """Return the service that runs commands for the one in the sandbox."""
    head, body = _sections("Commands of probes", container, pod)
    directory = _directory(container, pod)
    body.add("Type", "notify")
    stated = (pod.container(container.name), _document(container), _control_group(container, pod))
    command = words((pod.options.program, "__commands", *stated))
    body.add("ExecStart", f"{command} {_socket(directory)}")
    body.add("RuntimeDirectory", directory)
    body.add("RuntimeDirectoryMode", "0700")
    _add_end(body)
    return unit_file(pod.prober_commands(container.name), head, body)


def _control_group(container: ContainerWorkload, pod: PodSource) -> str:
    """Return the control group of the container's service."""
    group = f"{control_group_of(pod.decision.slice)}/{pod.service(container.name)}"
    return pod.options.manager.path_of(group)


def _directory(container: ContainerWorkload, pod: PodSource) -> str:
    """Return the directory of the socket, in 108 characters with its own path."""
    digest = hashlib.sha256(pod.service(container.name).encode()).hexdigest()
    return f"podslice-commands-{digest[:32]}"


def _socket(directory: str) -> str:
    return f"%t/{directory}/socket"


def _sections(what: str, container: ContainerWorkload, pod: PodSource) -> tuple[Section, Section]:
    head, body = section("Unit"), section("Service")
    service = pod.service(container.name)
    head.add("Description", f"{what} of container {container.name} of pod {double(pod.key)}")
    head.add("BindsTo", service)
    head.add("After", service)
    head.add("StartLimitIntervalSec", "0")
    body.add("Slice", *pod.options.service_slices)
    return head, body


def _add_end(body: Section) -> None:
    body.add(MEMORY_MAX, _MEMORY_MAX)
    body.add(TASKS_MAX, str(_TASKS_MAX))
    # a request that needs too much memory has failed
    body.add("OOMPolicy", "continue")
    # otherwise a probe that systemd ends with its service would count as a failure
    body.add("KillMode", "mixed")
    body.add("Restart", "on-failure")
    body.add("RestartSec", "1s")


def start_line(service: UnitName, options: Options) -> str:
    """Return the command line of a container or pod that starts a service beside it.

    The container does not want it: two services that pull in each other are started with any other
    container of their pod, whose restart would end the back-off of this one.

    Source: systemd, src/core/transaction.c, transaction_collect_garbage.
    """
    # a stop of the container that has been requested meanwhile remains
    start = ("start", "--no-block", "--job-mode=fail", service)
    return f"-{words(('/usr/bin/systemctl', *options.manager.options, *start))}"


def _document(container: ContainerWorkload) -> str:
    """Return the probes as the internal verbs read them."""
    documents = {}
    for kind in (each for each in ProbeKind if each in container.probes):
        numbers = container.probes[kind]._asdict()
        documents[kind] = {**_action_document(numbers.pop("action")), **numbers}
    return json.dumps(documents)


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
