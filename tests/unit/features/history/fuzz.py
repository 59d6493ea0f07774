"""Fuzz targets: answers of Prometheus, and recorded histories."""

from __future__ import annotations

import contextlib
from pathlib import Path

from podslice.errors import HostError, InputError
from podslice.features.history.files import UsageFiles
from podslice.features.history.model import PodHistory
from podslice.features.history.prometheus import (
    make_history,
    make_pod_history,
    parse_error,
    parse_range,
)
from podslice.features.history.recommendation import recommend_pod
from tests.fuzz.target import JSON, Target, check_problems, scratch

CORPUS = Path(__file__).parent / "corpus"


def run_range(data: bytes) -> None:
    """Read an answer of Prometheus; the series that are read become the history of a pod."""
    check_problems((parse_error(data, 503),))
    try:
        series = parse_range(data)
        found = dict.fromkeys(("cpu", "memory", "kills"), series)
        recommend_pod("a/b", PodHistory(pod=make_history(**found)), 1_700_000_000)
        recommend_pod("a/b", make_pod_history(found, found), 1_700_000_000)
    except InputError as error:
        check_problems(error.problems)


def run_usage(data: bytes) -> None:
    """Read a damaged history of usage; one that is read is used, and written again."""
    files = UsageFiles(scratch() / "usage")
    path = files.pod_path("default/web")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    with contextlib.suppress(HostError):
        history = files.read(path)
        assert history is not None
        recommend_pod("default/web", history, 1_700_000_000)
        files.write(path, history)
        assert files.read(path) is not None


TARGETS = (
    Target(
        home=CORPUS,
        name="range",
        run=run_range,
        tokens=(
            *JSON,
            b'"values":[[',
            b'"1e308"',
            b'"NaN"',
            b"1e300",
            b'"metric":{',
            b"success",
            b'"container":"a"',
        ),
        calls=400,
    ),
    Target(
        home=CORPUS,
        name="usage",
        run=run_usage,
        tokens=(*JSON, b"1e308", b"-1", b"9223372036854775807", b'"buckets":{', b'"175":10000'),
        calls=2000,
    ),
)
