"""Histories of usage from a Prometheus server, with the metrics of podslice or of cAdvisor."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

from podslice.errors import InputError, ServerError, invalid
from podslice.model.usage_history import PodHistory, UsageHistory
from podslice.policy.usage_samples import KEPT_SEC, add_cpu, add_memory, add_oom_kills
from podslice.usage.range_answer import parse_error, parse_range

if TYPE_CHECKING:
    from podslice.usage.range_answer import Series

STEP_SEC = 300
"""The time between two values: a server answers with 11,000 values at most, a week has more minutes.

Source: Prometheus, web/api/v1/api.go, queryRange.
"""
_ANSWER_BYTES_MAX = 64 * 2**20
_WAIT_SEC = 60
_UNREACHABLE = "check the address, and that the server is reachable from this host"
_OF_POD = "namespace={namespace}, pod={pod}"
_OF_CONTAINERS = f'container!="", container!="POD", {_OF_POD}'
_SUM = "max by ({by}) (sum by (instance, {by}) ({of}))"
_POD, _CONTAINER = "namespace, pod", "namespace, pod, container"


def _either(pod: str, container: str) -> str:
    """Return a query for a metric of pods, or else the sum of one of containers."""
    return f"max by ({_POD}) ({pod}) or {_SUM.format(by=_POD, of=container)}"


def _rate(metric: str, labels: str) -> str:
    return f"rate({metric}{{{{{labels}}}}}[5m])"


def _largest(metric: str, labels: str) -> str:
    return f"max_over_time({metric}{{{{{labels}}}}}[5m])"


_CPU = _rate("container_cpu_usage_seconds_total", _OF_CONTAINERS)
_MEMORY = _largest("container_memory_working_set_bytes", _OF_CONTAINERS)
_KILLS = f"increase(container_oom_events_total{{{{{_OF_CONTAINERS}}}}}[5m])"
_OF_PODS = {
    "cpu": _either(_rate("pod_cpu_usage_seconds_total", _OF_POD), _CPU),
    "memory": _either(_largest("pod_memory_working_set_bytes", _OF_POD), _MEMORY),
    "kills": _either(f"increase(podslice_pod_oom_kills_total{{{{{_OF_POD}}}}}[5m])", _KILLS),
}
"""The queries of a pod by what they return. Pods of one name on several hosts: the largest value."""
_OF_EACH_CONTAINER = {
    "cpu": _SUM.format(by=_CONTAINER, of=_CPU),
    "memory": _SUM.format(by=_CONTAINER, of=_MEMORY),
    "kills": _SUM.format(by=_CONTAINER, of=_KILLS),
}


def check_url(url: str) -> str:
    """Return the address of a server without a slash at its end.

    Raises:
        InputError: it is not an address of HTTP.
    """
    hint = "write http://127.0.0.1:9090, for example"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise invalid(f"must be a URL: {error}", hint, where="--prometheus") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise invalid("must be the URL of a server", hint, where="--prometheus")
    if parts.username is not None:
        hint = "use a proxy that adds them"
        raise invalid("credentials are not supported", hint, where="--prometheus")
    return url.rstrip("/")


def read_history(url: str, key: str, now_sec: int) -> PodHistory | None:
    """Return the history of a pod, `namespace/name`; None if the server has no usage of it.

    Raises:
        ServerError: the server does not answer, or not with series.
    """
    namespace, _, pod = key.partition("/")
    names = {"namespace": json.dumps(namespace), "pod": json.dumps(pod)}

    def ask(queries: dict[str, str]) -> dict[str, tuple[Series, ...]]:
        return {
            what: _query(url, query.format(**names), now_sec) for what, query in queries.items()
        }

    of_pod = ask(_OF_PODS)
    if not (of_pod["cpu"] or of_pod["memory"]):
        return None
    of_containers = ask(_OF_EACH_CONTAINER)
    containers = {
        series.labels.get("container", "")
        for what in ("cpu", "memory")
        for series in of_containers[what]
    }
    return PodHistory(
        pod=make_history(**of_pod),
        containers={
            name: make_history(
                **{
                    what: [each for each in found if each.labels.get("container") == name]
                    for what, found in of_containers.items()
                }
            )
            for name in sorted(containers)
        },
    )


def make_history(
    cpu: Iterable[Series], memory: Iterable[Series], kills: Iterable[Series]
) -> UsageHistory:
    """Return a history of CPUs, bytes and OOM kills; each value is for five minutes.

    A server may have the memory only: systemd does not count CPU time with cgroup v1.
    """
    history = UsageHistory()
    used = [*_points(cpu)]
    held = [*_points(memory)]
    for at_sec, value in used:
        history = add_cpu(history, round(value * 1000), at_sec)
    for at_sec, value in held:
        history = add_memory(history, int(value), at_sec)
    for at_sec, value in _points(kills):
        if value >= 0.5:  # an increase is an estimate
            history = add_oom_kills(history, round(value), at_sec)
    times = [at_sec for at_sec, _ in (*used, *held)]
    return replace(
        history,
        first_sec=min(times, default=0),
        last_sec=max(times, default=0),
        samples=max(len(used), len(held)) * (STEP_SEC // 60),
    )


def _points(found: Iterable[Series]) -> Iterator[tuple[int, float]]:
    return ((at_sec, max(value, 0.0)) for series in found for at_sec, value in series.points)


def _query(url: str, query: str, now_sec: int) -> tuple[Series, ...]:
    """Return the series of a range query over the time that histories last."""
    fields = {"query": query, "start": now_sec - KEPT_SEC, "end": now_sec, "step": STEP_SEC}
    try:
        status, text = _get(f"{url}/api/v1/query_range?{urlencode(fields)}")
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ServerError(f"{url} does not answer: {reason}; {_UNREACHABLE}") from error
    if len(text) > _ANSWER_BYTES_MAX:
        raise ServerError(f"{url}: the answer is larger than {_ANSWER_BYTES_MAX // 2**20} MiB")
    if status != HTTPStatus.OK:
        raise ServerError(f"{url}: {parse_error(text, status)}")
    try:
        return parse_range(text)
    except InputError as error:
        raise ServerError(f"{url}: {'; '.join(map(str, error.problems))}") from error


def _get(address: str) -> tuple[int, bytes]:
    """Return the status and the content of an answer, up to a byte more than the limit."""
    try:
        # the scheme is checked before
        with urllib.request.urlopen(address, timeout=_WAIT_SEC) as answer:  # noqa: S310
            return HTTPStatus.OK, answer.read(_ANSWER_BYTES_MAX + 1)
    except HTTPError as error:
        with error:
            return error.code, error.read(_ANSWER_BYTES_MAX + 1)
