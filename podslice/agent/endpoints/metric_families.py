"""What metrics are made of: families, and what each tells of a control group's sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

from podslice.agent.counters import Histogram
from podslice.agent.endpoints.snapshot import Limits
from podslice.kernel.cgroup import Sample
from podslice.model.resources import CPU, MEMORY, PIDS, Amounts

RESOURCE = ("resource", "unit")
_UNITS = {CPU: "cores", PIDS: "integer"}

Labels = tuple[str, ...]
Family = CounterMetricFamily | GaugeMetricFamily


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric that is read off a sample."""

    name: str
    help: str
    of: Callable[[Sample], float | None]


# What a sample tells.


def _seconds(usec: int | None) -> float | None:
    return None if usec is None else usec / 1e6


def _waiting(resource: str, sample: Sample) -> float | None:
    found = sample.pressure.get(resource)
    return None if found is None else found.some.usec / 1e6


def _stalled(resource: str, sample: Sample) -> float | None:
    found = sample.pressure.get(resource)
    return None if found is None else found.full.usec / 1e6


def basics(prefix: str, what: str) -> tuple[Row, ...]:
    """What the kubelet tells of nodes, pods and containers alike."""
    return (
        Row(
            name=f"{prefix}_cpu_usage_seconds_total",
            help=f"Cumulative cpu time consumed by the {what} in core-seconds",
            of=lambda sample: _seconds(sample.cpu_usec),
        ),
        Row(
            name=f"{prefix}_memory_working_set_bytes",
            help=f"Current working set of the {what} in bytes",
            of=lambda sample: sample.working_set_bytes,
        ),
        Row(
            name=f"{prefix}_swap_usage_bytes",
            help=f"Current amount of the {what} swap usage in bytes",
            of=lambda sample: sample.swap_bytes,
        ),
    )


def details(
    prefix: str, *, tasks: str = "tasks", oom_kills: str = "oom_kills_total"
) -> tuple[Row, ...]:
    """What tells why something is slow or gone."""
    return (
        Row(
            name=f"{prefix}_memory_usage_bytes",
            help="Memory in use, with all of the page cache",
            of=lambda sample: sample.memory_bytes,
        ),
        Row(
            name=f"{prefix}_{tasks}",
            help="Processes and threads",
            of=lambda sample: sample.tasks,
        ),
        Row(
            name=f"{prefix}_cpu_cfs_periods_total",
            help="Periods in which the CPU quota was asked for",
            of=lambda sample: sample.periods,
        ),
        Row(
            name=f"{prefix}_cpu_cfs_throttled_periods_total",
            help="Periods in which the CPU quota was used up",
            of=lambda sample: sample.throttled_periods,
        ),
        Row(
            name=f"{prefix}_cpu_cfs_throttled_seconds_total",
            help="Time for which the CPU quota kept it from running",
            of=lambda sample: _seconds(sample.throttled_usec),
        ),
        Row(
            name=f"{prefix}_{oom_kills}",
            help="Processes that the kernel has killed for want of memory",
            of=lambda sample: sample.oom_kills,
        ),
    )


PRESSURES = {
    "waiting": ("Time in which some task waited for the resource", _waiting),
    "stalled": ("Time in which nothing was done but wait for the resource", _stalled),
}
PRESSED = ("cpu", "memory", "io")


def _family(name: str, text: str, labels: Sequence[str] = ()) -> Family:
    if name.endswith("_total"):
        return CounterMetricFamily(name, text, labels=labels)
    return GaugeMetricFamily(name, text, labels=labels)


def filled(
    name: str,
    text: str,
    labels: Sequence[str],
    values: Iterable[tuple[Labels, float | None]],
) -> Family:
    """A family with the values that there are."""
    family = _family(name, text, labels)
    for labelled, value in values:
        if value is not None:
            family.add_metric(labelled, value)
    return family


def read_off(
    rows: Iterable[Row], labels: Sequence[str], samples: Sequence[tuple[Labels, Sample]]
) -> Iterator[Family]:
    """One family for each row."""
    for row in rows:
        values = ((labelled, row.of(sample)) for labelled, sample in samples)
        yield filled(row.name, row.help, labels, values)


def pressures(
    what: str, labels: Sequence[str], samples: Sequence[tuple[Labels, Sample]]
) -> Iterator[Family]:
    """Who waited for what, by resource."""
    for name, (text, of) in PRESSURES.items():
        values = (
            ((*labelled, resource), of(resource, sample))
            for labelled, sample in samples
            for resource in PRESSED
        )
        yield filled(
            f"podslice_{what}_pressure_{name}_seconds_total", text, (*labels, "resource"), values
        )


def in_units(amounts: Amounts) -> Iterator[tuple[Labels, float]]:
    """Each amount with the labels `resource` and `unit`."""
    for resource in sorted(amounts):
        yield (resource, _UNITS.get(resource, "bytes")), amounts[resource] / 1000


def in_limits(limits: Limits) -> Iterator[tuple[Labels, float]]:
    """Each limit with the same labels."""
    if limits.cpu_usec_per_sec is not None:
        yield (CPU, "cores"), limits.cpu_usec_per_sec / 1e6
    if limits.memory_bytes is not None:
        yield (MEMORY, "bytes"), limits.memory_bytes


def histogram(
    name: str, text: str, found: Mapping[Labels, Histogram], labels: Sequence[str] = ()
) -> HistogramMetricFamily:
    """A family of durations."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for labelled, each in found.items():
        sums = list(accumulate(each.counts))
        bounds = (*map(floatToGoString, each.bounds_sec), "+Inf")
        family.add_metric(labelled, list(zip(bounds, sums, strict=True)), each.sum_sec)
    return family
