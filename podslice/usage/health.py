"""What is not as it should be: each problem with its object and its remedy. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from podslice.errors import Problem, Severity
from podslice.model.desired import Refusal
from podslice.model.kubelet import Foreign
from podslice.model.naming import podman_service
from podslice.model.node_state import AgentState, Condition, ContainerFailure, PendingPod
from podslice.model.properties import PARTITION, PROPERTIES, format_value
from podslice.model.unit import UnitName
from podslice.policy.pending_pods import EVICTED
from podslice.usage.failing_containers import FailingContainer, failing_containers
from podslice.usage.unit_status import (
    ELSEWHERE,
    MISSING,
    PropertyStatus,
    UnitStatus,
)

RESTARTS_MIN = 3
"""Restarts after which a container that is about to start again is a problem."""
AGENT = "podslice-agent"
"""The object of problems of the agent."""


class HealthKind(StrEnum):
    """A kind of problem."""

    CONFIGURATION = "invalid-configuration"
    FOREIGN_ROOT = "foreign-root"
    AGENT_STOPPED = "agent-stopped"
    AGENT_FAILED = "agent-failed"
    CONTAINERS = "containers-failed"
    CONDITION = "node-condition"
    MANIFEST = "invalid-manifest"
    EVICTED = "pod-evicted"
    PENDING = "pod-pending"
    UNWANTED = "pod-unwanted"
    """An applied pod whose manifest was removed."""
    STUCK = "pod-stuck"
    UNRECORDED = "pod-unrecorded"
    """A pod without a record, recovered from its slice."""
    MISSING = "unit-missing"
    DIFFERENT = "unit-differs"
    SHARED_CPUS = "cpus-shared"
    """An applied pod cannot have the CPUs that it claims for itself."""
    PARTITION = "partition-refused"
    FAILED = "container-failed"
    OOM_KILLED = "container-oom-killed"
    RESTARTING = "container-restarting"
    POD_RESTARTING = "pod-restarting"
    """A pod of quadlets that cannot be created."""
    STRAY = "processes-elsewhere"
    ORPHAN = "orphan"
    RECORD = "damaged-record"
    RESERVATION = "reservation-not-enforced"
    DROP_IN = "drop-in-outdated"
    """A service starts in another slice or with other limits than its pod has."""
    UNCONFIRMED = "values-not-confirmed"


class HealthProblem(NamedTuple):
    """One thing that is not as it should be."""

    kind: HealthKind
    object: str
    """`namespace/name`, a unit, a condition, the address in a file, or `node`."""
    message: str
    hint: str = ""
    pod: str | None = None
    """The pod that it affects; None where it affects the node, or a pod that is not known."""

    def __str__(self) -> str:
        """Return the object with the message: `pod default/web: pending: …`."""
        what = f"pod {self.object}" if self.object == self.pod else self.object
        return f"{what}: {self.message}" if what else self.message


class StoppedAgent(NamedTuple):
    """An agent that should run."""

    hint: str
    """How to start it."""
    directories: tuple[str, ...] = ()
    """The manifest directories with content."""
    has_failed: bool = False


class UnwantedPod(NamedTuple):
    """An applied pod whose manifest was removed."""

    pod: str
    source: str
    """The file that it was applied from."""


class RestartingPod(NamedTuple):
    """A pod whose service waits for another start."""

    pod: str
    restarts: int
    hint: str
    """The command that shows why."""


class OutdatedDropIn(NamedTuple):
    """The drop-in of an adopted service that no longer fits its pod."""

    pod: str
    unit: str
    path: str


class PlannedChange(NamedTuple):
    """A step that would make a unit what it should be."""

    unit: UnitName
    pod: str | None
    text: str
    """A sentence in the infinitive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """Everything that determines the health of a node and its pods."""

    configuration: tuple[Problem, ...] = ()
    """The problems of the configuration files, if another configuration replaces them."""
    foreign: Foreign | None = None
    agent: AgentState | None = None
    stopped_agent: StoppedAgent | None = None
    containers: tuple[ContainerFailure, ...] = ()
    """Why containers that the agent keeps do not run."""
    restarting: tuple[RestartingPod, ...] = ()
    failing: tuple[FailingContainer, ...] = ()
    """The containers of other programs in pods that have failed or restart."""
    flag: str = ""
    """The option that selects the service manager, after a space; empty for the system's."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifests of pods in the manifest directories, by the pods' keys."""
    started: Collection[str] = ()
    """The pods whose containers `apply --start` runs, by key."""
    drop_ins: tuple[OutdatedDropIn, ...] = ()
    manifests: tuple[Problem, ...] = ()
    """The problems of the manifest directories."""
    pending: tuple[PendingPod, ...] = ()
    unwanted: tuple[UnwantedPod, ...] = ()
    unrecorded: tuple[str, ...] = ()
    """The pods without a record."""
    lacking_cpus: tuple[Refusal, ...] = ()
    """The pods without the CPUs that they claim for themselves."""
    units: tuple[UnitStatus, ...] = ()
    changes: tuple[PlannedChange, ...] = ()
    """The steps of the plan."""
    strays: tuple[HealthProblem, ...] = ()
    orphans: tuple[UnitName, ...] = ()
    damaged_records: tuple[str, ...] = ()
    """Paths."""
    not_enforced: tuple[tuple[UnitName, str], ...] = ()
    """Reserved slices whose values cannot be set, and why."""
    unconfirmed: tuple[str, str] | None = None
    """The state of values whose trial has ended without a confirmation, and the remedy."""


def problems_of(facts: HealthFacts) -> tuple[HealthProblem, ...]:
    """Return everything that is not as it should be: of the node, of pods, then of units."""
    return tuple(
        dict.fromkeys(
            (
                *_of_configuration(facts),
                *_of_foreign(facts.foreign),
                *_of_agent(facts),
                *_of_containers(facts),
                *_of_manifests(facts.manifests),
                *_of_pods(facts),
                *_of_restarts(facts),
                *_of_drop_ins(facts),
                *_of_cpus(facts),
                # a kubelet owns the units below its root
                *(() if facts.foreign else _of_units(facts)),
                *facts.strays,
                *_of_records(facts),
            )
        )
    )


def problematic_pods(problems: Iterable[HealthProblem]) -> frozenset[str]:
    """Return the pods that problems affect."""
    return frozenset(each.pod for each in problems if each.pod is not None)


def _of_configuration(facts: HealthFacts) -> Iterator[HealthProblem]:
    for each in facts.configuration:
        if each.severity is Severity.ERROR:
            yield HealthProblem(
                kind=HealthKind.CONFIGURATION,
                object=each.where,
                message=each.message,
                hint=each.hint or f"after correcting it, run: podslice check{facts.flag}",
            )


def _of_foreign(foreign: Foreign | None) -> Iterator[HealthProblem]:
    if foreign is not None:
        message = f"{foreign.reason}; podslice changes nothing"
        yield HealthProblem(
            kind=HealthKind.FOREIGN_ROOT, object="node", message=message, hint=foreign.way_out
        )


def _of_agent(facts: HealthFacts) -> Iterator[HealthProblem]:
    if facts.stopped_agent is not None:
        stopped = facts.stopped_agent
        message = "it has failed" if stopped.has_failed else "it is not running"
        if stopped.directories:
            message += f"; changes in {', '.join(stopped.directories)} are not applied"
        yield HealthProblem(
            kind=HealthKind.AGENT_STOPPED, object=AGENT, message=message, hint=stopped.hint
        )
    if facts.agent is None:
        return
    for each in facts.agent.failures:
        yield HealthProblem(
            kind=HealthKind.AGENT_FAILED,
            object=AGENT,
            message=f"{each.where}: {each.message}" if each.where else each.message,
            hint=each.hint or f"see: podslice events{facts.flag}",
        )
    for condition in facts.agent.conditions:
        yield HealthProblem(
            kind=HealthKind.CONDITION,
            object=condition.value,
            message=_CONDITIONS[condition],
            hint=f"to see what uses it: podslice top{facts.flag}",
        )


def _of_containers(facts: HealthFacts) -> Iterator[HealthProblem]:
    for each in facts.containers:
        pod = each.pod
        yield HealthProblem(
            kind=HealthKind.CONTAINERS,
            object=pod or each.where or AGENT,
            message=each.message,
            hint=each.hint,
            pod=pod,
        )


def _of_restarts(facts: HealthFacts) -> Iterator[HealthProblem]:
    """Yield pods and containers that have failed, or that wait for another restart after several."""
    for pod in facts.restarting:
        if pod.restarts >= RESTARTS_MIN:
            message = f"podman cannot keep it active: {pod.restarts} restarts"
            yield _of_pod(HealthKind.POD_RESTARTING, pod.pod, message, pod.hint)
    reported = {each.unit for each in facts.containers}
    units = (each for each in facts.units if each.name not in reported)
    for each in (*failing_containers(units, facts.flag), *facts.failing):
        if not each.is_restarting:
            kind = HealthKind.OOM_KILLED if each.is_oom else HealthKind.FAILED
            yield _of_pod(kind, each.pod, each.message, each.hint)
        elif each.restarts >= RESTARTS_MIN:
            yield _of_pod(HealthKind.RESTARTING, each.pod, each.message, each.hint)


_CONDITIONS = {
    Condition.MEMORY: "the node is short of memory: the agent evicts pods, and admits no new"
    " BestEffort pods",
    Condition.DISK: "the node is short of storage: the agent evicts pods, and admits no new ones",
    Condition.PID: "the node is short of process ids: the agent evicts pods, and admits no new ones",
    Condition.BURSTABLE_MEMORY: "the Burstable tier is short of memory: the agent evicts its pods",
    Condition.BESTEFFORT_MEMORY: "the BestEffort tier is short of memory: the agent evicts its pods,"
    " and admits no new ones",
}


def _of_manifests(problems: Iterable[Problem]) -> Iterator[HealthProblem]:
    for each in problems:
        if each.severity is Severity.ERROR:
            yield HealthProblem(
                kind=HealthKind.MANIFEST, object=each.where, message=each.message, hint=each.hint
            )


def _of_pods(facts: HealthFacts) -> Iterator[HealthProblem]:
    for pending in facts.pending:
        is_evicted = pending.reason == EVICTED
        message = pending.message if is_evicted else f"{pending.reason}: {pending.message}"
        yield HealthProblem(
            kind=HealthKind.EVICTED if is_evicted else HealthKind.PENDING,
            object=pending.pod,
            message=f"evicted: {message}" if is_evicted else f"pending: {message}",
            hint=pending.hint,
            pod=pending.pod,
        )
    for unwanted in facts.unwanted:
        yield _of_pod(
            HealthKind.UNWANTED,
            unwanted.pod,
            f"it is still applied, but {unwanted.source} no longer contains it",
            f"to remove it: podslice delete{facts.flag} {unwanted.pod}",
        )
    for stuck in facts.agent.stuck if facts.agent else ():
        message = f"it could not be removed: {stuck.why}"
        yield _of_pod(HealthKind.STUCK, stuck.pod, message, stuck.hint)
    for key in facts.unrecorded:
        yield _of_pod(
            HealthKind.UNRECORDED,
            key,
            "it has no record; its values are those of its slice, without its containers",
            f"to apply its manifest again: {_applying(facts, key)}",
        )


def _applying(facts: HealthFacts, pod: str) -> str:
    """Return the command that applies the manifest of a pod."""
    start = " --start" if pod in facts.started else ""
    source = facts.sources.get(pod)
    return f"podslice apply{facts.flag}{start} -f {shlex.quote(source) if source else 'FILE'}"


def _of_cpus(facts: HealthFacts) -> Iterator[HealthProblem]:
    for lacking in facts.lacking_cpus:
        yield _of_pod(
            HealthKind.SHARED_CPUS,
            lacking.pod,
            f"it shares its CPUs with other pods: {lacking.message}",
            "lower its request and apply it again, or free CPUs (reserved-cpus, other pods)",
        )
    for unit in facts.units:
        for kernel in (each.kernel for each in unit.properties if each.name == PARTITION):
            if kernel and "invalid" in kernel:
                message = f"the kernel does not isolate its CPUs: {kernel}"
                hint = "remove that reason, or set cpuset-partition to member"
                kind, pod = HealthKind.PARTITION, unit.pod
                yield HealthProblem(
                    kind=kind, object=unit.name, message=message, hint=hint, pod=pod
                )


def _of_drop_ins(facts: HealthFacts) -> Iterator[HealthProblem]:
    for each in facts.drop_ins:
        message = (
            f"{each.unit} does not start with the slice and the limits of the pod: {each.path}"
        )
        hint = f"to write it again: podslice apply{facts.flag}"
        yield _of_pod(HealthKind.DROP_IN, each.pod, message, hint)


def _of_pod(kind: HealthKind, pod: str, message: str, hint: str) -> HealthProblem:
    return HealthProblem(kind=kind, object=pod, message=message, hint=hint, pod=pod)


def _of_units(facts: HealthFacts) -> Iterator[HealthProblem]:
    """Yield the differences of units, except those of pods that are being removed."""
    agent = facts.agent
    hint = (
        f"to restore it: podslice apply{facts.flag}" if agent is None else "the agent restores it"
    )
    leaving = {*agent.terminating, *(each.pod for each in agent.stuck)} if agent else set()
    reported = set()
    for unit in facts.units:
        for kind, message in _differences(unit) if unit.pod not in leaving else ():
            reported.add(unit.name)
            remedy = hint
            if kind is HealthKind.MISSING and unit.pod is not None and unit.pod in facts.started:
                remedy = _starting(facts, unit.pod, hint)
            yield HealthProblem(
                kind=kind, object=unit.name, message=message, hint=remedy, pod=unit.pod
            )
    for change in facts.changes:
        if change.unit not in reported and change.pod not in leaving:
            yield HealthProblem(
                kind=HealthKind.DIFFERENT,
                object=change.unit,
                message=f"not as it should be; still to do: {change.text}",
                hint=hint,
                pod=change.pod,
            )


def _starting(facts: HealthFacts, pod: str, hint: str) -> str:
    """Return the remedy for a pod without a slice, whose containers have ended with the slice."""
    if facts.agent is None and pod in facts.sources:
        return f"to restore it with its containers: {_applying(facts, pod)}"
    service = podman_service(pod)
    return f"{hint}; then, to start its containers: systemctl{facts.flag} start {service}"


def _differences(unit: UnitStatus) -> Iterator[tuple[HealthKind, str]]:
    if unit.state == MISSING:
        yield HealthKind.MISSING, "it is missing"
    elif unit.state != ELSEWHERE:  # that is reported with its processes
        for each in unit.properties:
            if each.differs:
                yield HealthKind.DIFFERENT, _difference(each)


def _difference(found: PropertyStatus) -> str:
    key = PROPERTIES[found.name].key
    has, wanted = (format_value(found.name, each) for each in (found.systemd, found.desired))
    return f"{key} is {has}, should be {wanted}"


def _of_records(facts: HealthFacts) -> Iterator[HealthProblem]:
    for unit in facts.orphans:
        yield HealthProblem(
            kind=HealthKind.ORPHAN,
            object=unit,
            message="it is an orphan: not created by podslice, or its pod is unknown",
            hint=f"to see its processes: systemctl{facts.flag} status {unit}; to end them and remove"
            f" it: systemctl{facts.flag} stop {unit}",
        )
    for path in facts.damaged_records:
        yield HealthProblem(
            kind=HealthKind.RECORD,
            object=path,
            message="it is not a valid record",
            hint=f"to remove it: podslice apply{facts.flag}",
        )
    for unit, why in facts.not_enforced:
        yield HealthProblem(kind=HealthKind.RESERVATION, object=unit, message=why)
    if facts.unconfirmed is not None:
        message, hint = facts.unconfirmed
        yield HealthProblem(kind=HealthKind.UNCONFIRMED, object="node", message=message, hint=hint)
