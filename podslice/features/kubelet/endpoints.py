"""The endpoints of the agent that applies the pod levels of a kubelet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import Metric

from podslice.agent.context import Counters
from podslice.agent.endpoints import metrics
from podslice.agent.endpoints.http import Response, Route
from podslice.agent.endpoints.metrics import (
    document_response,
    format_family,
    health_response,
    make_family,
    number_families,
)
from podslice.features.kubelet.node import LeftReason, LevelPlan
from podslice.model.event import Kind
from podslice.model.properties import PROPERTIES

_KINDS = (
    *(Kind.AGENT_STARTED, Kind.AGENT_STOPPED, Kind.AGENT_FAILED, Kind.AGENT_NOTED),
    *(Kind.LEVEL_APPLIED, Kind.LEVEL_REMOVED, Kind.LEVEL_LEFT),
)
"""The kinds of events of this agent."""


class LevelSnapshot(NamedTuple):
    """The state that the endpoints publish."""

    plan: LevelPlan
    counters: Counters
    events: Mapping[Kind, int]
    failures: tuple[str, ...] = ()
    """Sentences on what has failed."""
    overdue: str = ""
    """A sentence on a read of the kubelet that should have ended; empty otherwise."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what keeps the agent from its work; without any, it is healthy."""
        return (*self.failures, self.overdue) if self.overdue else self.failures


def level_routes(snapshot: Callable[[], LevelSnapshot]) -> Mapping[str, Route]:
    """Return the routes by path; `snapshot` returns the current state."""

    async def health() -> Response:
        return health_response(snapshot().problems)

    async def alive() -> Response:
        # a restart does not help against anything else
        overdue = snapshot().overdue
        return health_response((overdue,) if overdue else ())

    async def scrape() -> Response:
        body = map(format_family, collect(snapshot()))
        return Response(body=body, content_type=metrics.CONTENT_TYPE)

    async def levels() -> Response:
        return document_response(document(snapshot().plan), fresh_sec=0.0)

    return {"/healthz": health, "/livez": alive, "/metrics": scrape, "/pod-levels": levels}


def document(plan: LevelPlan) -> dict[str, object]:
    """Return the pods with values of podslice, and what is left alone, with the reasons."""
    return {
        "applied": [
            {"pod": plan.pods.get(unit), "unit": unit, "properties": dict(values)}
            for unit, values in sorted(plan.own.items())
        ],
        "left": [
            {
                "pod": each.pod,
                "unit": each.unit,
                "property": each.property,
                "reason": each.reason.value,
                "message": each.message,
            }
            for each in plan.left
        ],
    }


def collect(snapshot: LevelSnapshot) -> Iterator[Metric]:
    """Yield all metric families."""
    plan = snapshot.plan
    left = Counter(each.reason for each in plan.left)
    text = "Pods of the kubelet that have values of podslice"
    yield from number_families(("podslice_pod_levels_applied", text, len(plan.own)))
    yield make_family(
        "podslice_pod_level_value",
        "Value that podslice has set on the slice of a pod, in the unit of systemd's property",
        ("pod", "property"),
        (
            ((plan.pods.get(unit, ""), PROPERTIES[name].key), int(value))
            for unit, values in sorted(plan.own.items())
            for name, value in values.items()
        ),
    )
    yield make_family(
        "podslice_pod_levels_left",
        "Pod levels, or values of them, that are not applied",
        ("reason",),
        (((reason.value,), left[reason]) for reason in LeftReason),
    )
    yield from metrics.collect_agent(
        snapshot.counters,
        snapshot.events,
        _KINDS,
        len(snapshot.problems),
        rounds="the kubelet is read",
    )
