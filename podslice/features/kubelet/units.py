"""Compare the units of a kubelet with the expected values; it changes nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from podslice.errors import printable
from podslice.features.kubelet.model import (
    CONTAINERD,
    AuditedUnit,
    AuditedValue,
    AuditFinding,
    ExpectedNode,
    ExpectedUnit,
    ExpectedValue,
    FindingKind,
    KubeletSettings,
    LevelValues,
    NodeAudit,
)
from podslice.features.kubelet.policy import rejects_pod_level
from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.proc import has_mounts_of_host, process_name
from podslice.kernel.text import split_words
from podslice.model.codec import BYTES
from podslice.model.node import parse_cpus
from podslice.model.properties import (
    ALLOWED_CPUS,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    CPU_WEIGHT,
    MEMORY_LOW,
    MEMORY_MAX,
    PROPERTIES,
    QUOTA_PERIOD_USEC,
    TASKS_MAX,
    format_value,
)
from podslice.model.unit import (
    INFINITY,
    ObservedUnit,
    UnitKind,
    UnitName,
    Value,
    control_group_of,
    is_unit_name,
    parent_slice,
)

SANDBOX = "(sandbox)"
"""Stands for the name of a container in the scope of a pod's sandbox."""
_CPUS = "cpuset.cpus"
_PERIODIC_HINT = "the kubelet sets it once a minute: repeat the audit after a minute"
_NODE_HINT = "the kubelet sets it when it starts: restart the kubelet"
_POD_HINT = "delete the pod, so that it starts again"
_OF_RUNTIME = re.compile(r"(cri-containerd|crio|crio-conmon|docker)-[0-9a-f]+\.scope")
"""The scopes of container runtimes in the slice of a pod. Source: see `pod_list`."""
_PASSING_SEC = 1.0
"""How long a group may remain after its unit, and a process of a runtime before its container."""
_NO_LEVEL = (FindingKind.POD_LEVEL_IGNORED, FindingKind.POD_LEVEL_REJECTED)
_LEVEL = (FindingKind.POD_LEVEL_APPLIED, FindingKind.POD_LEVEL_BY_KUBELET)
_LIMITS = (CPU_QUOTA, MEMORY_MAX, TASKS_MAX)
_RESIZED = (CPU_QUOTA, CPU_QUOTA_PERIOD, CPU_WEIGHT, MEMORY_MAX)
_QUOTA_STEP_USEC = 10_000
_SECOND_USEC = 1_000_000
_MESSAGES: Mapping[FindingKind, str] = {
    FindingKind.LIMIT_MISSING: "{key} is not set, expected is {expected}: the limit does not apply",
    FindingKind.VALUE_CHANGED: "{key} is {actual}, expected is {expected}",
    FindingKind.FILE_CHANGED: "the kernel has {kernel} for {key}, systemd has {expected} as"
    " expected: the file was written directly",
    FindingKind.FILE_ONLY: "systemd has {actual} for {key}, the kernel has {kernel} as expected:"
    " the next daemon-reload may replace it",
    FindingKind.OLDER_CONFIGURATION: "{key} is {actual}, the current configuration gives {expected}: the"
    " pod is older than the configuration, and keeps the value until it starts again",
    FindingKind.RUNTIME_WEIGHT: "{key} is {actual}, and {expected} by the curve of runc 1.3: the"
    " container runtime computes it linearly",
    FindingKind.POD_LEVEL_APPLIED: "{key} is {actual} by the pod level, which podslice's agent"
    " applies; by the containers it is {expected}",
    FindingKind.POD_LEVEL_BY_KUBELET: "{key} is {actual} by the pod level, and podslice has not set"
    " it: the kubelet applies spec.resources, other than its version and its feature gates state",
    FindingKind.RESIZING: "{key} is {actual}, expected is {expected}: the pod is being resized",
}


class KubeletHost(NamedTuple):
    """The node of an audit: its units and control groups, and what podslice has set on it."""

    observed: Mapping[UnitName, ObservedUnit]
    """The units of `unit_patterns`."""
    cgroups: CgroupFs
    """The kernel's values; with cgroup v1 they are not compared."""
    own: LevelValues
    """The values of pod levels that an agent of podslice has set."""
    root: Path = Path("/")
    """The root directory of the host, whose /proc has the processes."""
    page_size: int = 4096
    """In bytes; the kernel rounds memory limits down to it."""
    pause: Callable[[float], None] = time.sleep
    """Waits for some seconds."""


def unit_patterns(expected: ExpectedNode, cgroups: CgroupFs) -> tuple[str, ...]:
    """Return globs for every unit that an audit compares, and for all others below the root."""
    below = f"{expected.root.removesuffix(f'.{UnitKind.SLICE}')}-*.{UnitKind.SLICE}"
    names = (
        *(unit.name for unit in expected.units),
        *(name for _, name in _groups(expected, cgroups) if is_unit_name(name)),
    )
    return (below, *(each for each in dict.fromkeys(names) if not fnmatchcase(each, below)))


def _groups(expected: ExpectedNode, cgroups: CgroupFs) -> Iterator[tuple[ExpectedUnit, str]]:
    """Yield the names of all control groups below the slices of the kubelet, each with its slice."""
    for unit in expected.units:
        group = unit.control_group
        is_below = group.startswith(f"{control_group_of(expected.root)}/")
        if unit.container is None and (is_below or unit.name == expected.root):
            for name in cgroups.children(group) if cgroups.is_v2 else ():
                yield unit, name


def audit_units(expected: ExpectedNode, host: KubeletHost, settings: KubeletSettings) -> NodeAudit:
    """Compare every expected unit of a node, and return all findings."""
    return _Audit(expected, host, settings).run()


class _Audit:
    """The comparison of a node with what is expected of it."""

    def __init__(
        self, expected: ExpectedNode, host: KubeletHost, settings: KubeletSettings
    ) -> None:
        self._expected, self._host, self._settings = expected, host, settings
        self._known = {unit.name for unit in expected.units}
        active = (each for each in host.observed.items() if each[1].active_state != "inactive")
        self._present = dict(active)
        self._groups = list(_groups(expected, host.cgroups))

    def run(self) -> NodeAudit:
        """Compare the units, then look for what is not the kubelet's."""
        expected = self._expected
        if expected.root not in self._present:
            drivers = [each for each in expected.findings if each.kind is FindingKind.CGROUP_DRIVER]
            message = "the slice does not exist"
            hint = (
                "the kubelet has another cgroupRoot, does not use the systemd driver, or has never"
                " run"
            )
            no_root = AuditFinding(FindingKind.UNIT_MISSING, expected.root, message, hint)
            return NodeAudit(units=(), findings=(*drivers, no_root))
        units, findings = [], list(expected.findings)
        # parents come before children, so that findings begin with the slices
        for unit in self._with_sandboxes():
            audited, found = self._audit_unit(unit)
            units.append(audited)
            findings += found
        # pod levels that are applied as a whole are not ignored
        applied = {_pod_of(unit.expected) for unit in units if _has_level(unit)}
        findings = [
            each for each in findings if each.kind not in _NO_LEVEL or each.pod not in applied
        ]
        findings += self._root_cpus()
        findings += self._orphans()
        findings += self._strays(units)
        findings.sort(key=lambda each: each.kind.is_known)
        return NodeAudit(units=tuple(units), findings=tuple(findings))

    def _with_sandboxes(self) -> Iterator[ExpectedUnit]:
        """Yield all units, after each pod's slice the only scope in it that the status does not name.

        While a container is replaced there are two, and none is compared. Only containerd's values are
        known, and only for its default runtime.
        """
        unlisted: dict[UnitName, list[UnitName]] = {}
        for slice_, name in self._groups:
            is_scope = name.startswith(CONTAINERD) and _OF_RUNTIME.fullmatch(name)
            pod = slice_.pod
            if is_scope and pod and not pod.has_runtime_class and name not in pod.scopes.values():
                unlisted.setdefault(slice_.name, []).append(UnitName(name))
        for unit in self._expected.units:
            yield unit
            scopes = unlisted.get(unit.name, ())
            if len(scopes) == 1 and scopes[0] in self._present:
                yield ExpectedUnit(
                    name=scopes[0],
                    control_group=f"{unit.control_group}/{scopes[0]}",
                    pod=unit.pod,
                    container=SANDBOX,
                    values=self._expected.sandbox,
                )

    def _audit_unit(self, unit: ExpectedUnit) -> tuple[AuditedUnit, list[AuditFinding]]:
        """Compare a unit, and return its findings."""
        found, cgroups = self._present.get(unit.name), self._host.cgroups
        if found is None:
            missing = [_missing(unit)] if unit.is_required else []
            return AuditedUnit(expected=unit, exists=False), missing
        parent = unit.control_group.rpartition("/")[0]
        if unit.container is not None and not found.control_group.startswith(f"{parent}/"):
            where = found.control_group or "/"
            message = f"container {unit.container} runs in {where}, outside of its pod"
            hint = f"the pod's limits do not apply to it: {_POD_HINT}"
            outside = _finding(unit, FindingKind.CONTAINER_OUTSIDE, message, hint)
            return AuditedUnit(expected=unit, exists=True), [outside]
        group = found.control_group or unit.control_group
        kernel = read_values(cgroups, group, [each.name for each in unit.values])
        values = [
            self._audit_value(each, unit, found, kernel.get(each.name)) for each in unit.values
        ]
        findings = []
        for each in values:
            if each.kind is not None:
                message = _MESSAGES[each.kind].format(**_texts(each))
                directory = cgroups.directory(group)
                hint = "" if each.kind.is_known else _hint(unit, each.expected, directory)
                findings.append(_finding(unit, each.kind, message, hint, each.expected.name))
        findings += _exclusive_cpus(unit, found.properties.get(ALLOWED_CPUS), kernel)
        return AuditedUnit(expected=unit, exists=True, values=tuple(values)), findings

    def _audit_value(
        self, expected: ExpectedValue, unit: ExpectedUnit, found: ObservedUnit, kernel: str | None
    ) -> AuditedValue:
        """Compare a value with systemd and the kernel, and find the kind of its finding."""
        name = expected.name
        if name not in PROPERTIES:
            is_right = kernel in {None, expected.value, expected.also}
            kind = None if is_right else FindingKind.VALUE_CHANGED
            return AuditedValue(expected=expected, kernel=kernel, kind=kind)
        systemd = found.properties.get(name)
        kind = self._kind(expected, unit, systemd, kernel)
        is_level = systemd is not None and systemd == expected.pod_level
        if kind is not None and is_level and self._is_in_kernel(name, systemd, kernel):
            if self._host.own.get(unit.name, {}).get(name) == systemd:
                kind = FindingKind.POD_LEVEL_APPLIED
            elif unit.pod and not unit.pod.has_own_level and rejects_pod_level(self._settings):
                kind = FindingKind.POD_LEVEL_BY_KUBELET
        return AuditedValue(expected=expected, systemd=systemd, kernel=kernel, kind=kind)

    def _is_in_kernel(self, name: str, value: Value | None, kernel: str | None) -> bool:
        """Return whether the kernel has a value, as far as that is known."""
        return kernel is None or is_in_kernel(name, value, kernel, self._host.page_size)

    def _kind(
        self,
        expected: ExpectedValue,
        unit: ExpectedUnit,
        systemd: Value | None,
        kernel: str | None,
    ) -> FindingKind | None:
        """Return the kind of finding of a property; None where both values are right."""
        name = expected.name
        is_same = _effective(name, systemd) == _effective(name, expected.value)
        in_systemd = systemd is None or is_same
        in_kernel = self._is_in_kernel(name, expected.value, kernel)
        if in_kernel and (in_systemd or systemd == expected.also):
            return None
        # known behaviour explains a value only where systemd and the kernel agree on it
        if systemd is None or self._is_in_kernel(name, systemd, kernel):
            known = self._known_kind(expected, unit, systemd)
            if known is not None:
                return known
        # the one side that is as expected shows on which side the value was changed
        if in_systemd and systemd is not None:
            return FindingKind.FILE_CHANGED
        if in_kernel and kernel is not None:
            return FindingKind.FILE_ONLY
        is_unset = systemd is None or systemd == PROPERTIES[name].unset
        is_unlimited = kernel is None or split_words(kernel)[0] == "max"
        is_missing = name in _LIMITS and expected.value is not None and is_unset and is_unlimited
        return FindingKind.LIMIT_MISSING if is_missing else FindingKind.VALUE_CHANGED

    def _known_kind(
        self, expected: ExpectedValue, unit: ExpectedUnit, systemd: Value | None
    ) -> FindingKind | None:
        """Return the known behaviour that explains the value of systemd; None if there is none."""
        if systemd is not None and systemd == expected.other:
            return FindingKind.RUNTIME_WEIGHT
        pod = unit.pod
        if pod is None:
            return None
        if pod.is_resizing and expected.name in _RESIZED:
            return FindingKind.RESIZING
        started, changed = pod.started_sec, self._settings.changed_sec
        is_older = started is not None and changed is not None and started < changed
        older = expected.older
        if is_older and (older is None or _effective(expected.name, systemd) in older):
            return FindingKind.OLDER_CONFIGURATION
        return None

    def _root_cpus(self) -> Iterator[AuditFinding]:
        """Yield the finding about the CPUs of the root.

        Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go, getCgroupConfig: all CPUs
        at the kubelet's start, so that systemd enables the controller.
        """
        expected = self._expected
        group = control_group_of(expected.root)
        text = self._host.cgroups.files(group, [_CPUS]).get(_CPUS, "")
        if not text:
            return
        count = len(parse_cpus(text))
        if count < expected.cpus:
            kind, hint = FindingKind.CPUS_MISSING, _NODE_HINT
            message = f"the pods may use {count} of {expected.cpus} CPUs ({text})"
        else:
            kind, hint = FindingKind.ROOT_CPUS, ""
            message = (
                f"it is limited to CPUs {text}, all that the node had when the kubelet started;"
                " a CPU that is added later is not used before the next start"
            )
        yield AuditFinding(kind, expected.root, message, hint, property=_CPUS)

    def _orphans(self) -> Iterator[AuditFinding]:
        """Yield the slices of pods that the kubelet does not have."""
        for name, unit in sorted(self._present.items()):
            if name not in self._known and self._is_pod_slice(name):
                why = self._expected.terminated.get(name, "the kubelet has no pod with this slice")
                message = f"{why}; the slice has {unit.tasks} tasks"
                hint = (
                    f"the kubelet removes it within seconds; if it remains: systemctl stop {name}"
                )
                yield AuditFinding(FindingKind.UNIT_ORPHANED, name, message, hint)

    def _is_pod_slice(self, name: UnitName) -> bool:
        last = name.rpartition("-")[2]
        is_slice = name.endswith(f".{UnitKind.SLICE}")
        return is_slice and last.startswith("pod") and parent_slice(name) in self._known

    def _strays(self, units: Iterable[AuditedUnit]) -> Iterator[AuditFinding]:
        """Yield what is below the root and not the kubelet's: units, control groups, processes."""
        groups = [
            (slice_, name)
            for slice_, name in self._groups
            if name not in self._known and not self._is_of_kubelet(slice_, name)
        ]
        scopes = [each.expected for each in units if each.exists and each.expected.container]
        processes = [(unit, pid) for unit in scopes for pid in self._host_processes(unit)]
        if groups or processes:
            # a group may remain after its unit, and a process of a runtime before its container
            self._host.pause(_PASSING_SEC)
        for slice_, name in groups:
            group = f"{slice_.control_group}/{name}"
            if self._host.cgroups.exists(group):
                yield self._stray_group(slice_, name, group)
        for unit, pid in processes:
            if pid in self._host_processes(unit):
                message = (
                    f"process {pid} ({process_name(pid, self._host.root)}) is one of the host, in the"
                    f" scope of container {unit.container}"
                )
                hint = f"it uses what the container may use; stop it: kill {pid}"
                yield _finding(unit, FindingKind.PROCESS_STRAY, message, hint)

    def _is_of_kubelet(self, slice_: ExpectedUnit, name: str) -> bool:
        """Return whether a group in a slice may be a pod's, or in the slice of a pod a container's.

        An orphaned pod is a separate finding. A runtime with virtual machines has further groups.
        """
        if slice_.pod is None:
            return self._is_pod_slice(UnitName(name))
        return slice_.pod.has_runtime_class or bool(_OF_RUNTIME.fullmatch(name))

    def _stray_group(self, slice_: ExpectedUnit, name: str, group: str) -> AuditFinding:
        unit = self._present.get(UnitName(name))
        what = f"the kubelet has not created it; it is in {slice_.name}"
        hint = f"stop it, or place it elsewhere (Slice=): systemctl stop {quote(name)}"
        if unit is None:
            what = f"the control group {printable(group)} has no unit, and is not the kubelet's"
            directory = quote(str(self._host.cgroups.directory(group)))
            hint = (
                f"find its processes: cat {directory}/cgroup.procs; once it is empty: rmdir"
                f" {directory}"
            )
        elif (weight := unit.properties.get(CPU_WEIGHT, INFINITY)) != INFINITY:
            what += f", with CPUWeight={weight}"
        return AuditFinding(FindingKind.UNIT_STRAY, printable(name), what, hint, _pod_of(slice_))

    def _host_processes(self, unit: ExpectedUnit) -> list[int]:
        """Return the processes in a scope that are outside of any container."""
        if unit.pod is None or unit.pod.has_runtime_class:
            return []
        pids = chain.from_iterable(self._host.cgroups.processes(unit.control_group).values())
        return [pid for pid in pids if has_mounts_of_host(pid, self._host.root)]


def _has_level(unit: AuditedUnit) -> bool:
    """Return whether systemd has the values of the pod level, with or without the protection.

    A kubelet does not protect memory.
    """
    levels = [each for each in unit.values if each.expected.pod_level is not None]
    return any(each.kind in _LEVEL for each in levels) and all(
        each.systemd == each.expected.pod_level
        for each in levels
        if each.expected.name != MEMORY_LOW
    )


def _exclusive_cpus(
    unit: ExpectedUnit, systemd: Value | None, kernel: Mapping[str, str]
) -> Iterator[AuditFinding]:
    """Yield the finding about a container that may use more or fewer CPUs than it has for itself.

    Source: Kubernetes, pkg/kubelet/cm/internal_container_lifecycle_linux.go, PreCreateContainer: the
    container starts with them.
    """
    texts = [str(each) for each in (systemd, kernel.get(ALLOWED_CPUS)) if each is not None]
    wrong = [text for text in texts if len(parse_cpus(text)) != unit.exclusive_cpus]
    if unit.exclusive_cpus and wrong:
        message = (
            f"AllowedCPUs is {wrong[0] or 'unset'}, and the container has"
            f" {unit.exclusive_cpus} CPU{'' if unit.exclusive_cpus == 1 else 's'} for itself"
        )
        yield _finding(unit, FindingKind.VALUE_CHANGED, message, _POD_HINT, ALLOWED_CPUS)


def _missing(unit: ExpectedUnit) -> AuditFinding:
    if unit.container is not None:
        message = f"running container {unit.container} has no scope of this name in its pod"
        hint = (
            "repeat the audit, in case it was restarted meanwhile; if it remains: the container"
            " runtime must use systemd's driver, as the kubelet does"
        )
        return _finding(unit, FindingKind.CONTAINER_OUTSIDE, message, hint)
    hint = "the kubelet does not start without it: create the slice"
    if unit.pod is not None:
        hint = "the kubelet creates it when it starts the pod: see its log"
    return _finding(unit, FindingKind.UNIT_MISSING, "the slice does not exist", hint)


def _pod_of(unit: ExpectedUnit) -> str | None:
    return unit.pod.pod.key if unit.pod else None


def _finding(
    unit: ExpectedUnit, kind: FindingKind, message: str, hint: str, property_: str | None = None
) -> AuditFinding:
    return AuditFinding(kind, unit.name, message, hint, _pod_of(unit), property_)


def _texts(found: AuditedValue) -> Mapping[str, str]:
    name = found.expected.name
    if name not in PROPERTIES:
        value = str(found.expected.value)
        return {"key": name, "actual": str(found.kernel), "expected": value, "kernel": ""}
    return {
        "key": PROPERTIES[name].key,
        "actual": format_value(name, found.systemd),
        "expected": format_value(name, found.expected.value),
        "kernel": str(found.kernel),
    }


def _hint(unit: ExpectedUnit, expected: ExpectedValue, directory: Path) -> str:
    """Return who sets the value again, and how."""
    if unit.pod is None and expected.is_periodic:
        return _PERIODIC_HINT
    if unit.pod is None and expected.has_source:
        return _NODE_HINT
    if expected.name in PROPERTIES:
        row = PROPERTIES[expected.name]
        value = row.unset if expected.value is None else expected.value
        text = "" if value in (None, "", INFINITY) else row.format(value)
        command = f"systemctl set-property --runtime {unit.name} {row.key}={text}"
    else:
        command = f"echo {expected.value} > {directory}/{expected.name}"
    if unit.pod is None:
        return f"the kubelet does not set it: {command}"
    if unit.container is not None and expected.name in PROPERTIES:
        return _POD_HINT  # systemd would also reset what the runtime wrote to files
    return f"{_POD_HINT}; or until then: {command}"


def read_values(cgroups: CgroupFs, group: str, names: Iterable[str]) -> Mapping[str, str]:
    """Return the kernel's text for properties and files; nothing with cgroup v1."""
    if not cgroups.is_v2:
        return {}
    limits = dict(cgroups.limits(group))
    # cpu.max is "$MAX $PERIOD": one file for two properties
    if CPU_QUOTA in limits:
        limits[CPU_QUOTA_PERIOD] = limits[CPU_QUOTA]  # one file has both
    return {**limits, **cgroups.files(group, [name for name in names if name not in PROPERTIES])}


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
        number = number // page_size * page_size  # the kernel counts whole pages
    return kernel == ("max" if number == INFINITY else str(number))


def _is_quota(value: Value | None, kernel: str) -> bool:
    """Return whether `cpu.max` has a quota: exactly as the kubelet writes it, or as systemd rounds it.

    The property is rounded up to what systemd's drop-ins keep; libcontainer writes the file itself,
    and the next daemon-reload writes the rounded one.
    """
    quota, _, period = kernel.partition(" ")
    if value in (None, INFINITY) or not (quota.isdigit() and period.isdigit()):
        return quota == "max" and value in (None, INFINITY)
    # systemd keeps the quota for one second, in steps of 1 % of a CPU
    # µs per period × periods per second, rounded up as the property is.
    per_sec = -(-int(quota) * _SECOND_USEC // int(period))
    return -(-per_sec // _QUOTA_STEP_USEC) * _QUOTA_STEP_USEC == value
