"""The reports of `status` and `tree`, which JSON has: units, processes, pods and problems. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from podslice.cli.report import AmountsEntry, ConfigurationEntry, Setting, amounts_entry
from podslice.cli.views.changes import (
    AnyStepEntry,
    ForeignEntry,
    ReservedSliceEntry,
    step_entry,
)
from podslice.cli.views.pod_report import (
    ExitEntry,
    PodReport,
    exit_entry,
)
from podslice.errors import Problem, Severity, printable
from podslice.kernel.cgroup import Usage
from podslice.model.desired import PendingTrial, TrialState
from podslice.model.node_state import Condition, Eviction, JobState, PendingPod
from podslice.model.unit import UnitKind, UnitName
from podslice.reconcile.assess import Assessment
from podslice.usage.health import HealthKind, HealthProblem
from podslice.usage.location import Located, Placement, Running
from podslice.usage.unit_status import HOLDS_PROCESSES, PodFacts, UnitStatus


@dataclass(frozen=True, kw_only=True)
class PropertyStateEntry:
    """The desired value of a property, systemd's and the kernel's; null where there is none."""

    name: str
    desired: Setting | None
    systemd: Setting | None
    kernel: str | None


@dataclass(frozen=True, kw_only=True)
class UnitEntry:
    """A unit, with its values and usage."""

    name: UnitName
    kind: UnitKind
    pod: str | None
    qos_class: str | None
    state: str
    control_group: str
    differs: bool
    properties: tuple[PropertyStateEntry, ...]
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class PodSliceEntry(UnitEntry):
    """The slice of a pod, with what is counted of the pod."""

    containers: int
    containers_ready: int
    restarts: int
    started_usec: int | None
    requests: AmountsEntry
    limits: AmountsEntry


@dataclass(frozen=True, kw_only=True)
class ContainerEntry(UnitEntry):
    """The unit of a container."""

    container: str
    processes: tuple[Running, ...]
    restarts: int
    last_exit: ExitEntry | None


@dataclass(frozen=True, kw_only=True)
class OtherEntry:
    """A unit in the slice of a pod that podslice does not manage."""

    unit: str
    pod: str
    container: str | None
    runtime: str | None
    restarts: int
    processes: tuple[Running, ...]


@dataclass(frozen=True, kw_only=True)
class StrayEntry:
    """A process of a pod that runs outside of its slice."""

    pod: str | None
    container: str | None
    what: str
    found_by: str
    pid: int | None
    name: str | None
    control_group: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class HealthEntry:
    """A problem, with its remedy.

    `pod` is the pod that the problem affects, and `command` the podslice command among the remedies
    that ends it.
    """

    kind: HealthKind
    object: str
    message: str
    hint: str
    pod: str | None
    command: tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class WarningEntry:
    """A warning of a manifest."""

    where: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class PendingEntry:
    """A pod that is wanted and does not run as its manifest states."""

    pod: str
    qos_class: str | None
    reason: str
    message: str
    hint: str
    condition: Condition | None
    manifest: str | None
    is_applied: bool


@dataclass(frozen=True, kw_only=True)
class TrialPropertyEntry:
    """An unconfirmed value of a reserved slice."""

    name: str
    old: Setting | None
    new: Setting | None


@dataclass(frozen=True, kw_only=True)
class TrialUnitEntry:
    """The unconfirmed values of a reserved slice."""

    unit: UnitName
    properties: tuple[TrialPropertyEntry, ...]


@dataclass(frozen=True, kw_only=True)
class TrialEntry:
    """The unconfirmed values of reserved slices."""

    state: TrialState
    remaining_sec: int
    units: tuple[TrialUnitEntry, ...]


@dataclass(frozen=True, kw_only=True)
class StatusReport:
    """The state of all units and pods, and all problems."""

    configuration: ConfigurationEntry | None = None
    healthy: bool
    problems: tuple[HealthEntry, ...]
    warnings: tuple[WarningEntry, ...]
    in_sync: bool
    units: tuple[UnitEntry | PodSliceEntry | ContainerEntry, ...]
    others: tuple[OtherEntry, ...]
    strays: tuple[StrayEntry, ...]
    orphans: tuple[UnitName, ...]
    evicted: tuple[Eviction, ...]
    agent_pid: int | None
    conditions: tuple[Condition, ...]
    terminating: tuple[str, ...]
    steps: tuple[AnyStepEntry, ...]
    pending: tuple[PendingEntry, ...]
    foreign: ForeignEntry | None = None
    reserved_slices: tuple[ReservedSliceEntry, ...] = ()
    unconfirmed: TrialEntry | None = None
    jobs: tuple[JobState, ...] = ()
    pod: PodReport | None = None
    """The page of a pod, if exactly one is shown."""


@dataclass(frozen=True, kw_only=True)
class LocatedEntry:
    """A process, with its pod and unit."""

    pid: int
    name: str
    pod: str | None
    container: str | None
    unit: str | None
    control_group: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class LocatedReport:
    """The pods of processes."""

    configuration: ConfigurationEntry | None = None
    processes: tuple[LocatedEntry, ...]


AnyStatusReport = StatusReport | LocatedReport


def unit_entries(
    units: Iterable[UnitStatus], placement: Placement, facts: Mapping[str, PodFacts]
) -> tuple[UnitEntry | PodSliceEntry | ContainerEntry, ...]:
    """Return units with their values and usage, containers with their processes."""
    return tuple(_unit_entry(unit, placement, facts) for unit in units)


def _unit_entry(
    unit: UnitStatus, placement: Placement, facts: Mapping[str, PodFacts]
) -> UnitEntry | PodSliceEntry | ContainerEntry:
    properties = (
        PropertyStateEntry(
            name=each.name, desired=each.desired, systemd=each.systemd, kernel=each.kernel
        )
        for each in unit.properties
    )
    common: dict[str, Any] = {
        "name": unit.name,
        "kind": unit.kind,
        "pod": unit.pod,
        "qos_class": unit.qos or None,
        "state": unit.state,
        "control_group": unit.control_group,
        "differs": unit.differs,
        "properties": tuple(properties),
        "usage": unit.usage,
    }
    if unit.kind in HOLDS_PROCESSES:
        return ContainerEntry(
            **common,
            container=unit.label,
            processes=tuple(placement.held.get(unit.name, ())),
            restarts=unit.restarts,
            last_exit=exit_entry(unit.last_exit),
        )
    found = facts.get(unit.pod or "") if unit.kind is UnitKind.SLICE else None
    if found is None:
        return UnitEntry(**common)
    return PodSliceEntry(
        **common,
        containers=found.containers,
        containers_ready=found.ready,
        restarts=found.restarts,
        started_usec=found.started_usec or None,
        requests=amounts_entry(found.requests),
        limits=amounts_entry(found.limits),
    )


def state_fields(state: Assessment, placement: Placement) -> dict[str, Any]:
    """Return the fields of the report about differences, strays and the agent."""
    agent = state.agent
    others = (
        OtherEntry(
            unit=printable(each.unit),
            pod=each.pod,
            container=each.container,
            runtime=each.runtime,
            restarts=each.restarts,
            processes=tuple(each.processes),
        )
        for each in placement.others
    )
    strays = (
        StrayEntry(
            pod=stray.pod,
            container=stray.container,
            what=printable(stray.what),
            found_by=stray.found_by,
            pid=process.pid if process else None,
            name=process.name if process else None,
            control_group=printable(stray.control_group),
            hint=stray.hint,
        )
        for stray in placement.strays
        for process in stray.processes or (None,)
    )
    return {
        "in_sync": not state.plan and not state.broken_records,
        "others": tuple(others),
        "strays": tuple(strays),
        "orphans": tuple(state.orphans),
        "evicted": tuple(state.evicted),
        "agent_pid": agent and agent.pid,
        "conditions": tuple(agent.conditions) if agent else (),
        "terminating": tuple(map(printable, agent.terminating)) if agent else (),
        "steps": tuple(map(step_entry, state.plan.steps)),
    }


def health_entries(problems: Iterable[HealthProblem]) -> tuple[HealthEntry, ...]:
    """Return the problems as the document has them."""
    return tuple(
        HealthEntry(
            kind=each.kind,
            object=printable(each.object),
            message=each.message,
            hint=each.hint,
            pod=each.pod,
            command=each.command or None,
        )
        for each in problems
    )


def warning_entries(of_manifests: Iterable[Problem]) -> tuple[WarningEntry, ...]:
    """Return the warnings of manifests."""
    return tuple(
        WarningEntry(where=each.where, message=each.message, hint=each.hint)
        for each in of_manifests
        if each.severity is Severity.WARNING
    )


def pending_entries(found: Iterable[PendingPod]) -> tuple[PendingEntry, ...]:
    """Return the pods that are wanted and do not run as their manifests state."""
    return tuple(
        PendingEntry(
            pod=each.pod,
            qos_class=each.qos or None,
            reason=each.reason,
            message=each.message,
            hint=each.hint,
            condition=each.condition,
            manifest=each.source,
            is_applied=each.is_applied,
        )
        for each in found
    )


def trial_entry(pending: PendingTrial | None) -> TrialEntry | None:
    """Return the unconfirmed values of reserved slices; None if there are none."""
    if pending is None:
        return None
    new = pending.values.new
    units = (
        TrialUnitEntry(
            unit=unit,
            properties=tuple(
                TrialPropertyEntry(name=name, old=old, new=new.get(unit, {}).get(name))
                for name, old in sorted(values.items())
            ),
        )
        for unit, values in sorted(pending.values.old.items())
    )
    return TrialEntry(state=pending.state, remaining_sec=pending.remaining_sec, units=tuple(units))


def located_entries(found: Iterable[Located]) -> tuple[LocatedEntry, ...]:
    """Return processes with their pods and units."""
    return tuple(
        LocatedEntry(
            pid=each.pid,
            name=each.name,
            pod=each.home and each.home.pod,
            container=each.home and each.home.container,
            unit=each.home and printable(each.home.unit),
            control_group=printable(each.control_group),
            hint=each.hint,
        )
        for each in found
    )
