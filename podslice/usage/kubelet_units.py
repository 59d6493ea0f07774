"""Compare the units of a kubelet with the expected values; it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from podslice.kernel.cgroup import CgroupFs
from podslice.model.cpu_list import parse_cpus
from podslice.model.kubelet_node import (
    AuditedUnit,
    AuditedValue,
    AuditFinding,
    ExpectedNode,
    ExpectedUnit,
    FindingKind,
    KubeletSettings,
    NodeAudit,
)
from podslice.model.properties import PROPERTIES, format_value
from podslice.model.unit import ObservedUnit, UnitKind, UnitName, control_group_of, parent_slice
from podslice.usage.kubelet_comparison import audit_value, read_values

_CPUS = "cpuset.cpus"
_TIER_HINT = "the kubelet sets it once a minute: repeat the audit after a minute"
_NODE_HINT = "the kubelet sets it when it starts: restart the kubelet"


def audit_units(
    expected: ExpectedNode,
    observed: Mapping[UnitName, ObservedUnit],
    cgroups: CgroupFs,
    settings: KubeletSettings,
    *,
    page_size: int = 4096,
) -> NodeAudit:
    """Return every expected unit as it is, and all findings.

    Args:
        expected: the units of the node.
        observed: the loaded slices below the root, the scopes of containers, the reserved slices.
        cgroups: where the kernel's values are read; those of cgroup v1 are not compared.
        settings: the kubelet's configuration.
        page_size: of the node's memory, in bytes; the kernel rounds memory limits down to it.
    """
    present = {name: unit for name, unit in observed.items() if unit.active_state != "inactive"}
    if expected.root not in present:
        return NodeAudit(units=(), findings=(_no_root(expected.root),))
    units, findings = [], list(expected.findings)
    for unit in expected.units:
        audited, found = _audit_unit(unit, expected, present, cgroups, settings, page_size)
        units.append(audited)
        findings += found
    findings = _without_applied(findings, units)
    findings += _root_cpus(expected, cgroups)
    findings += _orphans(expected, present)
    return NodeAudit(
        units=tuple(units),
        findings=tuple(sorted(findings, key=lambda each: each.kind.is_known)),
    )


def _without_applied(findings: list[AuditFinding], units: list[AuditedUnit]) -> list[AuditFinding]:
    """Return the findings without those of pod levels that podslice's agent applies as a whole."""
    applied = {_pod_of(unit.expected) for unit in units if _has_level(unit)}
    return [
        each
        for each in findings
        if each.kind is not FindingKind.POD_LEVEL_IGNORED or each.pod not in applied
    ]


def _has_level(unit: AuditedUnit) -> bool:
    """Return whether systemd has every value of the pod level."""
    levels = [each for each in unit.values if each.expected.pod_level is not None]
    return bool(levels) and all(each.systemd == each.expected.pod_level for each in levels)


def unit_patterns(expected: ExpectedNode) -> tuple[str, ...]:
    """Return globs for every unit that an audit compares, and for orphaned slices."""
    below = f"{expected.root.removesuffix(f'.{UnitKind.SLICE}')}-*.{UnitKind.SLICE}"
    return (below, *(unit.name for unit in expected.units if not fnmatchcase(unit.name, below)))


def _no_root(root: UnitName) -> AuditFinding:
    return AuditFinding(
        kind=FindingKind.UNIT_MISSING,
        object=root,
        message="the slice does not exist",
        hint="the kubelet has another cgroupRoot, does not use the systemd driver, or has never run",
    )


def _audit_unit(
    unit: ExpectedUnit,
    expected: ExpectedNode,
    present: Mapping[UnitName, ObservedUnit],
    cgroups: CgroupFs,
    settings: KubeletSettings,
    page_size: int,
) -> tuple[AuditedUnit, list[AuditFinding]]:
    found = present.get(unit.name)
    if found is None:
        missing = [_missing(unit)] if unit.is_required else []
        return AuditedUnit(expected=unit, exists=False), missing
    parent = unit.control_group.rpartition("/")[0]
    if unit.container is not None and not found.control_group.startswith(f"{parent}/"):
        return AuditedUnit(expected=unit, exists=True), [_outside(unit, found.control_group)]
    group = found.control_group or unit.control_group
    kernel = read_values(cgroups, group, [each.name for each in unit.values])
    values = tuple(
        audit_value(each, unit, found, kernel.get(each.name), settings, page_size=page_size)
        for each in unit.values
    )
    findings = [_finding(unit, each, each.kind, expected) for each in values if each.kind]
    return AuditedUnit(expected=unit, exists=True, values=values), findings


def _missing(unit: ExpectedUnit) -> AuditFinding:
    if unit.container is not None:
        return AuditFinding(
            kind=FindingKind.CONTAINER_OUTSIDE,
            object=unit.name,
            pod=_pod_of(unit),
            message=f"running container {unit.container} has no scope of this name in its pod",
            hint="repeat the audit, in case it was restarted meanwhile; if it remains: the container"
            " runtime must use systemd's driver, as the kubelet does",
        )
    hint = "the kubelet does not start without it: create the slice"
    if unit.pod is not None:
        hint = "the kubelet creates it when it starts the pod: see its log"
    return AuditFinding(
        kind=FindingKind.UNIT_MISSING,
        object=unit.name,
        pod=_pod_of(unit),
        message="the slice does not exist",
        hint=hint,
    )


def _outside(unit: ExpectedUnit, control_group: str) -> AuditFinding:
    return AuditFinding(
        kind=FindingKind.CONTAINER_OUTSIDE,
        object=unit.name,
        pod=_pod_of(unit),
        message=f"container {unit.container} runs in {control_group or '/'}, outside of its pod",
        hint="the pod's limits do not apply to it: delete the pod, so that it starts again",
    )


def _pod_of(unit: ExpectedUnit) -> str | None:
    return unit.pod.pod.key if unit.pod else None


def _finding(
    unit: ExpectedUnit, found: AuditedValue, kind: FindingKind, expected: ExpectedNode
) -> AuditFinding:
    name = found.expected.name
    return AuditFinding(
        kind=kind,
        object=unit.name,
        pod=_pod_of(unit),
        property=name,
        message=_MESSAGES[kind].format(**_texts(found)),
        hint="" if kind.is_known else _hint(unit, found, expected),
    )


_MESSAGES: Mapping[FindingKind, str] = {
    FindingKind.LIMIT_MISSING: "{key} is not set, expected is {expected}: the limit does not apply",
    FindingKind.VALUE_CHANGED: "{key} is {actual}, expected is {expected}",
    FindingKind.FILE_CHANGED: "the kernel has {kernel} for {key}, systemd has {expected} as"
    " expected: the file was written directly",
    FindingKind.FILE_ONLY: "systemd has {actual} for {key}, the kernel has {kernel} as expected:"
    " the next daemon-reload may replace it",
    FindingKind.OLDER_CONFIGURATION: "{key} is {actual}, now configured is {expected}: the pod is"
    " older than the configuration, and keeps the value until it starts again",
    FindingKind.RUNTIME_WEIGHT: "{key} is {actual}, and {expected} by the curve of runc 1.3: the"
    " container runtime computes it linearly",
    FindingKind.POD_LEVEL_APPLIED: "{key} is {actual} by the pod level, which podslice's agent"
    " applies; by the containers it is {expected}",
    FindingKind.RESIZING: "{key} is {actual}, expected is {expected}: the pod is being resized",
}


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


def _hint(unit: ExpectedUnit, found: AuditedValue, expected: ExpectedNode) -> str:
    """Return who sets the value again, and how."""
    if unit.pod is None:
        is_tier = parent_slice(unit.name) == expected.root
        return _TIER_HINT if is_tier else _NODE_HINT
    name = found.expected.name
    if name not in PROPERTIES:
        return "delete the pod, so that it starts again"
    value = found.expected.value
    text = "" if value is None else PROPERTIES[name].format(value)
    command = f"systemctl set-property --runtime {unit.name} {PROPERTIES[name].key}={text}"
    return f"delete the pod, so that it starts again; or until then: {command}"


def _root_cpus(expected: ExpectedNode, cgroups: CgroupFs) -> Iterator[AuditFinding]:
    """Yield the finding about the CPUs of the root.

    Source: Kubernetes, pkg/kubelet/cm/node_container_manager_linux.go, getCgroupConfig: all CPUs at
    the kubelet's start, so that systemd enables the controller.
    """
    group = control_group_of(expected.root)
    text = cgroups.files(group, [_CPUS]).get(_CPUS, "")
    if not text:
        return
    count = len(parse_cpus(text))
    if count < expected.cpus:
        yield AuditFinding(
            kind=FindingKind.CPUS_MISSING,
            object=expected.root,
            property=_CPUS,
            message=f"the pods may use {count} of {expected.cpus} CPUs ({text})",
            hint=_NODE_HINT,
        )
    else:
        yield AuditFinding(
            kind=FindingKind.ROOT_CPUS,
            object=expected.root,
            property=_CPUS,
            message=f"it is limited to CPUs {text}, all that the node had when the kubelet started;"
            " a CPU that is added later is not used before the next start",
        )


def _orphans(
    expected: ExpectedNode, present: Mapping[UnitName, ObservedUnit]
) -> Iterator[AuditFinding]:
    """Yield the slices of pods that the kubelet does not have."""
    known = {unit.name for unit in expected.units}
    for name, unit in sorted(present.items()):
        if name in known or not _is_pod_slice(name, known):
            continue
        why = expected.terminated.get(name, "the kubelet has no pod with this slice")
        yield AuditFinding(
            kind=FindingKind.UNIT_ORPHANED,
            object=name,
            message=f"{why}; the slice has {unit.tasks} tasks",
            hint=f"the kubelet removes it within seconds; if it remains: systemctl stop {name}",
        )


def _is_pod_slice(name: UnitName, known: set[UnitName]) -> bool:
    last = name.rpartition("-")[2]
    is_slice = name.endswith(f".{UnitKind.SLICE}")
    return is_slice and last.startswith("pod") and parent_slice(name) in known
