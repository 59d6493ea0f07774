"""What the agent answers at which path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from podslice.agent.endpoints import metrics
from podslice.agent.endpoints.kubelet_summary import Json, Summarizer, pod_list
from podslice.agent.endpoints.pages import JSON, Answer, Route
from podslice.agent.endpoints.snapshot import Snapshot

_FRESH_SEC = 1.0
"""How long what costs a look at every pod is good enough for others who ask."""


def routes(snapshot: Callable[[], Snapshot]) -> Mapping[str, Route]:
    """What to serve.

    Args:
        snapshot: the node as the agent knows it when somebody asks; it has to be quick.
    """
    summarizer = Summarizer()

    async def health() -> Answer:
        return _health(snapshot())

    async def measure() -> Answer:
        now = snapshot()
        body = metrics.expose(now, await now.stats())
        return Answer(body=body, content_type=metrics.CONTENT_TYPE, fresh_sec=_FRESH_SEC)

    async def pods() -> Answer:
        now = snapshot()
        return _document(pod_list(now, await now.stats()))

    async def summary() -> Answer:
        now = snapshot()
        return _document(summarizer.summary(now, await now.stats()))

    return {"/healthz": health, "/metrics": measure, "/pods": pods, "/stats/summary": summary}


def _health(snapshot: Snapshot) -> Answer:
    if not snapshot.problems:
        return Answer(body=[b"ok\n"])
    text = "".join(f"{problem}\n" for problem in snapshot.problems)
    return Answer(body=[text.encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)


def _document(document: Json) -> Answer:
    return Answer(
        body=[json.dumps(document).encode(), b"\n"], content_type=JSON, fresh_sec=_FRESH_SEC
    )
