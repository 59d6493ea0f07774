"""Compare one expected value of a kubelet's unit with systemd's and the kernel's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.text import split_words
from podslice.model.kubelet_node import (
    AuditedValue,
    ExpectedUnit,
    ExpectedValue,
    FindingKind,
    KubeletSettings,
)
from podslice.model.properties import MEMORY_PROPERTIES, PROPERTIES, QUOTA_PERIOD_USEC
from podslice.model.unit import INFINITY, ObservedUnit, Value

_QUOTA, _PERIOD = "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec"
_LIMITS = (_QUOTA, "MemoryMax", "TasksMax")
_DEFAULT_WEIGHT = "100"
_QUOTA_STEP_USEC = 10_000
_SECOND_USEC = 1_000_000


def read_values(cgroups: CgroupFs, group: str, names: Iterable[str]) -> Mapping[str, str]:
    """Return the kernel's text for properties and files; nothing with cgroup v1."""
    if not cgroups.is_v2:
        return {}
    limits = dict(cgroups.limits(group))
    if _QUOTA in limits:
        limits[_PERIOD] = limits[_QUOTA]  # one file has both
    return {**limits, **cgroups.files(group, [name for name in names if name not in PROPERTIES])}


def audit_value(
    expected: ExpectedValue,
    unit: ExpectedUnit,
    found: ObservedUnit,
    kernel: str | None,
    settings: KubeletSettings,
    *,
    page_size: int,
) -> AuditedValue:
    """Return an expected value with those of systemd and the kernel, and the kind of its finding."""
    if expected.name not in PROPERTIES:
        is_right = kernel is None or kernel == expected.value
        kind = None if is_right else _exception(expected, unit, settings, agree=True)
        if not is_right and kind is None:
            kind = FindingKind.VALUE_CHANGED
        return AuditedValue(expected=expected, kernel=kernel, kind=kind)
    systemd = found.properties.get(expected.name)
    return AuditedValue(
        expected=expected,
        systemd=systemd,
        kernel=kernel,
        kind=_kind(expected, unit, systemd, kernel, settings, page_size),
    )


def _kind(
    expected: ExpectedValue,
    unit: ExpectedUnit,
    systemd: Value | None,
    kernel: str | None,
    settings: KubeletSettings,
    page_size: int,
) -> FindingKind | None:
    """Return the kind of finding of a property; None where both values are as expected."""
    name = expected.name
    in_systemd = systemd is None or _effective(name, systemd) == _effective(name, expected.value)
    in_kernel = kernel is None or is_in_kernel(name, expected.value, kernel, page_size)
    if in_systemd and in_kernel:
        return None
    agree = systemd is None or kernel is None or is_in_kernel(name, systemd, kernel, page_size)
    exception = _known_value(expected, systemd) if agree else None
    exception = exception or _exception(expected, unit, settings, agree=agree)
    if exception is not None:
        return exception
    if in_systemd and systemd is not None:
        return FindingKind.FILE_CHANGED
    if in_kernel and kernel is not None:
        return FindingKind.FILE_ONLY
    is_unset = systemd is None or systemd == PROPERTIES[name].unset
    is_unlimited = kernel is None or split_words(kernel)[0] == "max"
    is_missing = name in _LIMITS and expected.value is not None and is_unset and is_unlimited
    return FindingKind.LIMIT_MISSING if is_missing else FindingKind.VALUE_CHANGED


def _known_value(expected: ExpectedValue, systemd: Value | None) -> FindingKind | None:
    """Return the known behaviour of which systemd has the value; None if there is none."""
    if systemd is not None and systemd == expected.other:
        return FindingKind.RUNTIME_WEIGHT
    if systemd is not None and systemd == expected.pod_level:
        return FindingKind.POD_LEVEL_APPLIED
    return None


def _exception(
    expected: ExpectedValue, unit: ExpectedUnit, settings: KubeletSettings, *, agree: bool
) -> FindingKind | None:
    """Return the known behaviour that explains another value; None if there is none."""
    pod = unit.pod
    if pod is None or not agree:
        return None
    if pod.is_resizing and (expected.name in PROPERTIES and expected.name != "TasksMax"):
        return FindingKind.RESIZING
    started, changed = pod.started_sec, settings.changed_sec
    is_older = started is not None and changed is not None and started < changed
    if expected.depends_on_configuration and is_older:
        return FindingKind.OLDER_CONFIGURATION
    return None


def _effective(name: str, value: Value | None) -> Value | None:
    """Return a value as it acts: systemd's and the kubelet's default period are the same."""
    unset = PROPERTIES[name].unset
    if name == _PERIOD and value in (None, unset):
        return QUOTA_PERIOD_USEC
    return unset if value is None else value


def is_in_kernel(name: str, value: Value | None, kernel: str, page_size: int) -> bool:
    """Return whether the kernel's text is the value of a property.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.max ("$MAX $PERIOD"), cpu.weight,
    memory.max, pids.max; mm/page_counter.c, page_counter_memparse (whole pages).
    """
    if name == _QUOTA:
        return _is_quota(value, kernel)
    if name == _PERIOD:
        return split_words(kernel)[1:] == [str(_effective(name, value))]
    if name == "CPUWeight" and value in (None, INFINITY):
        return kernel == _DEFAULT_WEIGHT
    number = _effective(name, value)
    if number == INFINITY:
        return kernel == "max"
    if name in MEMORY_PROPERTIES and isinstance(number, int):
        number = number // page_size * page_size
    return kernel == str(number)


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
