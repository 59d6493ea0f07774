"""The state shared by the parts of the agent."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.agent.counters import Counters
from podslice.agent.event_log import EventLog
from podslice.agent.eviction_marks import EvictionMarks
from podslice.agent.node_status import NodeStatus
from podslice.agent.published_state import own_process, publish_state, withdraw_state
from podslice.model.node_state import AgentState, PendingPod, StuckPod
from podslice.policy.recommendation import RecommendedAmounts
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.request import OngoingTerminations
from podslice.reconcile.world import LiveWorld
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
