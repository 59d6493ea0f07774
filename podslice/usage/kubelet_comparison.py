"""Compare one expected value of a kubelet's unit with systemd's and the kernel's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.text import split_words
from podslice.model.codec import BYTES
from podslice.model.kubelet_node import (
    AuditedValue,
    ExpectedUnit,
    ExpectedValue,
    FindingKind,
    KubeletSettings,
)
from podslice.model.level_plan import LevelValues
from podslice.model.properties import (
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    MEMORY_MAX,
    PROPERTIES,
    QUOTA_PERIOD_USEC,
    TASKS_MAX,
)
from podslice.model.unit import INFINITY, ObservedUnit, UnitName, Value
from podslice.policy.kubelet_decision import rejects_pod_level

_LIMITS = (CPU_QUOTA, MEMORY_MAX, TASKS_MAX)
_RESIZED = (CPU_QUOTA, CPU_QUOTA_PERIOD, CPU_WEIGHT, MEMORY_MAX)
_QUOTA_STEP_USEC = 10_000
_SECOND_USEC = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletHost:
    """The node of an audit: its units and control groups, and what podslice has set on it."""

    observed: Mapping[UnitName, ObservedUnit]
    """The units of `unit_patterns`."""
    cgroups: CgroupFs = field(default_factory=CgroupFs)
    """The kernel's values; those of cgroup v1 are not compared."""
    own: LevelValues = field(default_factory=dict)
    """The values of pod levels that an agent of podslice has set."""
    root: Path = Path("/")
    """Whose /proc has the processes."""
    page_size: int = 4096
    """Of the memory, in bytes; the kernel rounds memory limits down to it."""
    pause: Callable[[float], None] = time.sleep
    """Waits for some seconds."""


def read_values(cgroups: CgroupFs, group: str, names: Iterable[str]) -> Mapping[str, str]:
    """Return the kernel's text for properties and files; nothing with cgroup v1."""
    if not cgroups.is_v2:
        return {}
    limits = dict(cgroups.limits(group))
    if CPU_QUOTA in limits:
        limits[CPU_QUOTA_PERIOD] = limits[CPU_QUOTA]  # one file has both
    return {**limits, **cgroups.files(group, [name for name in names if name not in PROPERTIES])}


def audit_value(
    expected: ExpectedValue,
    unit: ExpectedUnit,
    found: ObservedUnit,
    kernel: str | None,
    settings: KubeletSettings,
    host: KubeletHost,
) -> AuditedValue:
    """Return an expected value with those of systemd and the kernel, and the kind of its finding."""
    page_size = host.page_size
    if expected.name not in PROPERTIES:
        is_right = kernel in {None, expected.value, expected.also}
        kind = None if is_right else FindingKind.VALUE_CHANGED
        return AuditedValue(expected=expected, kernel=kernel, kind=kind)
    systemd = found.properties.get(expected.name)
    kind = _kind(expected, unit, systemd, kernel, settings, page_size)
    if kind is not None and systemd is not None and systemd == expected.pod_level:
        is_own = host.own.get(unit.name, {}).get(expected.name) == systemd
        in_kernel = kernel is None or is_in_kernel(expected.name, systemd, kernel, page_size)
        if in_kernel and is_own:
            kind = FindingKind.POD_LEVEL_APPLIED
        elif in_kernel and unit.pod and not unit.pod.has_own_level and rejects_pod_level(settings):
            kind = FindingKind.POD_LEVEL_BY_KUBELET
    return AuditedValue(expected=expected, systemd=systemd, kernel=kernel, kind=kind)


def _kind(
    expected: ExpectedValue,
    unit: ExpectedUnit,
    systemd: Value | None,
    kernel: str | None,
    settings: KubeletSettings,
    page_size: int,
) -> FindingKind | None:
    """Return the kind of finding of a property; None where both values are right."""
    name = expected.name
    in_systemd = systemd is None or _effective(name, systemd) == _effective(name, expected.value)
    in_kernel = kernel is None or is_in_kernel(name, expected.value, kernel, page_size)
    if in_kernel and (in_systemd or systemd == expected.also):
        return None
    if systemd is None or kernel is None or is_in_kernel(name, systemd, kernel, page_size):
        known = _known(expected, unit, systemd, settings)
        if known is not None:
            return known
    if in_systemd and systemd is not None:
        return FindingKind.FILE_CHANGED
    if in_kernel and kernel is not None:
        return FindingKind.FILE_ONLY
    is_unset = systemd is None or systemd == PROPERTIES[name].unset
    is_unlimited = kernel is None or split_words(kernel)[0] == "max"
    is_missing = name in _LIMITS and expected.value is not None and is_unset and is_unlimited
    return FindingKind.LIMIT_MISSING if is_missing else FindingKind.VALUE_CHANGED


def _known(
    expected: ExpectedValue, unit: ExpectedUnit, systemd: Value | None, settings: KubeletSettings
) -> FindingKind | None:
    """Return the known behaviour that explains the value of systemd; None if there is none."""
    if systemd is not None and systemd == expected.other:
        return FindingKind.RUNTIME_WEIGHT
    pod = unit.pod
    if pod is None:
        return None
    if pod.is_resizing and expected.name in _RESIZED:
        return FindingKind.RESIZING
    started, changed = pod.started_sec, settings.changed_sec
    is_older = started is not None and changed is not None and started < changed
    if is_older and (
        expected.older is None or _effective(expected.name, systemd) in expected.older
    ):
        return FindingKind.OLDER_CONFIGURATION
    return None


def _effective(name: str, value: Value | None) -> Value | None:
    """Return a value as it acts: systemd's and the kubelet's default period are the same."""
    unset = PROPERTIES[name].unset
    if name == CPU_QUOTA_PERIOD and value in (None, unset):
        return QUOTA_PERIOD_USEC
    return unset if value is None else value


def is_in_kernel(name: str, value: Value | None, kernel: str, page_size: int) -> bool:
    """Return whether the kernel's text is the value of a property.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.max ("$MAX $PERIOD"), cpu.weight,
    io.weight, memory.max, pids.max; mm/page_counter.c, page_counter_memparse (whole pages).
    """
    if name == CPU_QUOTA:
        return _is_quota(value, kernel)
    if name == CPU_QUOTA_PERIOD:
        return split_words(kernel)[1:] == [str(_effective(name, value))]
    number = _effective(name, value)
    row = PROPERTIES[name]
    if number == row.unset and (number == INFINITY or row.codec.separator):
        return kernel == row.kernel_unset
    if row.codec == BYTES and isinstance(number, int) and number != INFINITY:
        number = number // page_size * page_size
    return kernel == ("max" if number == INFINITY else str(number))


def _is_quota(value: Value | None, kernel: str) -> bool:
    """Return whether `cpu.max` has a quota: exactly as the kubelet writes it, or as systemd rounds it.

    The property is rounded up to what systemd's drop-ins keep; libcontainer writes the file itself,
    and the next daemon-reload writes the rounded one.
    """
    quota, _, period = kernel.partition(" ")
    if value in (None, INFINITY) or not (quota.isdigit() and period.isdigit()):
        return quota == "max" and value in (None, INFINITY)
    per_sec = -(-int(quota) * _SECOND_USEC // int(period))
    return -(-per_sec // _QUOTA_STEP_USEC) * _QUOTA_STEP_USEC == value
