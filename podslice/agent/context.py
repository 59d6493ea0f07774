"""The state shared by the parts of the agent, and what a part is."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from podslice.errors import HostError, Problem
from podslice.kernel.proc import read_process
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.event import Event, Kind
from podslice.model.node_state import AgentState, Condition, Eviction, PendingPod, StuckPod
from podslice.model.resources import RecommendedAmounts
from podslice.model.unit import ObservedUnit, UnitName, control_group_of
from podslice.reconcile.assess import Assessment, OngoingTerminations
from podslice.reconcile.observe import control_group
from podslice.reconcile.world import LiveWorld
from podslice.systemd.client import Change, Client, ClientAround, Verb
from podslice.systemd.journal import Journal

OPERATION_BUCKETS_SEC = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
REACTION_BUCKETS_SEC = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
RECONCILE_BUCKETS_SEC = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Operation(StrEnum):
    """An operation on a control group, named as in the kubelet's metrics.

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, CgroupManagerDuration.
    """

    CREATE = "create"
    UPDATE = "update"
    DESTROY = "destroy"


_OPERATIONS = {
    Verb.START: Operation.CREATE,
    Verb.START_BATCH: Operation.CREATE,
    Verb.SET_PROPERTIES: Operation.UPDATE,
    Verb.STOP: Operation.DESTROY,
    Verb.STOP_BATCH: Operation.DESTROY,
}


class Histogram:
    """Counts durations by range."""

    def __init__(self, bounds_sec: Iterable[float]) -> None:
        self.bounds_sec = tuple(sorted(bounds_sec))
        self.counts = [0] * (len(self.bounds_sec) + 1)
        """By bound: durations up to it and above the previous one; then those above all bounds."""
        self.sum_sec = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        # A duration equal to a bound belongs to it, as in Prometheus (`le`).
        self.counts[sum(bound < seconds for bound in self.bounds_sec)] += 1
        self.sum_sec += seconds


@dataclass(slots=True, kw_only=True)
class Counters:
    """Counts since the agent's start, and a few current numbers."""

    operations: dict[Operation, Histogram] = field(
        default_factory=lambda: {each: Histogram(OPERATION_BUCKETS_SEC) for each in Operation}
    )
    evictions: Counter[str] = field(default_factory=Counter)
    """By signal."""
    reactions: Histogram = field(default_factory=lambda: Histogram(REACTION_BUCKETS_SEC))
    """From the observation below a threshold to the order to stop a pod."""
    drift_repaired: int = 0
    oom_kills: int = 0
    """OOM-killed processes of pods."""
    oomd_kills: int = 0
    """Kills of containers by systemd-oomd."""
    reconciles: Histogram = field(default_factory=lambda: Histogram(RECONCILE_BUCKETS_SEC))
    reconcile_errors: int = 0
    broken_manifests: int = 0
    """Current, as the following ones."""
    orphans: int = 0
    refused: int = 0
    """Pods that are not admitted."""

    def reconciled(self, seconds: float, *, failed: bool) -> None:
        """Count a round."""
        self.reconciles.observe(seconds)
        self.reconcile_errors += failed


class TimedClient(ClientAround):
    """Measures how long another client takes to create, change or remove each unit.

    The units of a batch are started together, so that each takes as long as the batch.
    """

    def __init__(self, client: Client, counters: Counters) -> None:
        super().__init__(client)
        self._counters = counters

    async def submit(self, change: Change) -> None:
        now = asyncio.get_running_loop().time
        begun = now()
        await self._client.submit(change)
        if operation := _OPERATIONS.get(change.verb):
            for _ in change.names:
                self._counters.operations[operation].observe(now() - begun)


class EventLog:
    """The journal, with each note reported once."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._notes: set[str] = set()

    def report(
        self,
        kind: Kind,
        message: str,
        *,
        pod: str | None = None,
        unit: UnitName | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Report an event."""
        event = Event(kind=kind, message=message, pod=pod, unit=unit, fields=fields or {})
        self.journal.log(event)

    def note(self, message: str) -> None:
        """Report something worth knowing, once."""
        if message not in self._notes:
            self._notes.add(message)
            self.report(Kind.AGENT_NOTED, message)


_OF_MANIFESTS = frozenset({"manifests", "pods"})


class NodeStatus:
    """The pressure conditions of the node, and the current problems by topic."""

    def __init__(self, events: EventLog, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each change."""
        self._events = events
        self._on_change = on_change
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self.conditions: frozenset[Condition] = frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return all current problems, ordered by topic."""
        return self._of_topics(self._problems)

    @property
    def manifest_problems(self) -> tuple[Problem, ...]:
        """Return the problems of manifests, each once."""
        return tuple(dict.fromkeys(self._of_topics(_OF_MANIFESTS)))

    @property
    def failures(self) -> tuple[Problem, ...]:
        """Return the problems that keep the agent from its work; those of manifests do not."""
        return self._of_topics(self._problems.keys() - _OF_MANIFESTS)

    def _of_topics(self, topics: Iterable[str]) -> tuple[Problem, ...]:
        return tuple(found for each in sorted(topics) for found in self._problems.get(each, ()))

    def set_problems(self, topic: str, problems: Iterable[Problem]) -> None:
        """Replace the problems of a topic."""
        self._problems[topic] = tuple(problems)
        self._on_change()

    def set_conditions(self, conditions: frozenset[Condition]) -> None:
        """Replace the node's conditions."""
        self.conditions = conditions
        self._on_change()

    def fail(self, topic: str, message: str) -> None:
        """Record that the agent cannot do its work; report it unless that is known already."""
        found = (Problem(where="", message=message),)
        if self._problems.get(topic) != found:
            self._events.report(Kind.AGENT_FAILED, message)
            self.set_problems(topic, found)

    def recover(self, topic: str) -> None:
        """Report that what failed works again; the reason was reported with the failure."""
        if self._problems.pop(topic, ()):
            self._events.report(Kind.AGENT_NOTED, f"{topic}: recovered")
            self._on_change()


class EvictionMarks:
    """Writes marks; a mark that cannot be written is in force as long as the agent runs."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        self.unwritten: dict[str, Eviction] = {}
        """The marks that could not be written, by the uids of their pods."""

    def retry(self) -> None:
        """Write the marks that could not be written before."""
        for mark in tuple(self.unwritten.values()):
            self.write(mark)

    def write(self, mark: Eviction) -> None:
        """Write a mark, or keep it in memory and report why."""
        status = self._context.status
        try:
            self._context.world.store.mark_evicted(mark)
        except HostError as error:
            is_known = mark.uid in self.unwritten
            self.unwritten[mark.uid] = mark
            if not is_known:
                pods = ", ".join(sorted(each.pod for each in self.unwritten.values()))
                status.fail(
                    "marks",
                    f"cannot write the marks of evicted pods: {error}; only as long as this agent"
                    f" runs, these pods are kept from running again: {pods}",
                )
        else:
            self.unwritten.pop(mark.uid, None)
            if not self.unwritten:
                status.recover("marks")


class AgentContext:
    """The world, its last assessment, and where parts report events and problems."""

    def __init__(self, world: LiveWorld, journal: Journal, counters: Counters) -> None:
        self.world = world
        """Replaced when the configuration is reloaded."""
        self.assessment: Assessment | None = None
        """The last assessment; None before the first round."""
        self.assessments = 0
        """The number of assessments so far, to notice a new one without keeping the old one."""
        self.pending: tuple[PendingPod, ...] | None = None
        """The pods that did not run as wanted at that time."""
        self.stuck: tuple[StuckPod, ...] = ()
        self.terminating = OngoingTerminations()
        self.recommended: Mapping[str, RecommendedAmounts] = {}
        """The recommended amounts of pods by key, as of the last time that histories were read or written."""
        self.counters = counters
        self.events = EventLog(journal)
        self.status = NodeStatus(self.events, self.publish)
        self.marks = EvictionMarks(self)

    def group(self, name: UnitName) -> str:
        """Return the control group of a slice, as of the last assessment."""
        if self.assessment is None:
            return control_group_of(name)
        return control_group(name, self.assessment.observed)

    def containers(self) -> Iterator[tuple[PodDecision, ContainerDecision, ObservedUnit]]:
        """Yield the loaded units of the containers of pods, as of the last assessment."""
        if self.assessment is not None:
            units = self.assessment.observed.units
            for pod in self.assessment.desired.pods:
                for container in pod.scopes:
                    for name in container.units:
                        if name in units:
                            yield pod, container, units[name]

    def oom_kills(self, name: UnitName) -> int:
        """Return how many processes of a slice the kernel has OOM-killed since its start."""
        return self.world.cgroups.events(self.group(name)).get("oom_kill", 0)

    def publish(self) -> None:
        """Write the agent's state for other podslice processes; a failure is retried next time."""
        pid = os.getpid()
        process = read_process(pid)
        pods = self.assessment.current if self.assessment else ()
        terminating = [pod.key for pod in pods if pod.uid in self.terminating.in_progress]
        state = AgentState(
            pid=pid,
            started_ticks=process.started_ticks if process else 0,
            conditions=tuple(sorted(self.status.conditions)),
            terminating=tuple(sorted(terminating)),
            problems=self.status.manifest_problems,
            failures=self.status.failures,
            pending=self.pending,
            stuck=self.stuck,
        )
        with suppress(HostError):
            self.world.store.agent.save(state)

    def withdraw(self) -> None:
        """Remove the published state."""
        with suppress(HostError):
            self.world.store.agent.save(None)


class AgentPart:
    """A part of the agent; a method that it does not have does nothing."""

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.Event().wait()

    async def follow(self) -> None:
        """Follow what a round has observed and changed; there may be no assessment yet."""

    def close(self) -> None:
        """Finish what must not be lost when the agent stops."""


MakePart = Callable[[AgentContext, str], AgentPart]
"""Returns a part; its arguments are the state that parts share, and the path of podslice."""
