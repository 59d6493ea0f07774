"""The state shared by the parts of the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from podslice.agent.counters import Counters
from podslice.agent.event_log import EventLog
from podslice.agent.node_status import NodeStatus
from podslice.agent.published_state import own_process, publish_state, withdraw_state
from podslice.errors import HostError
from podslice.model.node_state import AgentState, Eviction, PendingPod, StuckPod
from podslice.policy.recommendation import RecommendedAmounts
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.request import OngoingTerminations
from podslice.reconcile.world import LiveWorld
from podslice.store import Store
from podslice.systemd.journal import Journal


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
        pid, started_ticks = own_process()
        state = AgentState(
            pid=pid,
            started_ticks=started_ticks,
            conditions=tuple(sorted(self.status.conditions)),
            terminating=self._terminating(),
            problems=self.status.manifest_problems,
            failures=self.status.failures,
            pending=self.pending,
            stuck=self.stuck,
        )
        publish_state(self.world.store, state)

    def withdraw(self) -> None:
        """Remove the published state."""
        withdraw_state(self.world.store)

    def _terminating(self) -> tuple[str, ...]:
        pods = self.assessment.current if self.assessment else ()
        return tuple(sorted(pod.key for pod in pods if pod.uid in self.terminating.in_progress))


class EvictionMarks:
    """Writes marks; a mark that cannot be written is in force as long as the agent runs."""

    def __init__(self, store: Callable[[], Store], status: NodeStatus) -> None:
        """`store` returns the store of the current configuration."""
        self._store = store
        self._status = status
        self._unwritten: dict[str, Eviction] = {}

    @property
    def unwritten(self) -> dict[str, Eviction]:
        """Return the marks that could not be written, by the uids of their pods."""
        return dict(self._unwritten)

    def get_unwritten(self, uid: str) -> Eviction | None:
        """Return the mark of a pod that could not be written."""
        return self._unwritten.get(uid)

    def retry(self) -> None:
        """Write the marks that could not be written before."""
        for mark in self.unwritten.values():
            self.write(mark)

    def write(self, mark: Eviction) -> None:
        """Write a mark, or keep it in memory and report why."""
        try:
            self._store().mark_evicted(mark)
        except HostError as error:
            is_known = mark.uid in self._unwritten
            self._unwritten[mark.uid] = mark
            if not is_known:
                pods = ", ".join(sorted(each.pod for each in self._unwritten.values()))
                self._status.fail(
                    "marks",
                    f"cannot write the marks of evicted pods: {error}; only as long as this agent"
                    f" runs, these pods are kept from running again: {pods}",
                )
        else:
            self._unwritten.pop(mark.uid, None)
            if not self._unwritten:
                self._status.recover("marks")
