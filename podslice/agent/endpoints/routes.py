"""The paths that the agent serves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from podslice.agent.endpoints import metrics
from podslice.agent.endpoints.http import JSON_TYPE, Response, Route
from podslice.agent.endpoints.kubelet_summary import Json, Summarizer, pod_list
from podslice.agent.endpoints.snapshot import Snapshot

_FRESH_SEC = 1.0
"""How long a response that reads every pod is used for further requests."""


def routes(snapshot: Callable[[], Snapshot]) -> Mapping[str, Route]:
    """Return the routes by path.

    Args:
        snapshot: returns the current snapshot, quickly.
    """
    summarizer = Summarizer()

    async def health() -> Response:
        return _health(snapshot())

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


def _health(snapshot: Snapshot) -> Response:
    if not snapshot.problems:
        return Response(body=[b"ok\n"])
    text = "".join(f"{problem}\n" for problem in snapshot.problems)
    return Response(body=[text.encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)


def _document(document: Json) -> Response:
    return Response(
        body=[json.dumps(document).encode(), b"\n"], content_type=JSON_TYPE, fresh_sec=_FRESH_SEC
    )
