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

import json
from dataclasses import replace

from podslice.model.naming import KUBE_RESERVED_SLICE
from podslice.model.pod import ContainerKind
from podslice.model.unit import GENERATED, UnitName
from podslice.model.workload import (
    Action,
    ContainerWorkload,
    Exec,
    HttpGet,
    PodWorkload,
    Probe,
    Restart,
    TcpSocket,
)
from podslice.quadlet.pod_names import Names
from podslice.quadlet.result import File, Options
from podslice.quadlet.unit_text import Section, double, section, unit, words

VERB = "__probe"
"""The internal verb that probes a container from outside."""
KILL = "--kill"
"""Its option that kills a container which is not alive, without the grace period."""
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
        and replace(liveness, initial_delay_sec=0) != replace(readiness, initial_delay_sec=0)
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


def add_health(body: Section, container: ContainerWorkload, options: Options) -> None:
    """Add the keys of the probe that podman runs; the image's own is off, as in Kubernetes.

    With HealthCmd=none podman would start a timer that checks nothing.
    """
    probe = podman_probe(container, options)
    if probe is None or not isinstance(probe.action, Exec):
        body.add("PodmanArgs", "--no-healthcheck")
        return
    body.add("HealthCmd", double(json.dumps(probe.action.command, ensure_ascii=True)))
    body.add("HealthInterval", f"{probe.period_sec}s")
    body.add("HealthTimeout", f"{probe.timeout_sec}s")
    body.add("HealthRetries", str(probe.failure_threshold))
    if probe.initial_delay_sec:
        body.add("HealthStartPeriod", f"{probe.initial_delay_sec}s")
    body.add("HealthOnFailure", "kill" if container.liveness else "none")
    if container.readiness:
        body.add("Notify", "healthy")


def prober_file(
    container: ContainerWorkload, workload: PodWorkload, names: Names, options: Options
) -> File:
    """Return the service that probes a container; it stops the container that is not alive.

    As the kubelet does, it uses the memory and processors of the node's services, not the pod's.
    """
    service, pod = names.service(container.name), names.decision.pod
    head = section("Unit")
    head.add("Description", f"Probes of container {container.name} of pod {double(pod.key)}")
    head.add("BindsTo", service)
    head.add("After", service)
    head.add("StartLimitIntervalSec", "0")
    body = section("Service")
    body.add("Type", "notify" if container.readiness or container.startup else "exec")
    body.add("TimeoutStartSec", "infinity")
    if not options.manager.is_user:
        body.add("Slice", KUBE_RESERVED_SLICE)
    kill = (KILL,) if _must_fail(container, workload) else ()
    command = (options.program, VERB, *kill, names.container(container.name))
    body.add("ExecStart", words((*command, json.dumps(_document(container)))))
    # otherwise a probe that systemd ends with its prober would count as a failure
    body.add("KillMode", "mixed")
    body.add("Restart", "on-failure")
    body.add("RestartSec", "1s")
    text = unit(GENERATED, (head, body))
    return File(path=names.prober(container.name), content=text.encode(), is_unit=True)


def _must_fail(container: ContainerWorkload, workload: PodWorkload) -> bool:
    """Return whether systemd starts a container again only if its end is a failure.

    The kubelet starts one that is not alive again, whatever its exit code is after its signal.

    Source: Kubernetes, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodActions.
    """
    return workload.restart is Restart.ON_FAILURE and container.kind is ContainerKind.APP


def prober_start_line(prober: UnitName, options: Options) -> str:
    """Return the command line of a container's service that starts its probing service.

    The container does not want it: two services that pull in each other are started with any other
    container of their pod, whose restart would end the back-off of this one.

    Source: systemd, src/core/transaction.c, transaction_collect_garbage.
    """
    own = ("--user",) if options.manager.is_user else ()
    # a stop of the container that has been requested meanwhile remains
    start = ("start", "--no-block", "--job-mode=fail", prober)
    return f"-{words(('/usr/bin/systemctl', *own, *start))}"


def _document(container: ContainerWorkload) -> dict[str, object]:
    """Return the probes as the internal verb reads them."""
    probes = {
        "startup": container.startup,
        "liveness": container.liveness,
        "readiness": container.readiness,
    }
    return {name: _probe_document(each) for name, each in probes.items() if each is not None}


def _probe_document(probe: Probe) -> dict[str, object]:
    return {
        **_action_document(probe.action),
        "initial_delay_sec": probe.initial_delay_sec,
        "period_sec": probe.period_sec,
        "timeout_sec": probe.timeout_sec,
        "success_threshold": probe.success_threshold,
        "failure_threshold": probe.failure_threshold,
    }


def _action_document(action: Action) -> dict[str, object]:
    if isinstance(action, Exec):
        return {"exec": list(action.command)}
    if isinstance(action, TcpSocket):
        return {"tcp": {"host": action.host, "port": action.port}}
    assert isinstance(action, HttpGet)  # noqa: S101 (the last of the three)
    return {
        "http": {
            "scheme": action.scheme,
            "host": action.host,
            "port": action.port,
            "path": action.path,
            "headers": [list(each) for each in action.headers],
        }
    }
