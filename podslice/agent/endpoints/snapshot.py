"""What the agent hands over to those who tell others about the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from podslice.agent.counters import Counters
from podslice.model.desired import PodDecision
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition
from podslice.model.unit import INFINITY, PropertyValue
from podslice.policy.eviction.thresholds import EvictionThreshold, Observation
from podslice.usage.stats import NodeStats, PodStats

_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The node as the agent knows it now."""

    node_name: str
    pods: tuple[PodDecision, ...]
    """Those that are applied."""
    gather: Callable[[Iterable[PodDecision]], NodeStats]
    """Reads what the node and some of the pods use; each pod takes a while."""
    observe: Callable[[], Mapping[str, Observation]]
    """Reads what is left of what pods may be evicted for, by signal."""
    counters: Counters
    allocation: Allocation
    thresholds: tuple[EvictionThreshold, ...] = ()
    conditions: frozenset[Condition] = frozenset()
    events: Mapping[Kind, int] = field(default_factory=dict)
    """How many of each kind were told."""
    evicted: int = 0
    """Pods that are kept away."""
    problems: tuple[str, ...] = ()
    """What keeps the agent from its work, in sentences; while there are any it is not healthy."""
    initializing: frozenset[str] = frozenset()
    """The pods (`namespace/name`) in their init phase."""

    async def stats(self) -> NodeStats:
        """What the node and all of its pods use; the loop goes on between a few pods and the next.

        Raises:
            HostError: it can't be read.
        """
        node = self.gather(())
        found: list[PodStats] = []
        for start in range(0, len(self.pods), _AT_ONCE):
            await asyncio.sleep(0)
            found += self.gather(self.pods[start : start + _AT_ONCE]).pods
        return replace(node, pods=tuple(sorted(found, key=lambda each: each.decision.pod.key)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a unit is held to; None where it is not."""

    cpu_usec_per_sec: int | None = None
    memory_bytes: int | None = None


def pod_limits(decision: PodDecision, initializing: frozenset[str]) -> Limits:
    """The limits that a pod's slice has at the moment."""
    is_initializing = decision.pod.key in initializing and decision.init_properties is not None
    return _limits((decision.init_properties or ()) if is_initializing else decision.properties)


def container_limits(decision: PodDecision, name: str) -> Limits:
    """The limits that a container of a pod has of its own."""
    properties = (scope.properties for scope in decision.scopes if scope.name == name)
    return _limits(next(properties, ()))


def _limits(properties: tuple[PropertyValue, ...]) -> Limits:
    stated = {each.name: each.value for each in properties if each.value != INFINITY}
    cpu, memory = stated.get("CPUQuotaPerSecUSec"), stated.get("MemoryMax")
    return Limits(
        cpu_usec_per_sec=cpu if isinstance(cpu, int) else None,
        memory_bytes=memory if isinstance(memory, int) else None,
    )
