"""Histories of usage from a Prometheus server, with the metrics of podslice or of cAdvisor."""

from __future__ import annotations

import json
import re
import ssl
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from podslice.errors import InputError, Problem, ServerError, invalid, printable
from podslice.features.history.model import PodHistory, UsageHistory
from podslice.features.history.samples import KEPT_SEC, add_cpu, add_memory, add_oom_kills
from podslice.http_client import (
    BadReply,
    ServerUrl,
    choose_hint,
    describe_error,
    get,
    make_tls,
    parse_url,
)

STEP_SEC = 300
"""The time between two values: a server answers with 11,000 values at most, a week has more minutes.

Source: Prometheus, web/api/v1/api.go, queryRange.
"""
ANSWER_BYTES_MAX = 8 * 2**20
"""A series of 8 days has 64 KiB."""
CONTAINERS_MAX = 20_000
"""Containers of one pod: their histories take 8 KiB each until they are shown."""
EXCHANGE_SEC = 60.0
"""The time for a query, from the connection to the last byte of the answer."""
_PORTS = {"http": 80, "https": 443}
_UNREACHABLE = "check the address, and that the server is reachable from this host"
_USE_OTHER_NAME = "use the name or the address that is in the certificate"
_TRUST = "state its authority with --prometheus-ca"
_CONTAINER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""Source: Kubernetes, staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go, IsDNS1123Label."""
# A query names the pod's metrics of podslice first, and cAdvisor's where these are absent.
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


class PrometheusApi:
    """The API of one Prometheus server."""

    def __init__(self, url: str, authority: str = "", *, within_sec: float = EXCHANGE_SEC) -> None:
        """Connect nothing yet.

        Args:
            url: the address of the server.
            authority: the certificates to trust, in PEM; without any, the host's.
            within_sec: the time for each query.

        Raises:
            InputError: the address or a certificate is not valid.
        """
        self._server = parse_url(
            url,
            _PORTS,
            where="--prometheus",
            what="the URL of a server",
            hint="write http://127.0.0.1:9090, for example",
            credentials_hint="use a proxy that adds them",
        )
        self._tls = _make_tls(self._server, authority)
        self._within_sec = within_sec

    def read_history(self, key: str, now_sec: int) -> PodHistory | None:
        """Return the history of a pod, `namespace/name`; None if the server has no usage of it.

        Raises:
            ServerError: the server does not answer, or not with series.
        """
        namespace, _, pod = key.partition("/")
        names = {"namespace": json.dumps(namespace), "pod": json.dumps(pod)}

        def ask(queries: dict[str, str]) -> dict[str, tuple[Series, ...]]:
            return {
                what: self._query(query.format(**names), now_sec) for what, query in queries.items()
            }

        of_pod = ask(_OF_PODS)
        if not (of_pod["cpu"] or of_pod["memory"]):
            return None
        of_containers = ask(_OF_EACH_CONTAINER)
        try:
            return make_pod_history(of_pod, of_containers)
        except InputError as error:
            raise self._error(error) from error

    def _query(self, query: str, now_sec: int) -> tuple[Series, ...]:
        """Return the series of a range query over the time that histories last."""
        fields = {"query": query, "start": now_sec - KEPT_SEC, "end": now_sec, "step": STEP_SEC}
        try:
            reply = get(
                self._server,
                f"/api/v1/query_range?{urlencode(fields)}",
                tls=self._tls,
                headers={"Accept": "application/json"},
                limit_bytes=ANSWER_BYTES_MAX,
                within_sec=self._within_sec,
            )
        except BadReply as error:
            message = f"{self._server}: {describe_error(error)}; {NOT_PROMETHEUS}"
            raise ServerError(message) from error
        except OSError as error:
            hint = choose_hint(
                error, other_name=_USE_OTHER_NAME, unknown=_TRUST, otherwise=_UNREACHABLE
            )
            message = f"{self._server} does not answer: {describe_error(error)}; {hint}"
            raise ServerError(message) from error
        if reply.status != HTTPStatus.OK:
            raise ServerError(f"{self._server}: {parse_error(reply.content, reply.status)}")
        try:
            return parse_range(reply.content)
        except InputError as error:
            raise self._error(error) from error

    def _error(self, error: InputError) -> ServerError:
        return ServerError(f"{self._server}: {'; '.join(map(str, error.problems))}")


def _make_tls(server: ServerUrl, authority: str) -> ssl.SSLContext | None:
    """Return the context of TLS; None without TLS."""
    where = "--prometheus-ca"
    if not server.is_secure:
        if authority:
            message = "certificates are of no use without encryption"
            raise invalid(message, "write https:// with --prometheus, or leave it out", where=where)
        return None
    try:
        return make_tls(authority)
    except (ssl.SSLError, ValueError) as error:
        message = f"the certificates are not valid: {describe_error(error)}"
        raise invalid(message, "state a file of certificates in PEM", where=where) from error


def make_pod_history(
    of_pod: Mapping[str, Sequence[Series]], of_containers: Mapping[str, Sequence[Series]]
) -> PodHistory:
    """Return the history of a pod and its containers.

    Args:
        of_pod: the series of the pod: `cpu`, `memory` and `kills`.
        of_containers: the series of all of its containers.

    Raises:
        InputError: there are too many containers, or one has a name that no container has.
    """
    found: dict[str, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for what, several in of_containers.items():
        for series in several:
            found[series.labels.get("container", "")][what].append(series)
    if len(found) > CONTAINERS_MAX:
        raise invalid(f"the answer has more than {CONTAINERS_MAX:,} containers of one pod")
    if any(not _CONTAINER_NAME.fullmatch(name) for name in found):
        raise invalid("the answer has a series without a valid name of a container")
    return PodHistory(
        pod=make_history(**of_pod),
        containers={
            name: make_history(*(by_what[what] for what in ("cpu", "memory", "kills")))
            for name, by_what in sorted(found.items())
            if by_what["cpu"] or by_what["memory"]
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
    return history._replace(
        first_sec=min(times, default=0),
        last_sec=max(times, default=0),
        samples=max(len(used), len(held)) * (STEP_SEC // 60),
    )


def _points(found: Iterable[Series]) -> Iterator[tuple[int, float]]:
    return ((at_sec, max(value, 0.0)) for series in found for at_sec, value in series.points)


VALUES_MAX = 350_000
"""Objects and arrays of an answer: each value is one, and an empty one takes 30 times its text."""
_MESSAGE_MAX = 200
_NUMBER_MAX = 40
"""Characters of a number; Prometheus writes 24 at most."""
_VALUE_MAX = 2.0**63
"""Larger than any number of bytes or CPUs."""
_SEC_MAX = 2.0**53
NOT_PROMETHEUS = "is it the address of a Prometheus server?"
_MORE_IN_LOG = "the log of the server may have more"
_REMEDIES = {
    "timeout": "allow queries more time with --query.timeout of the server",
    "execution": "if it loads too many samples, increase --query.max-samples of the server",
    "canceled": "run the command again",
}
"""The way out by `errorType`.

Source: Prometheus, web/api/v1/api.go, errorTimeout, errorExec, errorCanceled; docs/command-line.
"""
_CREDENTIALS = "credentials are not supported; use a proxy that adds them"
_NO_REDIRECTION = "redirections are not followed; state the final address"
_STATUS_REMEDIES = {
    **dict.fromkeys((301, 302, 303, 307, 308), _NO_REDIRECTION),
    **dict.fromkeys((401, 403), _CREDENTIALS),
    404: NOT_PROMETHEUS,
}
"""The way out where a server, or a proxy before it, does not answer with JSON."""
_PHRASES = {int(each): each.phrase for each in HTTPStatus}


class Series(NamedTuple):
    """One series: its labels, and its values at times in seconds since the Unix epoch."""

    labels: Mapping[str, str]
    points: tuple[tuple[int, float], ...]


def parse_range(text: bytes) -> tuple[Series, ...]:
    """Parse the answer of `/api/v1/query_range`.

    Values that are not finite, or 2^63 and more, are left out.

    Source: Prometheus, docs/querying/api.md, "Range queries".

    Raises:
        InputError: it is not such an answer, or has too many values.
    """
    answer = _parse(text)
    if answer is None:
        message = f"the answer is not JSON, or has more than {VALUES_MAX:,} values"
        raise invalid(message, NOT_PROMETHEUS)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise InputError(_refusal(answer))
    try:
        return _series(answer["data"]["result"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise invalid("the answer has no series of values") from None


def parse_error(text: bytes, status: int) -> Problem:
    """Return the problem that an answer with another status than 200 states, with the way out.

    Source: Prometheus, docs/querying/api.md, "Format overview".
    """
    answer = _parse(text)
    if isinstance(answer, dict) and answer.get("status") == "error":
        return _refusal(answer)
    reason = f"{status} {_PHRASES.get(status, '')}".rstrip()
    return Problem(
        message=f"the server answers {reason}", hint=_STATUS_REMEDIES.get(status, _MORE_IN_LOG)
    )


def _parse(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value; None if it is not JSON, or has too many values."""
    if text.count(b"{") + text.count(b"[") > VALUES_MAX:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refusal(answer: Any) -> Problem:  # noqa: ANN401 - any JSON value
    """Return the problem that an answer without success states."""
    fields = answer if isinstance(answer, dict) else {}
    error, kind = fields.get("error"), fields.get("errorType")
    shown = error if error and isinstance(error, str) else "no reason is stated"
    hint = _REMEDIES.get(kind, _MORE_IN_LOG) if isinstance(kind, str) else _MORE_IN_LOG
    message = f"the server refuses the query: {printable(shown[:_MESSAGE_MAX])}"
    return Problem(message=message, hint=hint)


def _series(result: object) -> tuple[Series, ...]:
    """Return the series; raises what access to wrong values raises."""
    if not isinstance(result, list):
        raise TypeError
    return tuple(
        Series(labels=_labels(each["metric"]), points=tuple(_sample_points(each["values"])))
        for each in result
    )


def _labels(metric: object) -> dict[str, str]:
    if isinstance(metric, dict) and all(isinstance(label, str) for label in metric.values()):
        return metric
    raise TypeError


def _sample_points(values: object) -> Iterator[tuple[int, float]]:
    """Yield the times and the values that are possible."""
    if not isinstance(values, list):
        raise TypeError
    for at, text in values:
        if not isinstance(text, str) or len(text) > _NUMBER_MAX:
            raise TypeError
        value = float(text)
        if -_VALUE_MAX < value < _VALUE_MAX:  # not so for NaN
            yield _at(at), value


def _at(at: object) -> int:
    if isinstance(at, int | float) and 0 <= at < _SEC_MAX:
        return int(at)
    raise ValueError
