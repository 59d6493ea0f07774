"""The problems of the node, of pods and of units, each with its object and its remedy. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from podslice.errors import Problem, Severity
from podslice.model.container_exit import UNKNOWN, ContainerExit
from podslice.model.naming import podman_service
from podslice.model.node_state import Condition, ContainerFailure, PendingPod
from podslice.model.properties import PARTITION, PROPERTIES, format_value
from podslice.policy.admit import EVICTED, NOT_APPLIED
from podslice.reconcile.assess import Assessment
from podslice.reconcile.report import describe_step
from podslice.usage.unit_status import ACTIVATING, ELSEWHERE, EXITED, MISSING, UnitStatus


class FailingContainer(NamedTuple):
    """A container of a pod that has failed, or that waits for its next start."""

    pod: str
    name: str
    """The container, or what another program runs in the pod: `nginx.service`."""
    show: str
    """The command that shows its output."""
    start: str
    """The command that starts it again."""
    is_restarting: bool = False
    restarts: int = 0
    last_exit: ContainerExit | None = None

    @property
    def is_oom(self) -> bool:
        """Return whether it was killed for lack of memory."""
        return self.last_exit is not None and (self.last_exit.is_oom or self.last_exit.is_oomd)

    @property
    def message(self) -> str:
        """Return what is wrong, in a sentence."""
        count = f"{self.restarts} restart{'' if self.restarts == 1 else 's'}"
        cause = self.last_exit.cause if self.last_exit else ""
        if self.is_restarting:
            how = f", the last one after {cause}" if cause else ""
            return f"container {self.name} does not stay active: {count}{how}"
        return f"container {self.name} {self._failure}{f', {count}' if self.restarts else ''}"

    @property
    def hint(self) -> str:
        """Return the remedy."""
        show = f"to see its output: {self.show}"
        return show if self.is_restarting else f"{show}; to start it again: {self.start}"

    @property
    def _failure(self) -> str:
        last = self.last_exit
        if last is not None and self.is_oom:
            by = "systemd-oomd" if last.is_oomd else "the kernel"
            return f"was killed for lack of memory by {by}"
        if last is not None and last.cause:
            return f"has failed with {last.cause}"
        return (
            "has failed" if last is None or last.result == UNKNOWN else f"has failed: {last.result}"
        )


def failing_containers(units: Iterable[UnitStatus], flag: str) -> Iterator[FailingContainer]:
    """Yield the containers among units that have failed or restart.

    `flag` is the option of a user's service manager, after a space.
    """
    for unit in units:
        if unit.pod is None or not (unit.has_failed or unit.state == ACTIVATING):
            continue
        name = f"{unit.pod} -c {unit.label}"
        has_unit = unit.state != EXITED
        yield FailingContainer(
            pod=unit.pod,
            name=unit.label,
            is_restarting=unit.state == ACTIVATING,
            restarts=unit.restarts,
            last_exit=unit.last_exit,
            show=f"podslice logs{flag} {name}",
            start=f"systemctl{flag} restart {unit.name}"
            if has_unit
            else f"podslice run{flag} --detach {name} -- COMMAND",
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
    """A problem, with its object and its remedy."""

    kind: HealthKind
    object: str
    """`namespace/name`, a unit, a condition, the address in a file, or `node`."""
    message: str
    hint: str = ""
    pod: str | None = None
    """The pod that it affects; None where it affects the node, or a pod that is not known."""
    command: tuple[str, ...] = ()
    """The podslice command among the remedies that ends the problem; empty if there is none, or if
    it needs what podslice does not know."""

    def __str__(self) -> str:
        """Return the object with the message: `pod default/web: pending: …`."""
        what = f"pod {self.object}" if self.object == self.pod else self.object
        return f"{what}: {self.message}" if what else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """Everything that determines the health of a node and its pods."""

    state: Assessment
    flag: str = ""
    """The option that selects a user's service manager, after a space."""
    units: tuple[UnitStatus, ...] = ()
    configuration: tuple[Problem, ...] = ()
    """The problems of the configuration files, if another configuration replaces them."""
    stopped_agent: tuple[HealthProblem, ...] = ()
    """An agent that should run."""
    containers: tuple[ContainerFailure, ...] = ()
    """Why containers that the agent keeps do not run."""
    restarting: tuple[HealthProblem, ...] = ()
    """The pods whose services wait for another start."""
    failing: tuple[FailingContainer, ...] = ()
    """The containers of other programs in pods that have failed or restart."""
    drop_ins: tuple[HealthProblem, ...] = ()
    strays: tuple[HealthProblem, ...] = ()
    manifests: tuple[Problem, ...] = ()
    """The problems of the manifest directories."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifests of pods in the manifest directories, by the pods' keys."""
    started: Collection[str] = ()
    """The pods whose containers `apply --start` runs, by key."""
    pending: tuple[PendingPod, ...] = ()
    unwanted: Mapping[str, str] = field(default_factory=dict)
    """The applied pods whose manifests were removed, by key, with the files that these were in."""
    unconfirmed: tuple[str, str] | None = None
    """The state of values whose trial has ended without a confirmation, and the remedy."""


_CONDITIONS = {
    Condition.MEMORY: "the node is short of memory: the agent evicts pods, and admits no new"
    " BestEffort pods",
    Condition.DISK: "the node is short of storage: the agent evicts pods, and admits no new ones",
    Condition.PID: "the node is short of process ids: the agent evicts pods, and admits no new ones",
    Condition.BURSTABLE_MEMORY: "the Burstable tier is short of memory: the agent evicts its pods",
    Condition.BESTEFFORT_MEMORY: "the BestEffort tier is short of memory: the agent evicts its pods,"
    " and admits no new ones",
}


def problems_of(facts: HealthFacts) -> tuple[HealthProblem, ...]:
    """Return the problems of the node, then the problems of pods and units."""
    found = (
        *_of_node(facts),
        *_of_manifests(facts),
        *_of_pods(facts),
        *_of_containers(facts),
        *_of_cpus(facts),
        # a kubelet owns the units below its root
        *(() if facts.state.foreign else _of_units(facts)),
        *facts.strays,
        *_of_records(facts),
    )
    return tuple(dict.fromkeys(found))


def problematic_pods(problems: Iterable[HealthProblem]) -> frozenset[str]:
    """Return the pods that problems affect."""
    return frozenset(each.pod for each in problems if each.pod is not None)


def pod_problem(
    kind: HealthKind, pod: str, message: str, hint: str, command: tuple[str, ...] = ()
) -> HealthProblem:
    """Return a problem whose object is the pod that it affects."""
    return HealthProblem(kind, pod, message, hint, pod, command)


def _of_node(facts: HealthFacts) -> Iterator[HealthProblem]:
    """Yield the problems of the configuration, and of the agent with its conditions."""
    flag, agent = facts.flag, facts.state.agent
    for each in facts.configuration:
        if each.severity is Severity.ERROR:
            hint = each.hint or f"after correcting it, run: podslice check{flag}"
            yield HealthProblem(HealthKind.CONFIGURATION, each.where, each.message, hint)
    if (foreign := facts.state.foreign) is not None:
        message = f"{foreign.reason}; podslice changes nothing"
        yield HealthProblem(HealthKind.FOREIGN_ROOT, "node", message, foreign.way_out)
    yield from facts.stopped_agent
    for each in agent.failures if agent else ():
        message = f"{each.where}: {each.message}" if each.where else each.message
        hint = each.hint or f"see: podslice events{flag}"
        yield HealthProblem(HealthKind.AGENT_FAILED, AGENT, message, hint)
    for condition in agent.conditions if agent else ():
        hint = f"to see what uses it: podslice top{flag}"
        yield HealthProblem(HealthKind.CONDITION, condition.value, _CONDITIONS[condition], hint)


def _of_manifests(facts: HealthFacts) -> Iterator[HealthProblem]:
    for failure in facts.containers:
        what = failure.pod or failure.where or AGENT
        yield HealthProblem(HealthKind.CONTAINERS, what, failure.message, failure.hint, failure.pod)
    for each in facts.manifests:
        if each.severity is Severity.ERROR:
            yield HealthProblem(HealthKind.MANIFEST, each.where, each.message, each.hint)


def _of_pods(facts: HealthFacts) -> Iterator[HealthProblem]:
    state = facts.state
    for pending in facts.pending:
        command: tuple[str, ...] = ()
        if pending.reason == EVICTED:
            kind, message = HealthKind.EVICTED, f"evicted: {pending.message}"
            command = podslice_command("readmit", facts.flag, pending.pod)
        else:
            kind, message = HealthKind.PENDING, f"pending: {pending.reason}: {pending.message}"
            if pending.reason == NOT_APPLIED:
                command = _apply_command(facts, pending.pod, pending.source)
        yield pod_problem(kind, pending.pod, message, pending.hint, command)
    for key, source in facts.unwanted.items():
        message = f"it is still applied, but {source} no longer contains it"
        command = podslice_command("delete", facts.flag, key)
        hint = f"to remove it: {shlex.join(command)}"
        yield pod_problem(HealthKind.UNWANTED, key, message, hint, command)
    for stuck in state.agent.stuck if state.agent else ():
        message = f"it could not be removed: {stuck.why}"
        yield pod_problem(HealthKind.STUCK, stuck.pod, message, stuck.hint)
    for pod in state.current:
        if pod.uid not in state.digests:
            message = "it has no record; its values are those of its slice, without its containers"
            command = _apply_command(facts, pod.key, facts.sources.get(pod.key))
            hint = f"to apply its manifest again: {shlex.join(command)}"
            command = command if pod.key in facts.sources else ()
            yield pod_problem(HealthKind.UNRECORDED, pod.key, message, hint, command)


def _of_containers(facts: HealthFacts) -> Iterator[HealthProblem]:
    """Yield pods and containers that have failed, restart, or have an old drop-in."""
    yield from facts.restarting
    reported = {each.unit for each in facts.containers}
    units = (each for each in facts.units if each.name not in reported)
    for each in (*failing_containers(units, facts.flag), *facts.failing):
        if not each.is_restarting:
            kind = HealthKind.OOM_KILLED if each.is_oom else HealthKind.FAILED
            yield pod_problem(kind, each.pod, each.message, each.hint)
        elif each.restarts >= RESTARTS_MIN:
            yield pod_problem(HealthKind.RESTARTING, each.pod, each.message, each.hint)
    yield from facts.drop_ins


def _of_cpus(facts: HealthFacts) -> Iterator[HealthProblem]:
    for lacking in facts.state.desired.lacking_cpus:
        message = f"it shares its CPUs with other pods: {lacking.message}"
        hint = "lower its request and apply it again, or free CPUs (reserved-cpus, other pods)"
        yield pod_problem(HealthKind.SHARED_CPUS, lacking.pod, message, hint)
    for unit in facts.units:
        for kernel in (each.kernel for each in unit.properties if each.name == PARTITION):
            if kernel and "invalid" in kernel:
                message = f"the kernel does not isolate its CPUs: {kernel}"
                hint = "remove that reason, or set cpuset-partition to member"
                yield HealthProblem(HealthKind.PARTITION, unit.name, message, hint, unit.pod)


def podslice_command(verb: str, flag: str, *words: str) -> tuple[str, ...]:
    """Return a command of podslice; `flag` is `Manager.flag`."""
    return ("podslice", verb, *([flag.strip()] if flag else []), *words)


def apply_command(source: str, flag: str, *, starts: bool) -> tuple[str, ...]:
    """Return the command that applies a manifest, and starts its containers if podslice runs them."""
    return podslice_command("apply", flag, *(["--start"] if starts else []), "-f", source)


def _apply_command(facts: HealthFacts, pod: str, source: str | None) -> tuple[str, ...]:
    """Return the command that applies the manifest of a pod; `FILE` stands for an unknown one."""
    return apply_command(source or "FILE", facts.flag, starts=pod in facts.started)


def _of_units(facts: HealthFacts) -> Iterator[HealthProblem]:
    """Yield the differences of units, except those of pods that are being removed."""
    agent = facts.state.agent
    restore = podslice_command("apply", facts.flag) if agent is None else ()
    hint = f"to restore it: {shlex.join(restore)}" if restore else "the agent restores it"
    leaving = {*agent.terminating, *(each.pod for each in agent.stuck)} if agent else set()
    reported = set()
    for unit in facts.units:
        for kind, message in _differences(unit) if unit.pod not in leaving else ():
            reported.add(unit.name)
            remedy, command = hint, restore
            if kind is HealthKind.MISSING and unit.pod is not None and unit.pod in facts.started:
                remedy, command = _starting(facts, unit.pod, hint, restore)
            yield HealthProblem(kind, unit.name, message, remedy, unit.pod, command)
    for step in facts.state.plan.steps:
        if step.name not in reported and step.pod not in leaving:
            message = f"differs from the desired state; pending: {describe_step(step)}"
            yield HealthProblem(HealthKind.DIFFERENT, step.name, message, hint, step.pod, restore)


def _starting(
    facts: HealthFacts, pod: str, hint: str, restore: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Return the remedy for a pod without a slice, whose containers have ended with the slice."""
    if facts.state.agent is None and pod in facts.sources:
        command = _apply_command(facts, pod, facts.sources[pod])
        return f"to restore it with its containers: {shlex.join(command)}", command
    service = podman_service(pod)
    return f"{hint}; then, to start its containers: systemctl{facts.flag} start {service}", restore


def _differences(unit: UnitStatus) -> Iterator[tuple[HealthKind, str]]:
    if unit.state == MISSING:
        yield HealthKind.MISSING, "it is missing"
    elif unit.state != ELSEWHERE:  # that is reported with its processes
        for each in unit.properties:
            if each.differs:
                has, wanted = (format_value(each.name, of) for of in (each.systemd, each.desired))
                key = PROPERTIES[each.name].key
                yield HealthKind.DIFFERENT, f"{key} is {has}, should be {wanted}"


def _of_records(facts: HealthFacts) -> Iterator[HealthProblem]:
    flag = facts.flag
    for unit in facts.state.orphans:
        message = "it is an orphan: not created by podslice, or its pod is unknown"
        hint = (
            f"to see its processes: systemctl{flag} status {unit}; to end them and remove"
            f" it: systemctl{flag} stop {unit}"
        )
        yield HealthProblem(HealthKind.ORPHAN, unit, message, hint)
    for path in facts.state.broken_records:
        message = "it is not a valid record"
        command = podslice_command("apply", facts.flag)
        hint = f"to remove it: {shlex.join(command)}"
        yield HealthProblem(HealthKind.RECORD, path, message, hint, command=command)
    for each in facts.state.plan.skipped:
        if each.blocks:
            yield HealthProblem(HealthKind.RESERVATION, each.unit, each.why)
    if facts.unconfirmed is not None:
        message, hint = facts.unconfirmed
        yield HealthProblem(HealthKind.UNCONFIRMED, "node", message, hint)
