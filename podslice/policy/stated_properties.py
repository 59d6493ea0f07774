"""The properties that a manifest states by annotations, beside those of its fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from podslice.errors import Problem, warning
from podslice.model.annotations import PREFIX, QUOTA_PERIOD, StatedProperties, describe_annotation
from podslice.model.config import Config
from podslice.model.quantity import format_bytes
from podslice.model.resources import CPU, Amounts
from podslice.model.unit import PropertyValue

Properties = tuple[PropertyValue, ...]


def with_period(config: Config, *stated: StatedProperties) -> Config:
    """Return the configuration with the period of CPU quotas that the first of them states."""
    for each in stated:
        if QUOTA_PERIOD in each:
            return replace(config, cpu_cfs_quota_period_usec=each[QUOTA_PERIOD])
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
        before = by_name.get(name)
        is_more = name == "TasksMax" and before is not None and int(before.value) < value
        if is_more or (name == QUOTA_PERIOD and before is None):
            continue
        why = describe_annotation(name, value)
        by_name[name] = PropertyValue(name=name, value=value, why=why)
    return tuple(by_name[name] for name in sorted(by_name))


def describe_stall(properties: Properties, stated: StatedProperties, capacity: Amounts) -> str:
    """Describe how long a pod may wait for its next quota; empty without a stated period.

    The quota of a period is used up soonest by as many threads as the node has CPUs; until the next
    period none of the pod's processes runs: period - quota / CPUs.

    Source: Linux, Documentation/scheduler/sched-bwc.rst: a group that has used its quota is
    throttled until the next period.
    """
    quota = next(
        (int(each.value) for each in properties if each.name == "CPUQuotaPerSecUSec"), None
    )
    period_usec = stated.get(QUOTA_PERIOD)
    if period_usec is None or quota is None:
        return ""
    used_usec = period_usec * quota // 1000 // (capacity.get(CPU) or 1000)
    stall = max(period_usec - used_usec, 0) / 1000
    return (
        f"{describe_annotation(QUOTA_PERIOD, period_usec)}: a container that uses up the quota"
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
    suffix = f".{container}" if container else ""
    if QUOTA_PERIOD in stated and "CPUQuotaPerSecUSec" not in by_name:
        at = f"{where}[{PREFIX}cpu-quota-period{suffix}]"
        yield warning(at, "there is no CPU quota", "it has no effect without a CPU limit")
    limit, high = by_name.get("MemoryMax"), stated.get("MemoryHigh")
    if high is not None and limit is not None and high >= int(limit.value):
        at = f"{where}[{PREFIX}memory-high{suffix}]"
        text = f"{format_bytes(high)} is not less than the memory limit"
        yield warning(at, text, "it has no effect")
