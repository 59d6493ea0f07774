"""The order in which a pod's containers start: init containers one after the other, then the rest.

Source: Kubernetes, "Init Containers" and "Sidecar Containers": each init container ends with 0 before
the next one starts; a sidecar has started, and its startup probe has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from podslice.features.quadlet.pod_names import Names
from podslice.features.quadlet.probes import needs_prober
from podslice.features.quadlet.result import Options
from podslice.features.quadlet.unit_text import Section
from podslice.features.quadlet.workload import ContainerWorkload, PodWorkload, Restart
from podslice.model.pod import ContainerKind

_BACK_OFF_SEC = 1
_BACK_OFF_MAX_SEC = 300
_BACK_OFF_STEPS = 6
"""From 1 s to 300 s, which the seventh restart waits, as in the kubelet.

The first restart of the kubelet is immediate; the others begin at 10 s, each twice the one before.
systemd multiplies by the same factor in each step, so the steps begin near zero and grow faster.

Source: Kubernetes, "Pod Lifecycle", "How Pods handle problems with containers"; systemd.service(5),
RestartSteps=.
"""
_CONSTANT_SEC = 10
"""The delay where systemd has no steps, so that a container that fails at once uses little CPU."""
_JOB_SEC = 300
"""How long a pod that cannot be created delays the boot; it is created later, too.

It ends between two restarts, 189 s and 489 s after the first failure: systemd no longer starts a
service whose job times out at the moment at which the delay ends.
"""
_STEPS_SINCE = 254
"""The systemd with RestartSteps=, RestartMaxDelaySec= and RestartMode=. Source: systemd, NEWS."""


def add_order(
    head: Section,
    container: ContainerWorkload,
    workload: PodWorkload,
    names: Names,
    options: Options,
) -> None:
    """Add what starts before a container.

    The end of a sidecar does not stop the others, as that of an init container does. The service of
    the pod starts it: if others wanted it, their restarts would start it before its back-off ends.
    """
    for each in takewhile(lambda other: other.name != container.name, workload.containers):
        if each.kind is ContainerKind.APP:
            continue
        service = names.service(each.name)
        if each.kind is ContainerKind.INIT:
            head.add("Requires", service)
        head.add("After", service)
        if each.startup is not None and needs_prober(each, options):
            head.add("After", names.prober(each.name))


def is_last_init(container: ContainerWorkload, workload: PodWorkload) -> bool:
    """Return whether the init phase ends with a container."""
    inits = [each.name for each in workload.containers if each.kind is ContainerKind.INIT]
    return inits[-1:] == [container.name]


def add_restart(
    head: Section,
    body: Section,
    container: ContainerWorkload,
    workload: PodWorkload,
    options: Options,
) -> None:
    """Add when a container starts again, with the back-off of the kubelet.

    An init container that fails starts again unless the policy is Never; those that wait for it
    continue to wait. A sidecar always starts again.
    """
    policy = _policy(container, workload)
    body.add("Restart", policy)
    if policy == "no":
        return
    head.add("StartLimitIntervalSec", "0")
    _add_back_off(body, options)
    if container.kind is ContainerKind.INIT:
        _add_direct(body, options)


def add_restart_of_pod(head: Section, body: Section, options: Options) -> None:
    """Add the delays with which a pod starts again that has failed: its port is in use, for instance.

    The generator adds Restart=on-failure.
    """
    if options.systemd_version >= _STEPS_SINCE:
        # the target of the boot waits for the job, which a failure does not end
        head.add("JobRunningTimeoutSec", f"{_JOB_SEC}s")
        head.add("StartLimitIntervalSec", "0")
        _add_back_off(body, options)
        _add_direct(body, options)


def _add_back_off(body: Section, options: Options) -> None:
    if options.systemd_version < _STEPS_SINCE:
        body.add("RestartSec", f"{_CONSTANT_SEC}s")
        return
    body.add("RestartSec", f"{_BACK_OFF_SEC}s")
    body.add("RestartSteps", str(_BACK_OFF_STEPS))
    body.add("RestartMaxDelaySec", f"{_BACK_OFF_MAX_SEC}s")


def _add_direct(body: Section, options: Options) -> None:
    """Let what waits for a service continue to wait when it fails and starts again.

    What the service wants is not started before it, which would start it without its delay.

    Source: systemd, src/core/unit.c, unit_notify, retroactively_start_dependencies.
    """
    if options.systemd_version >= _STEPS_SINCE:
        body.add("RestartMode", "direct")


def _policy(container: ContainerWorkload, workload: PodWorkload) -> str:
    if container.kind is ContainerKind.SIDECAR:
        return "always"
    if workload.restart is Restart.NEVER:
        return "no"
    if container.kind is ContainerKind.INIT or workload.restart is Restart.ON_FAILURE:
        return "on-failure"
    return "always"


def notes(workload: PodWorkload, options: Options) -> Iterator[str]:
    """Yield what an old systemd cannot keep."""
    if options.systemd_version >= _STEPS_SINCE:
        return
    version = options.systemd_version
    yield f"systemd {version} has no RestartSteps=: containers restart after {_CONSTANT_SEC} s each time"
    yield (
        f"systemd {version} has no RestartMode=: the pod remains failed after five failures within 10 s"
    )
    kinds = {each.kind for each in workload.containers}
    if ContainerKind.INIT in kinds and workload.restart is not Restart.NEVER:
        yield (
            f"systemd {version} has no RestartMode=: the start of the pod fails with an init"
            " container, although that one starts again"
        )
