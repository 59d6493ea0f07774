"""The limit of a pod's process ids, which only the pod level has."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.errors import Problem, warning
from podslice.model.config import Config, Rules
from podslice.model.pod import Pod
from podslice.model.properties import TASKS_MAX
from podslice.model.resources import PIDS, format_amount, whole
from podslice.model.unit import PropertyValue

_LEAST, _MOST = 128, 16_384
"""The range of the limit in Kubernetes.

Source: KEP-6063, "Valid Values", with the minimum of kubernetes/enhancements#6217.
"""

_LIMIT = f"spec.resources.limits.{PIDS}"
_OPTION = "pod-max-pids"


def tasks_limit(pod: Pod, config: Config) -> Iterator[PropertyValue]:
    """Yield TasksMax of a pod's slice: the smaller one of its own limit and the node's.

    Source: KEP-6063, "Kubelet Implementation": min(podPidsLimit, spec.resources.limits.pid);
    Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go, EnsureExists.
    """
    own, most = whole(pod.resources.limits, PIDS), config.pod_max_pids
    if own is not None and (most is None or own <= most):
        yield PropertyValue(name=TASKS_MAX, value=own, why=f"{_LIMIT} {own}")
    elif most is not None:
        why = _OPTION if own is None else f"{_LIMIT} {own}, limited to {_OPTION}"
        yield PropertyValue(name=TASKS_MAX, value=most, why=why)


def check_process_ids(pod: Pod, config: Config, where: str) -> Iterator[Problem]:
    """Return the problems of the pod's own limit; `where` is the address of the pod level.

    Source: KEP-6063, "Valid Values" and "Kubelet Implementation" (PIDLimitCapped).
    """
    milli = pod.resources.limits.get(PIDS)
    if milli is None:
        return
    at, shown = f"{where}.limits[{PIDS}]", format_amount(PIDS, milli)
    if milli % 1000 or milli == 0:
        hint = f"write {_LEAST} to {_MOST}"
        yield Problem(where=at, message=f"{shown} is not a whole number above 0", hint=hint)
        return
    if not _LEAST * 1000 <= milli <= _MOST * 1000:
        message = f"{shown} is outside of Kubernetes' range, {_LEAST} to {_MOST}"
        if config.rules is Rules.KUBERNETES:
            yield Problem(where=at, message=message)
        else:
            yield warning(at, message, "Kubernetes would refuse the pod")
    most = config.pod_max_pids
    if most is not None and milli > most * 1000:
        yield warning(at, f"{shown} is more than {_OPTION}", f"{most} applies")
