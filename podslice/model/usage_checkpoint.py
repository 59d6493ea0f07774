"""Histories of usage as JSON documents, and back: a formatter and its inverse.

The weights of a histogram become whole numbers relative to the largest one.

Source: VPA recommender, util/histogram.go, SaveToChekpoint, LoadFromCheckpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.model.usage_history import (
    DecayingHistogram,
    MemoryPeaks,
    PodHistory,
    UsageHistory,
    WaitTimes,
)

VERSION = 1
_WEIGHT_MAX = 10_000
"""Source: VPA recommender, util/histogram.go, MaxCheckpointWeight."""
_BUCKETS_MAX = 1024
_NUMBER_MAX = 2**63
_FLOAT_MAX = 2.0**200
"""Weights are at most the 100th power of 2, times the number of samples."""

Document = dict[str, Any]


def format_pod_history(history: PodHistory) -> Document:
    """Return the document of a pod with its containers."""
    containers = {name: _format(each) for name, each in sorted(history.containers.items())}
    return {"version": VERSION, "pod": _format(history.pod), "containers": containers}


def parse_pod_history(found: object) -> PodHistory:
    """Parse the document of a pod.

    Raises:
        ValueError: it is not such a document, or of another version.
    """
    document = _mapping(found)
    if document.get("version") != VERSION:
        raise ValueError(f"version {document.get('version')} is not supported")
    containers = _mapping(document.get("containers"))
    return PodHistory(
        pod=_parse(document.get("pod")),
        containers={str(name): _parse(each) for name, each in containers.items()},
    )


def _format(history: UsageHistory) -> Document:
    memory, waits = history.memory, history.waits
    return {
        "first_sec": history.first_sec,
        "last_sec": history.last_sec,
        "samples": history.samples,
        "cpu": _format_histogram(history.cpu),
        "memory": {
            **_format_histogram(memory.finished),
            "window_end_sec": memory.window_end_sec,
            "observed_bytes": memory.observed_bytes,
            "oom_bytes": memory.oom_bytes,
        },
        "waits": {
            "at_sec": waits.at_sec,
            "observed_sec": round(waits.observed_sec, 3),
            "cpu_sec": round(waits.cpu_sec, 3),
            "memory_sec": round(waits.memory_sec, 3),
        },
        "oom_kills": history.oom_kills,
        "oom_kill_sec": history.oom_kill_sec,
    }


def _parse(found: object) -> UsageHistory:
    document = _mapping(found)
    memory, waits = _mapping(document.get("memory")), _mapping(document.get("waits"))
    return UsageHistory(
        first_sec=_whole(document, "first_sec"),
        last_sec=_whole(document, "last_sec"),
        samples=_whole(document, "samples"),
        cpu=_parse_histogram(_mapping(document.get("cpu"))),
        memory=MemoryPeaks(
            finished=_parse_histogram(memory),
            window_end_sec=_whole(memory, "window_end_sec"),
            observed_bytes=_whole(memory, "observed_bytes"),
            oom_bytes=_whole(memory, "oom_bytes"),
        ),
        waits=WaitTimes(
            at_sec=_whole(waits, "at_sec"),
            observed_sec=_float(waits, "observed_sec"),
            cpu_sec=_float(waits, "cpu_sec"),
            memory_sec=_float(waits, "memory_sec"),
        ),
        oom_kills=_whole(document, "oom_kills"),
        oom_kill_sec=_whole(document, "oom_kill_sec"),
    )


def _format_histogram(histogram: DecayingHistogram) -> Document:
    weights = histogram.weights
    largest = max(weights.values(), default=0.0)
    scaled = {
        str(bucket): int(weight / largest * _WEIGHT_MAX + 0.5) for bucket, weight in weights.items()
    }
    return {
        "reference_sec": histogram.reference_sec,
        "weight": sum(weights.values()),
        "buckets": {bucket: weight for bucket, weight in scaled.items() if weight},
    }


def _parse_histogram(found: Mapping[str, Any]) -> DecayingHistogram:
    buckets = _mapping(found.get("buckets"))
    weights = {_bucket(name): _whole(buckets, name) for name in buckets}
    total, weight = sum(weights.values()), _float(found, "weight")
    reference = _whole(found, "reference_sec")
    if not total:
        return DecayingHistogram(reference_sec=reference)
    scaled = {bucket: each * weight / total for bucket, each in weights.items()}
    return DecayingHistogram.of(scaled, reference)


def _bucket(name: str) -> int:
    index = int(name) if name.isascii() and name.isdecimal() and len(name) <= 4 else _BUCKETS_MAX
    if index >= _BUCKETS_MAX:
        raise ValueError(f"{name!r} is not the index of a bucket")
    return index


def _mapping(found: object) -> Mapping[str, Any]:
    if isinstance(found, dict):
        return found
    raise ValueError("a mapping is missing")


def _whole(found: Mapping[str, Any], key: str) -> int:
    number = found.get(key)
    if isinstance(number, int) and 0 <= number < _NUMBER_MAX:
        return int(number)
    raise ValueError(f"{key} is not a whole number")


def _float(found: Mapping[str, Any], key: str) -> float:
    number = found.get(key)
    if isinstance(number, int | float) and 0 <= number < _FLOAT_MAX:
        return float(number)
    raise ValueError(f"{key} is not a number")
