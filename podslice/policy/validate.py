"""Validation of a pod: all problems, each with its address."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from podslice.errors import Problem, warning
from podslice.model.config import Config, Rules
from podslice.model.naming import OVERHEAD
from podslice.model.pod import ContainerKind, Pod
from podslice.model.quantity import format_bytes
from podslice.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGEPAGES_PREFIX,
    MEMORY,
    PIDS,
    Amounts,
    Resources,
    format_amount,
    is_extended,
    is_hugepages,
    is_pod_level_resource,
)
from podslice.policy.aggregate import aggregate, lacking_limit, page_size_bytes, running
from podslice.policy.convert import MIN_QUOTA_USEC, quota_from_milli
from podslice.policy.unit_properties import with_period

_MANY_CPUS_MILLI = 100_000
"""100 CPUs. From there on, if the node has fewer, thousandths were probably meant."""


def validate(
    pod: Pod, stated: Pod, config: Config, *, page_size: int, capacity: Amounts
) -> list[Problem]:
    """Return every problem of a pod, errors and warnings.

    Args:
        pod: with its defaults.
        stated: as its manifest has it; defaulted values are not reported.
        config: the node's configuration.
        page_size: of the node's memory, in bytes.
        capacity: of the node.

    Source: Pod-Level Resource Limits, "Proposal"; Kubernetes,
    pkg/apis/core/validation/validation.go, ValidateContainerResourceRequirements and
    validatePodResources.
    """
    found: list[Problem] = []
    for container in pod.containers:
        where = f"{container.where}.resources"
        by = with_period(config, container.properties, pod.properties)
        found += _validate_resources(container.resources, where, by, page_size, capacity)
    # a defaulted request above the pod's limit is the containers' sum, see `compare_levels`
    requests = {
        name: milli
        for name, milli in pod.resources.requests.items()
        if name in stated.resources.requests or is_hugepages(name)
    }
    if pod_level := Resources(requests=requests, limits=pod.resources.limits):
        by = with_period(config, pod.properties)
        found += _validate_resources(pod_level, level(pod), by, page_size, capacity, is_pod=True)
    found += compare_levels(pod, stated, config.rules)
    found += _validate_process_ids(pod, config)
    overhead = f"{pod.spec_where}.overhead"
    found += _validate_memory(pod.overhead, overhead, page_size)
    found += _validate_fraction(pod.overhead, EPHEMERAL_STORAGE, overhead)
    for container in pod.containers if pod.overhead else ():
        if container.name == OVERHEAD:
            message = f"in a pod with an overhead {OVERHEAD!r} is the scope of the pod's helpers"
            hint = "give the container another name"
            found.append(Problem(where=f"{container.where}.name", message=message, hint=hint))
    for volume in pod.volumes:
        if volume.size_bytes and volume.size_bytes < page_size:
            where = f"{volume.where}.emptyDir.sizeLimit"
            message = f"{volume.size_bytes} bytes are less than a page of memory"
            hint = f"write {volume.size_bytes}Mi if that is meant"
            found.append(Problem(where=where, message=message, hint=hint))
    if pod.where:
        found = [replace(each, where=f"{pod.where}: {each.where}") for each in found]
    return found


_PIDS_LEAST, _PIDS_MOST = 128, 16_384
"""The range of a limit of process ids in Kubernetes.

Source: KEP-6063, "Valid Values", with the minimum of kubernetes/enhancements#6217.
"""


def _validate_process_ids(pod: Pod, config: Config) -> Iterator[Problem]:
    """Return the problems of the pod's own limit of process ids.

    Source: KEP-6063, "Valid Values" and "Kubelet Implementation" (PIDLimitCapped).
    """
    milli = pod.resources.limits.get(PIDS)
    if milli is None:
        return
    at, shown = f"{level(pod)}.limits[{PIDS}]", format_amount(PIDS, milli)
    if milli % 1000 or milli == 0:
        hint = f"write {_PIDS_LEAST} to {_PIDS_MOST}"
        yield Problem(where=at, message=f"{shown} is not a whole number above 0", hint=hint)
        return
    if not _PIDS_LEAST * 1000 <= milli <= _PIDS_MOST * 1000:
        message = f"{shown} is outside of Kubernetes' range, {_PIDS_LEAST} to {_PIDS_MOST}"
        yield _stricter(at, message, config.rules)
    most = config.pod_max_pids
    if most is not None and milli > most * 1000:
        yield warning(at, f"{shown} is more than pod-max-pids", f"{most} applies")


def _validate_resources(
    stated: Resources,
    where: str,
    config: Config,
    page_size: int,
    capacity: Amounts,
    *,
    is_pod: bool = False,
) -> Iterator[Problem]:
    """Validate the resources of one container, or of the pod level."""
    for name, request in stated.requests.items():
        limit = stated.limits.get(name)
        if limit is not None and request > limit:
            shown = f"{format_amount(name, request)} is more than the limit of"
            yield Problem(
                where=f"{where}.requests[{name}]",
                message=f"{shown} {format_amount(name, limit)}",
                hint="a request is at most its limit",
            )
    yield from _validate_hugepages(stated, where)
    if not is_pod:
        yield from _validate_extended(stated, where)
    yield from _validate_kernel(stated, where, config, page_size)
    yield from _validate_typos(stated, where, page_size, capacity)


def _validate_extended(stated: Resources, where: str) -> Iterator[Problem]:
    """Require whole numbers, and request = limit, for resources such as `example.com/gpu`.

    Source: Kubernetes, pkg/apis/core/validation/validation.go, validateResourceQuantityValue
    ("must be an integer") and validateResourceRequirements ("Limit must be set for non
    overcommitable resources").
    """
    for name in filter(is_extended, sorted({*stated.requests, *stated.limits})):
        request, limit = stated.requests.get(name), stated.limits.get(name)
        if request != limit:
            yield Problem(
                where=f"{where}.requests[{name}]",
                message="an extended resource needs a limit, and a request equal to it",
                hint="it can't be overcommitted",
            )
        if (limit or request or 0) % 1000:
            # a defaulted request is not in the manifest
            part = "limits" if name in stated.limits else "requests"
            yield Problem(
                where=f"{where}.{part}[{name}]",
                message=f"{format_amount(name, limit or request or 0)} is not a whole number",
                hint="extended resources are counted in whole numbers",
            )


def _validate_hugepages(stated: Resources, where: str) -> Iterator[Problem]:
    """Require request = limit, and whole pages.

    Source: Kubernetes, validation.go, "HugePages require" and isHugePageSizeValid.
    """
    for name in filter(is_hugepages, sorted({*stated.requests, *stated.limits})):
        request, limit = stated.requests.get(name), stated.limits.get(name)
        if request != limit:
            yield Problem(
                where=f"{where}.requests[{name}]",
                message="huge pages need a limit, and a request equal to it",
                hint="they can't be overcommitted",
            )
        at, milli, size = f"{where}.limits[{name}]", limit or request or 0, page_size_bytes(name)
        if size is None:
            message = f"{name.removeprefix(HUGEPAGES_PREFIX)!r} is not a page size"
            yield Problem(where=at, message=message, hint="write hugepages-2Mi or hugepages-1Gi")
        elif milli % (size * 1000):
            message = f"{format_amount(name, milli)} is not a whole number of pages of"
            yield Problem(where=at, message=f"{message} {format_bytes(size)}")


def _validate_kernel(
    stated: Resources, where: str, config: Config, page_size: int
) -> Iterator[Problem]:
    """Warn of values that the kernel or systemd will round."""
    cpu_milli = stated.limits.get(CPU, 0)
    if cpu_milli and config.cpu_cfs_quota:
        period_usec = config.cpu_cfs_quota_period_usec
        quota = quota_from_milli(cpu_milli, period_usec=period_usec)
        shown = format_amount(CPU, cpu_milli)
        counts = f"it counts as {quota.per_sec_usec // 1000}m"
        if quota.asked_usec * period_usec < MIN_QUOTA_USEC * 1_000_000:
            part = f"1 ms of every {period_usec / 1000:g} ms"
            message = f"{shown} is below the minimum of the kernel, {part}"
            yield warning(f"{where}.limits[{CPU}]", message, counts)
        elif quota.per_sec_usec != quota.asked_usec:
            message = f"{shown} is not a whole percent of a CPU, the precision that systemd stores"
            yield warning(f"{where}.limits[{CPU}]", message, counts)
    memory = stated.limits.get(MEMORY, 0)
    # Less than a page is an error of its own, see `_validate_memory`.
    if memory % (page_size * 1000) and memory > page_size * 1000:
        yield warning(
            f"{where}.limits[{MEMORY}]",
            f"{format_amount(MEMORY, memory)} is not a whole number of pages",
            f"the kernel rounds it down to a multiple of {page_size}",
        )


def _validate_typos(
    stated: Resources, where: str, page_size: int, capacity: Amounts
) -> Iterator[Problem]:
    """Report memory below a page, and warn of other amounts that are unlikely, such as 500 CPUs."""
    # A request that equals its limit is reported once, with the limit.
    new = {name: n for name, n in stated.requests.items() if n != stated.limits.get(name)}
    for amounts, at in ((stated.limits, f"{where}.limits"), (new, f"{where}.requests")):
        yield from _validate_memory(amounts, at, page_size)
        milli = amounts.get(CPU, 0)
        if milli >= _MANY_CPUS_MILLI and milli > capacity.get(CPU, milli):
            shown, there = format_amount(CPU, milli), format_amount(CPU, capacity[CPU])
            message = f"{shown} is {milli // 1000} CPUs, and the node has {there}"
            yield warning(f"{at}[{CPU}]", message, "write 500m for half a CPU")
        yield from _validate_fraction(amounts, EPHEMERAL_STORAGE, at)


def _validate_memory(amounts: Amounts, where: str, page_size: int) -> Iterator[Problem]:
    """Report memory below a page, which the kernel would round down to none.

    Source: Linux, mm/page_counter.c, page_counter_memparse: bytes / PAGE_SIZE.
    """
    milli = amounts.get(MEMORY, 0)
    if 0 < milli < page_size * 1000:
        what = "thousandths of a byte" if milli % 1000 else "bytes"
        number = milli if milli % 1000 else milli // 1000
        yield Problem(
            where=f"{where}[{MEMORY}]",
            message=f"{format_amount(MEMORY, milli)} is {number} {what}, less than a page of memory",
            hint=f"write {number}Mi if that is meant",
        )
    else:
        yield from _validate_fraction(amounts, MEMORY, where)


def _validate_fraction(amounts: Amounts, name: str, where: str) -> Iterator[Problem]:
    """Warn of a fraction of a byte.

    Source: Kubernetes, pkg/api/pod/warnings.go, "fractional byte value".
    """
    milli = amounts.get(name, 0)
    if milli % 1000:
        yield warning(
            f"{where}[{name}]",
            f"{format_amount(name, milli)} is not a whole number of bytes",
            f"it counts as {-(-milli // 1000)}",
        )


def compare_levels(pod: Pod, stated: Pod, rules: Rules) -> Iterator[Problem]:
    """Return the contradictions between the pod level and the containers.

    Args:
        pod: with its defaults.
        stated: as its manifest has it; a defaulted request is not reported.
        rules: determine when the pod's limits begin to apply.

    Source: Pod-Level Resource Limits, "Proposal" and "Init Containers"; Kubernetes,
    pkg/apis/core/validation/validation.go, validatePodResourceConsistency.
    """
    for name, limit in pod.resources.limits.items():
        if not is_pod_level_resource(name):
            continue
        # under the proposal the limit applies once the init containers have finished, and limits
        # of huge pages from the start
        from_the_start = rules is Rules.KUBERNETES or is_hugepages(name)
        sums = aggregate(pod) if from_the_start else running(pod)
        where = f"{level(pod)}.limits[{name}]"
        less = f"{format_amount(name, limit)} is less than the containers'"
        if limit < sums.requests.get(name, 0):
            yield Problem(
                where=where,
                message=f"{less} requests of {format_amount(name, sums.requests[name])}",
                hint="raise the pod's limit or lower the containers' requests",
            )
        elif name == MEMORY and limit < sums.limits.get(name, 0):
            message = f"{less} limits of {format_amount(name, sums.limits[name])}"
            yield warning(where, message, "they can't all reach their limits")
    for where, message in _only_kubernetes(pod, stated):
        yield _stricter(where, message, rules)
    yield from _check_effective(pod, stated, rules)


def _only_kubernetes(pod: Pod, stated: Pod) -> Iterator[tuple[str, str]]:
    """Yield the addresses and messages of what Kubernetes refuses, and the proposal accepts."""
    levels = [(each.resources, f"{each.where}.resources") for each in pod.containers]
    for each, where in (*levels, (pod.resources, level(pod))):
        names = {*each.requests, *each.limits}
        if any(map(is_hugepages, names)) and not names & {CPU, MEMORY}:
            yield where, "huge pages require cpu or memory as well"
    limits = pod.resources.limits
    for name in sorted({*pod.resources.requests, *limits}):
        where = f"{level(pod)}.requests[{name}]"
        if name == PIDS:
            if name in pod.resources.requests:
                yield where, "process ids have a limit and no request"
            continue
        if not is_pod_level_resource(name):
            part = "limits" if name in limits else "requests"
            message = "the pod level supports cpu, memory, huge pages and limits.pid only"
            yield f"{level(pod)}.{part}[{name}]", message
            continue
        request, asked = stated.resources.requests.get(name), aggregate(pod).requests.get(name, 0)
        if request is not None and request < asked:
            shown = f"{format_amount(name, request)} is less than the containers' requests of"
            yield where, f"{shown} {format_amount(name, asked)}"
        # Kubernetes compares the limits of `spec.containers`, not of init containers or sidecars
        for container in pod.of_kind(ContainerKind.APP):
            limit = container.resources.limits.get(name, 0)
            if name in limits and limit > limits[name]:
                shown = f"{format_amount(name, limit)} is more than the pod's limit of"
                at = f"{container.where}.resources.limits[{name}]"
                yield at, f"{shown} {format_amount(name, limits[name])}"


def _check_effective(pod: Pod, stated: Pod, rules: Rules) -> Iterator[Problem]:
    """Warn of a request of the pod above the sum of the containers' limits.

    By the containers alone this is possible under the rules of Kubernetes, where one without a limit
    counts together with the sidecars before it.
    """
    sums = aggregate(pod)
    for name in (CPU, MEMORY):
        # a pod without containers, which is an error of its own, has no limits
        if name not in sums.limits or pod.resources.limits.get(name):
            continue
        if lacking_limit(pod, name, rules):
            continue
        request, requests = stated.resources.requests.get(name, 0), sums.requests.get(name, 0)
        limits = f"limits of {format_amount(name, sums.limits[name])}"
        if request > sums.limits[name]:
            yield warning(
                f"{level(pod)}.requests[{name}]",
                f"{format_amount(name, request)} is more than the containers' {limits}",
                "the pod can't use more than those",
            )
        elif requests > sums.limits[name]:
            asked = f"the containers' requests of {format_amount(name, requests)}"
            for each in pod.containers:
                if each.resources.requests.get(name) and not each.resources.limits.get(name):
                    yield warning(
                        f"{each.where}.resources.limits[{name}]",
                        f"it is not set, and {asked} are more than their {limits}",
                        "the pod can't use more than those limits",
                    )


def level(pod: Pod) -> str:
    """Return the address of the pod level."""
    return f"{pod.spec_where}.resources"


def _stricter(where: str, message: str, rules: Rules) -> Problem:
    """Return what only Kubernetes refuses: an error under its rules, else a warning."""
    if rules is Rules.KUBERNETES:
        return Problem(where=where, message=message)
    return warning(where, message, "Kubernetes would refuse the pod")
