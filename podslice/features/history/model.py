"""The history of usage of a pod, a container or a slice: two histograms, and what spoils them.

Times are seconds since the Unix epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import starmap
from typing import Any, NamedTuple

from podslice.features.history.day import DAY_SEC, STEP_SEC, Day, Point

_BUCKET = struct.Struct("<Hd")


class DecayingHistogram(NamedTuple):
    """Weights of buckets, in which later samples count more than earlier ones."""

    packed: bytes = b""
    """The index and the weight of each bucket with samples, in their order.

    A `dict` takes five times the memory, and an agent has thousands of histograms.
    """
    reference_sec: int = 0
    """The time at which a sample counts with its own weight."""

    @classmethod
    def of(cls, weights: Mapping[int, float], reference_sec: int = 0) -> DecayingHistogram:
        """Return the histogram with these weights; indexes are below 2^16."""
        packed = b"".join(starmap(_BUCKET.pack, sorted(weights.items())))
        return cls(packed=packed, reference_sec=reference_sec)

    def add(self, bucket: int, weight: float) -> DecayingHistogram:
        """Return the histogram with this weight added to a bucket."""
        weights = self.weights
        if bucket not in weights:
            return DecayingHistogram.of(weights | {bucket: weight}, self.reference_sec)
        # all others stay: this is the usual sample, one a minute for each of a thousand histograms
        at = [*weights].index(bucket) * _BUCKET.size
        entry = _BUCKET.pack(bucket, weights[bucket] + weight)
        packed = self.packed[:at] + entry + self.packed[at + _BUCKET.size :]
        return DecayingHistogram(packed=packed, reference_sec=self.reference_sec)

    @property
    def weights(self) -> dict[int, float]:
        """Return the sums of the weights of samples, as of `reference_sec`, by index of the bucket."""
        return dict(_BUCKET.iter_unpack(self.packed))


class MemoryPeaks(NamedTuple):
    """The peaks of finished windows as a histogram, and the peak of the present window."""

    finished: DecayingHistogram = DecayingHistogram()
    window_end_sec: int = 0
    """The end of the present window; 0 before the first sample."""
    observed_bytes: int = 0
    """The peak of the present window that was observed."""
    oom_bytes: int = 0
    """What an OOM kill in the present window suggests; 0 without one."""

    @property
    def peak_bytes(self) -> int:
        """Return the peak of the present window."""
        return max(self.observed_bytes, self.oom_bytes)


class WaitTimes(NamedTuple):
    """How long tasks waited for a CPU or memory, and for how long that was observed.

    Each is a sum in seconds, as of `at_sec`: earlier times count less.
    """

    at_sec: int = 0
    observed_sec: float = 0.0
    cpu_sec: float = 0.0
    memory_sec: float = 0.0


class UsageHistory(NamedTuple):
    """The history of one pod, container or slice."""

    first_sec: int = 0
    """The time of the first CPU sample; 0 before it."""
    last_sec: int = 0
    """The time of the last sample."""
    samples: int = 0
    """The number of CPU samples."""
    cpu: DecayingHistogram = DecayingHistogram()
    memory: MemoryPeaks = MemoryPeaks()
    waits: WaitTimes = WaitTimes()
    oom_kills: int = 0
    """The OOM kills up to `oom_kill_sec`, each within the time that a history lasts of the next."""
    oom_kill_sec: int = 0
    """The time of the last one; 0 without one."""


class PodHistory(NamedTuple):
    """The histories of a pod as a whole, and of its containers by name."""

    pod: UsageHistory = UsageHistory()
    containers: Mapping[str, UsageHistory] = {}
    day: Day = Day()


# Histories as JSON documents, and back. The weights of a histogram become whole numbers relative to the
# largest one. Source: VPA recommender, util/histogram.go, SaveToChekpoint, LoadFromCheckpoint.

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
    day = [list(point) for point in history.day.points]
    return {"version": VERSION, "pod": _format(history.pod), "containers": containers, "day": day}


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
        pod=_parse(UsageHistory(), document.get("pod")),
        containers={str(name): _parse(UsageHistory(), each) for name, each in containers.items()},
        day=_parse_day(document.get("day", [])),
    )


def _format(value: Any) -> Any:  # noqa: ANN401 - any value of a history
    """Return a value as JSON; the finished windows are part of the memory, not below it."""
    if isinstance(value, DecayingHistogram):
        return _format_histogram(value)
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, int):
        return value
    document = {name: _format(each) for name, each in value._asdict().items()}
    return {**document.pop("finished", {}), **document}


def _parse(empty: Any, found: object) -> Any:  # noqa: ANN401 - any value of a history
    """Return the value of a document; its fields have the types that they have in an empty one."""
    document, fields = _mapping(found), dict[str, Any]()
    for name, value in empty._asdict().items():
        if isinstance(value, DecayingHistogram):
            below = document if name == "finished" else _mapping(document.get(name))
            fields[name] = _parse_histogram(below)
        elif isinstance(value, MemoryPeaks | WaitTimes):
            fields[name] = _parse(value, document.get(name))
        else:
            read = _float if isinstance(value, float) else _whole
            fields[name] = read(document, name)
    return empty._replace(**fields)


def _parse_day(found: object) -> Day:
    if not isinstance(found, list) or len(found) > DAY_SEC // STEP_SEC:
        raise ValueError("day is not the list of a day's values")
    points = []
    for each in found:
        if not isinstance(each, list) or len(each) != len(Point._fields):
            raise ValueError(f"each value of day has {len(Point._fields)} numbers")
        numbers = dict(zip(Point._fields, each, strict=True))
        points.append(Point(*(_whole(numbers, name) for name in Point._fields)))
    return Day.of(points)


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
    # whole numbers relative to the largest weight, and the sum of the weights as it was
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
