"""The answer of a Prometheus server to a range query."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from podslice.dataclass import dataclass
from podslice.errors import invalid, printable

POINTS_MAX = 1_000_000
_MESSAGE_MAX = 200
_SEC_MAX = 2.0**53


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
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise invalid(
            "the answer is not JSON", "is it the address of a Prometheus server?"
        ) from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        message = answer.get("error") if isinstance(answer, dict) else None
        shown = printable(str(message or "no reason is stated")[:_MESSAGE_MAX])
        raise invalid(f"the server refuses the query: {shown}")
    try:
        return _series(answer["data"]["result"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise invalid("the answer has no series of values") from None


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
