"""Builds metric families, from samples of control groups and from other values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from podslice.agent.counters import Histogram
from podslice.kernel.cgroup import Sample
from podslice.model.codec import parse_device_limits
from podslice.model.properties import PROPERTIES
from podslice.model.resources import CPU, PIDS, Amounts
from podslice.model.unit import PropertyValue

RESOURCE = ("resource", "unit")
_UNITS = {CPU: "cores", PIDS: "integer"}

Labels = tuple[str, ...]
Properties = tuple[PropertyValue, ...]
Family = CounterMetricFamily | GaugeMetricFamily


class SampleMetric(NamedTuple):
    """One metric of a sample."""

    name: str
    help: str
    of: Callable[[Sample], float | None]


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1e6


def _waiting(resource: str, sample: Sample) -> float | None:
    found = sample.pressure.get(resource)
    return None if found is None else found.some.usec / 1e6


def _stalled(resource: str, sample: Sample) -> float | None:
    found = sample.pressure.get(resource)
    return None if found is None else found.full.usec / 1e6


def usage_metrics(prefix: str, what: str) -> tuple[SampleMetric, ...]:
    """Return the metrics that the kubelet has for nodes, pods and containers."""
    return (
        SampleMetric(
            f"{prefix}_cpu_usage_seconds_total",
            f"Cumulative cpu time consumed by the {what} in core-seconds",
            lambda sample: _seconds(sample.cpu_usec),
        ),
        SampleMetric(
            f"{prefix}_memory_working_set_bytes",
            f"Current working set of the {what} in bytes",
            lambda sample: sample.working_set_bytes,
        ),
        SampleMetric(
            f"{prefix}_swap_usage_bytes",
            f"Current amount of the {what} swap usage in bytes",
            lambda sample: sample.swap_bytes,
        ),
    )


def detail_metrics(
    prefix: str, *, tasks: str = "tasks", oom_kills: str = "oom_kills_total"
) -> tuple[SampleMetric, ...]:
    """Return metrics for why something is slow or was killed."""
    return (
        SampleMetric(
            f"{prefix}_memory_usage_bytes",
            "Memory usage in bytes, including the page cache",
            lambda sample: sample.memory_bytes,
        ),
        SampleMetric(
            f"{prefix}_{tasks}", "Number of processes and threads", lambda sample: sample.tasks
        ),
        SampleMetric(
            f"{prefix}_cpu_cfs_periods_total",
            "Number of elapsed CPU quota periods",
            lambda sample: sample.periods,
        ),
        SampleMetric(
            f"{prefix}_cpu_cfs_throttled_periods_total",
            "Number of throttled CPU quota periods",
            lambda sample: sample.throttled_periods,
        ),
        SampleMetric(
            f"{prefix}_cpu_cfs_throttled_seconds_total",
            "Total time throttled by the CPU quota in seconds",
            lambda sample: _seconds(sample.throttled_usec),
        ),
        SampleMetric(
            f"{prefix}_{oom_kills}",
            "Number of processes killed by the OOM killer",
            lambda sample: sample.oom_kills,
        ),
    )


PRESSURE_METRICS = {
    "waiting": ("Total time in which some tasks waited for the resource in seconds", _waiting),
    "stalled": ("Total time in which all tasks waited for the resource in seconds", _stalled),
}
PRESSURE_RESOURCES = ("cpu", "memory", "io")


def make_family(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Labels, float | None]]
) -> Family:
    """Return a family of the values that are not None."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family: Family = kind(name, text, labels=labels)
    for labelled, value in values:
        if value is not None:
            family.add_metric(labelled, value)
    return family


def number_families(*rows: tuple[str, str, float | None]) -> Iterator[Family]:
    """Yield families of one value without labels, from their names, help texts and values."""
    for name, text, value in rows:
        yield make_family(name, text, (), [((), value)])


def sample_families(
    metrics: Iterable[SampleMetric], labels: Sequence[str], samples: Sequence[tuple[Labels, Sample]]
) -> Iterator[Family]:
    """Yield one family per metric."""
    for metric in metrics:
        values = ((labelled, metric.of(sample)) for labelled, sample in samples)
        yield make_family(metric.name, metric.help, labels, values)


def pressure_families(
    what: str, labels: Sequence[str], samples: Sequence[tuple[Labels, Sample]]
) -> Iterator[Family]:
    """Yield the waiting times by resource."""
    for name, (text, of) in PRESSURE_METRICS.items():
        values = (
            ((*labelled, resource), of(resource, sample))
            for labelled, sample in samples
            for resource in PRESSURE_RESOURCES
        )
        yield make_family(
            f"podslice_{what}_pressure_{name}_seconds_total", text, (*labels, "resource"), values
        )


def amounts_by_unit(amounts: Amounts) -> Iterator[tuple[Labels, float]]:
    """Yield amounts with the labels `resource` and `unit`."""
    for resource in sorted(amounts):
        yield (resource, _UNITS.get(resource, "bytes")), amounts[resource] / 1000


def property_families(
    what: str, text: str, labels: Sequence[str], found: Iterable[tuple[Labels, Properties]]
) -> Iterator[Family]:
    """Yield the limits of units by resource, the limits of their devices, and weights.

    Args:
        what: `pod` or `container`.
        text: the help of the limits.
        labels: the names of the labels of a unit.
        found: the values of these labels, and the properties of the unit.
    """
    samples = [
        (family, (*labelled, *more), value)
        for labelled, properties in found
        for family, more, value in _property_samples(properties)
    ]
    for family, help_, more in (
        ("resource_limit", text, RESOURCE),
        (
            "device_limit",
            "Limits of input and output by device; absent without a limit",
            (*RESOURCE, "device"),
        ),
        ("resource_weight", "Weights under contention; absent where none is stated", RESOURCE[:1]),
    ):
        values = ((labelled, value) for of, labelled, value in samples if of == family)
        yield make_family(f"podslice_{what}_{family}", help_, (*labels, *more), values)


def _property_samples(properties: Properties) -> Iterator[tuple[str, Labels, float]]:
    """Yield the family of each value, its further labels, and the value in base units."""
    for each in properties:
        row = PROPERTIES[each.name]
        if row.metric is None or each.value == row.unset:
            continue
        labels, base = (row.metric.resource, row.metric.unit), row.codec.base
        if isinstance(each.value, str):
            for device, limit in parse_device_limits(each.value):
                yield "device_limit", (*labels, device), limit / base
        elif row.metric.unit:
            yield "resource_limit", labels, each.value / base
        else:
            yield "resource_weight", labels[:1], each.value


def histogram_family(
    name: str, text: str, found: Mapping[Labels, Histogram], labels: Sequence[str] = ()
) -> HistogramMetricFamily:
    """Return a family of durations."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for labelled, each in found.items():
        sums = list(accumulate(each.counts))
        bounds = (*map(floatToGoString, each.bounds_sec), "+Inf")
        family.add_metric(labelled, list(zip(bounds, sums, strict=True)), each.sum_sec)
    return family


class _Single(Collector):
    """A collector of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return [self._family]


def format_family(family: Metric) -> bytes:
    """Format a family with its samples in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Single(family))
    return generate_latest(registry)
