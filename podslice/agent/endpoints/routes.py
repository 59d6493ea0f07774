"""The paths that agents serve."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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
        return health_response(snapshot().problems)

    async def scrape() -> Response:
        now = snapshot()
        body = metrics.expose(now, await now.stats())
        return Response(body=body, content_type=metrics.CONTENT_TYPE, fresh_sec=_FRESH_SEC)

    async def pods() -> Response:
        now = snapshot()
        return document_response(pod_list(now, await now.stats()))

    async def summary() -> Response:
        now = snapshot()
        return document_response(summarizer.summary(now, await now.stats()))

    return {"/healthz": health, "/metrics": scrape, "/pods": pods, "/stats/summary": summary}


def document_response(document: Json, fresh_sec: float = _FRESH_SEC) -> Response:
    """Return a JSON document, which is used for `fresh_sec` for further requests."""
    body = [json.dumps(document).encode(), b"\n"]
    return Response(body=body, content_type=JSON_TYPE, fresh_sec=fresh_sec)


def health_response(problems: Iterable[str]) -> Response:
    """Return the response `ok`, or the problems with the status 503."""
    text = "".join(f"{each}\n" for each in problems)
    if not text:
        return Response(body=[b"ok\n"])
    return Response(body=[text.encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)
