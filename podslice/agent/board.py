"""What the agent knows at this moment: for its parts, for `status`, and for whoever asks it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from podslice.agent.counters import Counters
from podslice.errors import HostError, Problem
from podslice.kernel.proc import read_process
from podslice.model.event import Event, Kind
from podslice.model.node_state import AgentState, Condition, Eviction
from podslice.model.unit import UnitName
from podslice.reconcile.assessment import Assessment
from podslice.reconcile.request import TerminatingPods
from podslice.reconcile.world import LiveWorld
from podslice.store.lock import held_for
from podslice.systemd.journal import Journal

_LOCK_POLL_SEC = 0.02
LOCK_PATIENCE_SEC = 120.0
"""How long another podslice may hold the lock before that is a failure."""


class Board:
    """What the parts of the agent share. Its world changes when the configuration is read anew."""

    def __init__(self, world: LiveWorld, journal: Journal, counters: Counters) -> None:
        self.world = world
        self.journal = journal
        self.counters = counters
        self.state: Assessment | None = None
        """The last look."""
        self.terminating = TerminatingPods()
        self.conditions: frozenset[Condition] = frozenset()
        self.unwritten: dict[str, Eviction] = {}
        """Marks of evicted pods by uid that could not be written; they hold all the same."""
        self._pid = os.getpid()
        self._problems: dict[str, tuple[Problem, ...]] = {}
        self._noted: set[str] = set()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong now, by topic."""
        return tuple(found for topic in sorted(self._problems) for found in self._problems[topic])

    @property
    def failures(self) -> tuple[str, ...]:
        """What keeps the agent from its work: no manifest's fault."""
        topics = sorted(self._problems.keys() - {"manifests", "pods"})
        return tuple(str(found) for topic in topics for found in self._problems[topic])

    def set_problems(self, topic: str, problems: Iterable[Problem]) -> None:
        """What is wrong about something; it holds until it is stated anew."""
        self._problems[topic] = tuple(problems)
        self.publish()

    def set_conditions(self, conditions: frozenset[Condition]) -> None:
        """What the node is short of."""
        self.conditions = conditions
        self.publish()

    def fail(self, topic: str, message: str) -> None:
        """Something keeps the agent from its work; told once, until it is another failure."""
        found = (Problem(where="", message=message),)
        if self._problems.get(topic) != found:
            self.tell(Kind.AGENT_FAILED, message)
            self.set_problems(topic, found)

    def recover(self, topic: str) -> None:
        """Report that what has failed works again; why it failed was reported then."""
        if self._problems.pop(topic, ()):
            self.tell(Kind.AGENT_NOTED, f"{topic} works again")
            self.publish()

    def note(self, text: str) -> None:
        """Say something beside, once."""
        if text not in self._noted:
            self._noted.add(text)
            self.tell(Kind.AGENT_NOTED, text)

    def tell(
        self,
        kind: Kind,
        message: str,
        *,
        pod: str | None = None,
        unit: UnitName | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Tell the journal of an event."""
        event = Event(kind=kind, message=message, pod=pod, unit=unit, fields=fields or {})
        self.journal.log(event)

    def leave(self) -> None:
        """Nothing holds any more that the agent has let others know."""
        with suppress(HostError):
            self.world.store.drop_agent()

    def publish(self) -> None:
        """Leave what others may need to know; a full disk is tried again the next time."""
        process = read_process(self._pid)
        state = AgentState(
            pid=self._pid,
            started_ticks=process.started_ticks if process else 0,
            conditions=tuple(sorted(self.conditions)),
            terminating=self._terminating(),
            problems=self.problems,
        )
        # by what is there: somebody may have taken it away
        if state != self.world.store.agent():
            with suppress(HostError):
                self.world.store.save_agent(state)

    def _terminating(self) -> tuple[str, ...]:
        pods = self.state.current if self.state else ()
        return tuple(sorted(pod.key for pod in pods if pod.uid in self.terminating.in_progress))

    def mark(self, mark: Eviction) -> None:
        """Keep a pod away; where that can't be written, for as long as this agent lives."""
        try:
            self.world.store.mark_evicted(mark)
        except HostError as error:
            is_known = mark.uid in self.unwritten
            self.unwritten[mark.uid] = mark
            if not is_known:
                pods = ", ".join(sorted(each.pod for each in self.unwritten.values()))
                self.fail(
                    "marks",
                    f"marks of evicted pods can't be written: {error}; they stay away only as long"
                    f" as this agent runs: {pods}",
                )
        else:
            self.unwritten.pop(mark.uid, None)
            if not self.unwritten:
                self.recover("marks")

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock of all writers, without holding up the loop while another has it.

        Raises:
            HostError: another has it for too long.
        """
        deadline = asyncio.get_running_loop().time() + LOCK_PATIENCE_SEC
        while (lock := self.world.store.try_lock()) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise held_for(LOCK_PATIENCE_SEC, self.world.store.root)
            await asyncio.sleep(_LOCK_POLL_SEC)
        with lock:
            yield
