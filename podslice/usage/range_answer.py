"""The answer of a Prometheus server to a range query."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from podslice.errors import InputError, Problem, invalid, printable

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series: its labels, and its values at times in seconds since the Unix epoch."""

    labels: Mapping[str, str]
    points: tuple[tuple[int, float], ...]


def parse_range(text: bytes) -> tuple[Series, ...]:
    """Parse the answer of `/api/v1/query_range`.

    Values that are not finite, and those of 2^63 and more, are left out.

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
        Series(labels=_labels(each["metric"]), points=tuple(_points(each["values"])))
        for each in result
    )


def _labels(metric: object) -> dict[str, str]:
    if isinstance(metric, dict) and all(isinstance(label, str) for label in metric.values()):
        return metric
    raise TypeError


def _points(values: object) -> Iterator[tuple[int, float]]:
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
