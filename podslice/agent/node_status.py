"""The node's conditions, and the problems of manifests and of the agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from podslice.agent.event_log import EventLog
from podslice.errors import Problem
from podslice.model.event import Kind
from podslice.model.node_state import Condition

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
