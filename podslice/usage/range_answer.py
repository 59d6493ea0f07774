"""The answer of a Prometheus server to a range query."""

from __future__ import annotations

import http.client
import json
import math
from collections.abc import Mapping
from typing import Any

from podslice.dataclass import dataclass
from podslice.errors import InputError, Problem, invalid, printable

POINTS_MAX = 1_000_000
_MESSAGE_MAX = 200
_SEC_MAX = 2.0**53
_NOT_PROMETHEUS = "is it the address of a Prometheus server?"
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
_STATUS_REMEDIES = {401: _CREDENTIALS, 403: _CREDENTIALS, 404: _NOT_PROMETHEUS}
"""The way out where a server, or a proxy before it, does not answer with JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series: its labels, and its values at times in seconds since the Unix epoch."""

    labels: Mapping[str, str]
    points: tuple[tuple[int, float], ...]


def parse_range(text: bytes) -> tuple[Series, ...]:
    """Parse the answer of `/api/v1/query_range`; values that are not finite are left out.

    Source: Prometheus, docs/querying/api.md, "Range queries".

    Raises:
        InputError: it is not such an answer, or has too many values.
    """
    answer = _parse(text)
    if answer is None:
        raise invalid("the answer is not JSON", _NOT_PROMETHEUS)
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
    reason = f"{status} {http.client.responses.get(status, '')}".rstrip()
    return Problem(
        message=f"the server answers {reason}", hint=_STATUS_REMEDIES.get(status, _MORE_IN_LOG)
    )


def _parse(text: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refusal(answer: Any) -> Problem:  # noqa: ANN401 - any JSON value
    """Return the problem that an answer without success states."""
    fields = answer if isinstance(answer, dict) else {}
    shown = printable(str(fields.get("error") or "no reason is stated")[:_MESSAGE_MAX])
    hint = _REMEDIES.get(str(fields.get("errorType")), _MORE_IN_LOG)
    return Problem(message=f"the server refuses the query: {shown}", hint=hint)


def _series(result: Any) -> tuple[Series, ...]:  # noqa: ANN401 - any JSON value
    """Return the series; raises what access to wrong values raises."""
    if not isinstance(result, list) or sum(len(each["values"]) for each in result) > POINTS_MAX:
        raise ValueError
    return tuple(
        Series(
            labels={str(name): str(label) for name, label in dict(each["metric"]).items()},
            points=tuple(
                (int(_at(at)), value)
                for at, text in each["values"]
                if math.isfinite(value := float(text))
            ),
        )
        for each in result
    )


def _at(at: object) -> float:
    if isinstance(at, int | float) and 0 <= at < _SEC_MAX:
        return float(at)
    raise ValueError
