"""The state shared by the parts of the agent."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from podslice.errors import HostError, Problem
from podslice.kernel.proc import read_process
from podslice.model.event import Event, Kind
from podslice.model.node_state import AgentState, Condition, Eviction, PendingPod, StuckPod
from podslice.model.resources import RecommendedAmounts
from podslice.model.unit import UnitName
from podslice.reconcile.assess import Assessment, OngoingTerminations
from podslice.reconcile.world import LiveWorld
from podslice.store.store import Store
from podslice.systemd.client import Change, Client, ClientAround, Verb
from podslice.systemd.journal import Journal


class EventLog:
    """The journal, with each note reported once."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._notes: set[str] = set()

    @property
    def counts(self) -> Mapping[Kind, int]:
        """Return the number of events reported so far, by kind."""
        return self.journal.counts

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


class AgentContext:
    """The world, its last assessment, and where parts report events and problems."""

    def __init__(self, world: LiveWorld, journal: Journal, counters: Counters) -> None:
        self.world = world
        """Replaced when the configuration is reloaded."""
        self._assessment: Assessment | None = None
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
        self.marks = EvictionMarks(lambda: self.world.store, self.status)

    @property
    def assessment(self) -> Assessment | None:
        """Return the last assessment; None before the first round."""
        return self._assessment

    @assessment.setter
    def assessment(self, assessment: Assessment | None) -> None:
        self._assessment = assessment
        self.assessments += 1

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


class EvictionMarks:
    """Writes marks; a mark that cannot be written is in force as long as the agent runs."""

    def __init__(self, store: Callable[[], Store], status: NodeStatus) -> None:
        """`store` returns the store of the current configuration."""
        self._store = store
        self._status = status
        self.unwritten: dict[str, Eviction] = {}
        """The marks that could not be written, by the uids of their pods."""

    def retry(self) -> None:
        """Write the marks that could not be written before."""
        for mark in tuple(self.unwritten.values()):
            self.write(mark)

    def write(self, mark: Eviction) -> None:
        """Write a mark, or keep it in memory and report why."""
        try:
            self._store().mark_evicted(mark)
        except HostError as error:
            is_known = mark.uid in self.unwritten
            self.unwritten[mark.uid] = mark
            if not is_known:
                pods = ", ".join(sorted(each.pod for each in self.unwritten.values()))
                self._status.fail(
                    "marks",
                    f"cannot write the marks of evicted pods: {error}; only as long as this agent"
                    f" runs, these pods are kept from running again: {pods}",
                )
        else:
            self.unwritten.pop(mark.uid, None)
            if not self.unwritten:
                self._status.recover("marks")


_OF_MANIFESTS = frozenset({"manifests", "pods"})


class NodeStatus:
    """The current conditions and problems."""

    def __init__(self, events: EventLog, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each change."""
        self._events = events
        self._on_change = on_change
        self._conditions: frozenset[Condition] = frozenset()
        self._problems: dict[str, tuple[Problem, ...]] = {}

    @property
    def conditions(self) -> frozenset[Condition]:
        """Return the pressure conditions of the node."""
        return self._conditions

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return all current problems, ordered by topic."""
        return tuple(found for topic in sorted(self._problems) for found in self._problems[topic])

    @property
    def manifest_problems(self) -> tuple[Problem, ...]:
        """Return the problems of manifests, each once."""
        topics = sorted(self._problems.keys() & _OF_MANIFESTS)
        found = (each for topic in topics for each in self._problems[topic])
        return tuple(dict.fromkeys(found))

    @property
    def failures(self) -> tuple[Problem, ...]:
        """Return the problems that keep the agent from its work; those of manifests do not."""
        topics = sorted(self._problems.keys() - _OF_MANIFESTS)
        return tuple(found for topic in topics for found in self._problems[topic])

    def set_problems(self, topic: str, problems: Iterable[Problem]) -> None:
        """Replace the problems of a topic."""
        self._problems[topic] = tuple(problems)
        self._on_change()

    def set_conditions(self, conditions: frozenset[Condition]) -> None:
        """Replace the node's conditions."""
        self._conditions = conditions
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


class AgentPart:
    """A part that a feature adds to the agent; a method that it does not have does nothing."""

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.Event().wait()

    async def follow(self) -> None:
        """Follow what a round has observed and changed."""

    def close(self) -> None:
        """Finish what must not be lost when the agent stops."""


MakePart = Callable[[AgentContext, str], AgentPart]
"""Returns a part; its arguments are the state that parts share, and the path of podslice."""


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
        place = sum(bound < seconds for bound in self.bounds_sec)
        self.counts[place] += 1
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

    def operation(self, kind: Operation, seconds: float) -> None:
        """Count a created, changed or removed control group."""
        self.operations[kind].observe(seconds)

    def evicted(self, signal: str, reaction_sec: float) -> None:
        """Count an evicted pod."""
        self.evictions[signal] += 1
        self.reactions.observe(reaction_sec)

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
                self._counters.operation(operation, now() - begun)
