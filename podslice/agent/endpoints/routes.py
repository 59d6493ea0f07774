"""The paths that agents serve."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from podslice.agent.counters import Counters
from podslice.agent.endpoints import metrics
from podslice.agent.endpoints.http import JSON_TYPE, Response, Route
from podslice.agent.endpoints.kubelet_summary import Json, Summarizer, pod_list
from podslice.agent.endpoints.metric_families import format_family, make_family, number_families
from podslice.agent.endpoints.snapshot import Snapshot
from podslice.features.kubelet.node import LeftReason, LevelPlan
from podslice.model.event import Kind
from podslice.model.properties import PROPERTIES

_FRESH_SEC = 1.0
"""How long a response that reads every pod is used for further requests."""


def routes(snapshot: Callable[[], Snapshot]) -> Mapping[str, Route]:
    """Return the routes by path.

    Args:
        snapshot: returns the current snapshot, quickly.
    """
    summarizer = Summarizer()

    async def health() -> Response:
        return _report(snapshot().problems)

    async def scrape() -> Response:
        now = snapshot()
        body = metrics.expose(now, await now.stats())
        return Response(body=body, content_type=metrics.CONTENT_TYPE, fresh_sec=_FRESH_SEC)

    async def pods() -> Response:
        now = snapshot()
        return _document(pod_list(now, await now.stats()))

    async def summary() -> Response:
        now = snapshot()
        return _document(summarizer.summary(now, await now.stats()))

    return {"/healthz": health, "/metrics": scrape, "/pods": pods, "/stats/summary": summary}


def _document(document: Json, fresh_sec: float = _FRESH_SEC) -> Response:
    body = [json.dumps(document).encode(), b"\n"]
    return Response(body=body, content_type=JSON_TYPE, fresh_sec=fresh_sec)


# The agent that applies the pod levels of a kubelet.

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
        return _report(snapshot().problems)

    async def alive() -> Response:
        # a restart does not help against anything else
        overdue = snapshot().overdue
        return _report((overdue,) if overdue else ())

    async def scrape() -> Response:
        body = map(format_family, collect(snapshot()))
        return Response(body=body, content_type=metrics.CONTENT_TYPE)

    async def levels() -> Response:
        return _document(document(snapshot().plan), fresh_sec=0.0)

    return {"/healthz": health, "/livez": alive, "/metrics": scrape, "/pod-levels": levels}


def _report(problems: Iterable[str]) -> Response:
    """Return the response `ok`, or the problems with the status 503."""
    text = "".join(f"{each}\n" for each in problems)
    if not text:
        return Response(body=[b"ok\n"])
    return Response(body=[text.encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)


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
