"""The properties that a manifest states by annotations, beside those of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from podslice.errors import Problem, warning
from podslice.model.config import Config, CpuManagerPolicy
from podslice.model.node import Node, format_cpus, parse_cpus
from podslice.model.properties import (
    ALLOWED_CPUS,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    MEMORY_HIGH,
    MEMORY_MAX,
    OOM_SCORE_ADJ,
    PROPERTIES,
    TASKS_MAX,
    StatedProperties,
    annotation_key,
    describe_annotation,
)
from podslice.model.quantity import format_bytes
from podslice.model.resources import CPU, Amounts
from podslice.model.unit import PropertyValue, limit_of

Properties = tuple[PropertyValue, ...]

_NO_CONTROLLER = "use cgroup v2 with this controller, and delegate it to a user manager (Delegate=)"


def with_period(config: Config, *stated: StatedProperties) -> Config:
    """Return the configuration with the period of CPU quotas that the first of them states."""
    for each in stated:
        if CPU_QUOTA_PERIOD in each:
            return replace(config, cpu_cfs_quota_period_usec=int(each[CPU_QUOTA_PERIOD]))
    return config


def with_stated(properties: Properties, stated: StatedProperties) -> Properties:
    """Return the properties of a unit with those that are stated.

    A stated value replaces another one, except that of TasksMax the smaller applies, and that a
    period, with which a quota was computed before, needs one.
    """
    if not stated:
        return properties
    by_name = {each.name: each for each in properties}
    for name, value in stated.items():
        if name == OOM_SCORE_ADJ:  # of processes
            continue
        before = by_name.get(name)
        is_more = name == TASKS_MAX and before is not None and int(before.value) < int(value)
        if not (is_more or (name == CPU_QUOTA_PERIOD and before is None)):
            why = describe_annotation(name, value)
            by_name[name] = PropertyValue(name=name, value=value, why=why)
    return tuple(by_name[name] for name in sorted(by_name))


def describe_stall(properties: Properties, stated: StatedProperties, capacity: Amounts) -> str:
    """Describe how long a pod may wait for its next quota; empty without a stated period.

    The quota of a period is used up soonest by as many threads as the pod has CPUs; until the next
    period none of the pod's processes runs: period - quota / CPUs.

    Source: Linux, Documentation/scheduler/sched-bwc.rst: a group that has used its quota is
    throttled until the next period.
    """
    quota = limit_of(properties, CPU_QUOTA)
    period_usec = stated.get(CPU_QUOTA_PERIOD)
    if period_usec is None or quota is None:
        return ""
    milli = capacity.get(CPU) or 1000
    if ALLOWED_CPUS in stated:
        milli = min(milli, len(_cpus(stated)) * 1000)
    used_usec = int(period_usec) * quota // 1000 // milli
    stall = max(int(period_usec) - used_usec, 0) / 1000
    return (
        f"{describe_annotation(CPU_QUOTA_PERIOD, period_usec)}: a container that uses up the quota"
        f" stalls the pod for up to {stall:g} ms"
    )


def check_stated(
    properties: Properties, stated: StatedProperties, where: str, container: str = ""
) -> Iterator[Problem]:
    """Warn of stated properties without an effect on a unit with these properties.

    Args:
        properties: of the unit, with the stated ones.
        stated: of the pod or the container.
        where: the address of the annotations.
        container: the name of the container; empty for the pod.
    """
    by_name = {each.name: each for each in properties}
    if CPU_QUOTA_PERIOD in stated and CPU_QUOTA not in by_name:
        at = f"{where}[{annotation_key(CPU_QUOTA_PERIOD, container)}]"
        yield warning(at, "there is no CPU quota", "it has no effect without a CPU limit")
    limit, high = by_name.get(MEMORY_MAX), stated.get(MEMORY_HIGH)
    if high is not None and limit is not None and int(high) >= int(limit.value):
        at = f"{where}[{annotation_key(MEMORY_HIGH, container)}]"
        text = f"{format_bytes(int(high))} is not less than the memory limit"
        yield warning(at, text, "it has no effect")


def check_unmanaged(
    stated: StatedProperties, config: Config, where: str, container: str = ""
) -> Iterator[Problem]:
    """Yield the error of CPUs that are stated while the CPU manager assigns them."""
    if ALLOWED_CPUS in stated and config.cpu_manager_policy is not CpuManagerPolicy.NONE:
        yield Problem(
            where=f"{where}[{annotation_key(ALLOWED_CPUS, container)}]",
            message=f"cpu-manager-policy {config.cpu_manager_policy} assigns the CPUs of pods",
            hint="leave it out, or set cpu-manager-policy to none",
        )


def check_possible(
    stated: StatedProperties,
    node: Node,
    cpus: frozenset[int] | None,
    where: str,
    container: str = "",
) -> Iterator[Problem]:
    """Yield the errors of stated properties that the node cannot apply.

    Args:
        stated: of the pod or the container.
        node: its controllers.
        cpus: of the node; None if they are not known.
        where: the address of the annotations.
        container: the name of the container; empty for the pod.
    """
    for name in stated:
        row = PROPERTIES[name]
        at = f"{where}[{annotation_key(name, container)}]"
        if not row.controller:
            continue
        if node.controllers is not None and row.controller not in node.controllers:
            text = f"the {row.controller} controller is not available"
            yield Problem(where=at, message=text, hint=_NO_CONTROLLER)
        elif name == ALLOWED_CPUS and cpus is not None and (missing := _cpus(stated) - cpus):
            text = f"the node does not have {_describe_cpus(missing)}"
            yield Problem(where=at, message=text, hint=f"it has {_describe_cpus(cpus)}")


def check_within(
    stated: StatedProperties, of_pod: StatedProperties, where: str, container: str
) -> Iterator[Problem]:
    """Warn of CPUs of a container that its pod does not have.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus: it is limited by that of
    the parent, whose CPUs apply if none is left.
    """
    if ALLOWED_CPUS not in stated or ALLOWED_CPUS not in of_pod:
        return
    of_both = _cpus(stated) & _cpus(of_pod)
    if missing := _cpus(stated) - of_both:
        at = f"{where}[{annotation_key(ALLOWED_CPUS, container)}]"
        text = f"the pod is not allowed {_describe_cpus(missing)}"
        yield warning(at, text, f"the container runs on {_describe_cpus(of_both or _cpus(of_pod))}")


def _cpus(stated: StatedProperties) -> frozenset[int]:
    return frozenset(parse_cpus(str(stated[ALLOWED_CPUS])))


def _describe_cpus(cpus: frozenset[int]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
