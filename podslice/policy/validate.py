"""What is wrong with a pod, all of it, each with its address."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from podslice.errors import Problem, Severity
from podslice.model.config import Config, Rules
from podslice.model.pod import Container, Pod
from podslice.model.quantity import format_bytes
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    Amounts,
    Resources,
    format_amount,
    is_hugepages,
    is_pod_level_resource,
)
from podslice.policy.aggregate import aggregate
from podslice.policy.convert import MIN_QUOTA_USEC, quota_from_milli
from podslice.policy.hugepages import page_size_bytes
from podslice.policy.tree import OVERHEAD

_ONLY_KUBERNETES = "Kubernetes would refuse the pod"


_NOTHING: Amounts = MappingProxyType({})
_MANY_CPUS_MILLI = 100_000
"""100 CPUs. Beyond it, and beyond what the node has, thousandths were probably meant."""


def validate(
    pod: Pod, config: Config, *, page_size: int = 4096, capacity: Amounts = _NOTHING
) -> list[Problem]:
    """Every problem of a pod that has its defaults already, errors and warnings.

    Source: seed 002, "Proposal"; Kubernetes, pkg/apis/core/validation/validation.go,
    ValidateContainerResourceRequirements and validatePodResources.
    """
    found: list[Problem] = []
    for container in pod.containers:
        where = f"{container.where}.resources"
        found += _validate_level(container.resources, where)
        found += _validate_kernel(container.resources, where, config, page_size)
        found += _validate_slips(container.resources, where, page_size, capacity)
    found += _validate_level(pod.resources, _level(pod))
    found += _validate_kernel(pod.resources, _level(pod), config, page_size)
    found += _validate_slips(pod.resources, _level(pod), page_size, capacity)
    found += _validate_pod_level(pod, config.rules)
    found += _validate_helpers(pod)
    found += _validate_volumes(pod, page_size)
    return [_at(pod, problem) for problem in found]


def _validate_helpers(pod: Pod) -> Iterator[Problem]:
    """Helpers and a container can't be in one scope."""
    for container in pod.containers:
        if pod.overhead and container.name == OVERHEAD:
            yield Problem(
                where=f"{container.where}.name",
                message=f"in a pod with an overhead {OVERHEAD!r} is the scope of the pod's helpers",
                hint="give the container another name",
            )


def _validate_volumes(pod: Pod, page_size: int) -> Iterator[Problem]:
    for volume in pod.volumes:
        if volume.size_bytes and volume.size_bytes < page_size:
            yield _warning(
                f"{volume.where}.emptyDir.sizeLimit",
                f"{volume.size_bytes} bytes are less than a page of memory",
                f"write {volume.size_bytes}Mi if that is meant",
            )


def _level(pod: Pod) -> str:
    """The address of the pod level."""
    return f"{pod.spec_where}.resources"


def _at(pod: Pod, problem: Problem) -> Problem:
    where = f"{pod.where}: {problem.where}" if pod.where else problem.where
    return Problem(
        where=where, message=problem.message, hint=problem.hint, severity=problem.severity
    )


def _warning(where: str, message: str, hint: str = "") -> Problem:
    return Problem(where=where, message=message, hint=hint, severity=Severity.WARNING)


def _validate_level(stated: Resources, where: str) -> Iterator[Problem]:
    """One container's resources, or the pod level's."""
    for name, request in stated.requests.items():
        limit = stated.limits.get(name)
        if limit is not None and request > limit:
            yield Problem(
                where=f"{where}.requests[{name}]",
                message=f"{format_amount(name, request)} is more than the limit of"
                f" {format_amount(name, limit)}",
                hint="a request is at most its limit",
            )
    for name in sorted({*stated.requests, *stated.limits}):
        # a request that its limit implies is not what was written
        yield from _validate_name(f"{where}.{_stated_in(name, stated)}[{name}]", name)
    yield from _validate_hugepages(stated, where)


def _stated_in(name: str, stated: Resources) -> str:
    return "limits" if name in stated.limits else "requests"


def _validate_name(where: str, name: str) -> Iterator[Problem]:
    """Resources that podslice knows, and those that it passes over."""
    if name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_hugepages(name) or "/" in name:
        return
    yield _warning(where, f"{name!r} is not a resource that podslice knows", "it is passed over")


def _validate_hugepages(stated: Resources, where: str) -> Iterator[Problem]:
    """Request = limit, and whole pages.

    Source: Kubernetes, validation.go, "HugePages require" and isHugePageSizeValid.
    """
    for name in sorted({*stated.requests, *stated.limits}):
        if not is_hugepages(name):
            continue
        request, limit = stated.requests.get(name), stated.limits.get(name)
        if request != limit:
            yield Problem(
                where=f"{where}.requests[{name}]",
                message="huge pages need a limit, and a request equal to it",
                hint="they can't be overcommitted",
            )
        yield from _validate_page_multiple(f"{where}.limits[{name}]", name, limit or request or 0)


def _validate_page_multiple(where: str, name: str, milli: int) -> Iterator[Problem]:
    size = page_size_bytes(name)
    if size is None:
        yield Problem(
            where=where,
            message=f"{name.removeprefix(HUGEPAGES_PREFIX)!r} is not a size of a page",
            hint="write hugepages-2Mi or hugepages-1Gi",
        )
    elif milli % (size * 1000):
        yield Problem(
            where=where,
            message=f"{format_amount(name, milli)} is not a whole number of pages of"
            f" {format_bytes(size)}",
        )


def _validate_kernel(
    stated: Resources, where: str, config: Config, page_size: int
) -> Iterator[Problem]:
    """What the kernel or systemd will hold differently from what is written."""
    cpu_milli = stated.limits.get(CPU, 0)
    if cpu_milli and config.cpu_cfs_quota:
        period_usec = config.cpu_cfs_quota_period_usec
        quota = quota_from_milli(cpu_milli, period_usec=period_usec)
        shown = format_amount(CPU, cpu_milli)
        counts = f"it counts as {quota.per_sec_usec // 1000}m"
        if quota.asked_usec * period_usec < MIN_QUOTA_USEC * 1_000_000:
            yield _warning(
                f"{where}.limits[{CPU}]",
                f"{shown} is below the least that the kernel can hold, 1 ms of every"
                f" {period_usec / 1000:g} ms",
                counts,
            )
        elif quota.per_sec_usec != quota.asked_usec:
            yield _warning(
                f"{where}.limits[{CPU}]",
                f"{shown} is no whole percent of a CPU, and systemd keeps no less",
                counts,
            )
    memory = stated.limits.get(MEMORY, 0)
    if memory % (page_size * 1000) and memory > page_size * 1000:
        yield _warning(
            f"{where}.limits[{MEMORY}]",
            f"{format_amount(MEMORY, memory)} is no whole number of pages",
            f"the kernel rounds it down to a multiple of {page_size}",
        )


def _validate_slips(
    stated: Resources, where: str, page_size: int, capacity: Amounts
) -> Iterator[Problem]:
    """Amounts that are right and nobody means: 512 bytes, 500 CPUs.

    Source: Kubernetes, pkg/api/pod/warnings.go, "fractional byte value", for `memory: 400m`.
    """
    for part, amounts in (("limits", stated.limits), ("requests", stated.requests)):
        memory, cpu = amounts.get(MEMORY, 0), amounts.get(CPU, 0)
        if part == "requests":  # said once where both are the same
            memory = 0 if memory == stated.limits.get(MEMORY) else memory
            cpu = 0 if cpu == stated.limits.get(CPU) else cpu
        if 0 < memory < page_size * 1000:
            what = "thousandths of a byte" if memory % 1000 else "bytes"
            number = memory if memory % 1000 else memory // 1000
            yield _warning(
                f"{where}.{part}[{MEMORY}]",
                f"{format_amount(MEMORY, memory)} is {number} {what}, less than a page of memory",
                f"write {number}Mi if that is meant",
            )
        if cpu >= _MANY_CPUS_MILLI and cpu > capacity.get(CPU, cpu):
            yield _warning(
                f"{where}.{part}[{CPU}]",
                f"{format_amount(CPU, cpu)} is {cpu // 1000} CPUs, and the node has"
                f" {format_amount(CPU, capacity[CPU])}",
                "write 500m for half a CPU",
            )


def _validate_pod_level(pod: Pod, rules: Rules) -> Iterator[Problem]:
    """The pod level against the containers."""
    sums = aggregate(pod)
    for name, limit in pod.resources.limits.items():
        if not is_pod_level_resource(name):
            continue
        where = f"{_level(pod)}.limits[{name}]"
        said = f"{format_amount(name, limit)} is less than the containers'"
        if limit < sums.requests.get(name, 0):
            yield Problem(
                where=where,
                message=f"{said} requests of {format_amount(name, sums.requests[name])}",
                hint="raise the pod's limit or lower the containers' requests",
            )
        elif name == MEMORY and limit < sums.limits.get(name, 0):
            yield _warning(
                where,
                f"{said} limits of {format_amount(name, sums.limits[name])}",
                "they can't all reach their limits",
            )
    yield from _validate_stricter(pod, sums, rules)


def _validate_stricter(pod: Pod, sums: Resources, rules: Rules) -> Iterator[Problem]:
    """What only Kubernetes refuses: errors under its rules, warnings under the proposal's."""
    for level, where in (
        *((each.resources, f"{each.where}.resources") for each in pod.containers),
        (pod.resources, _level(pod)),
    ):
        names = {*level.requests, *level.limits}
        if any(map(is_hugepages, names)) and not names & {CPU, MEMORY}:
            yield _stricter(where, "huge pages need cpu or memory beside them", rules)
    for name in sorted({*pod.resources.requests, *pod.resources.limits}):
        if not is_pod_level_resource(name):
            yield _stricter(
                f"{_level(pod)}.{_stated_in(name, pod.resources)}[{name}]",
                "the pod level takes cpu, memory and huge pages only",
                rules,
            )
            continue
        request, asked = pod.resources.requests.get(name), sums.requests.get(name, 0)
        if request is not None and request < asked:
            yield _stricter(
                f"{_level(pod)}.requests[{name}]",
                f"{format_amount(name, request)} is less than the containers' requests of"
                f" {format_amount(name, asked)}",
                rules,
            )
        limit = pod.resources.limits.get(name)
        for container in pod.containers if limit is not None else ():
            yield from _validate_container_limit(container, name, limit or 0, rules)


def _validate_container_limit(
    container: Container, name: str, pod_limit: int, rules: Rules
) -> Iterator[Problem]:
    limit = container.resources.limits.get(name, 0)
    if limit > pod_limit:
        yield _stricter(
            f"{container.where}.resources.limits[{name}]",
            f"{format_amount(name, limit)} is more than the pod's limit of"
            f" {format_amount(name, pod_limit)}",
            rules,
        )


def _stricter(where: str, message: str, rules: Rules) -> Problem:
    if rules is Rules.KUBERNETES:
        return Problem(where=where, message=message)
    return _warning(where, message, _ONLY_KUBERNETES)
