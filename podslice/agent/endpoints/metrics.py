"""Metrics for Prometheus.

Names are the kubelet's, and those of the cAdvisor in it, where the meaning is the same; all others
begin with `podslice_`. Amounts are in base units: seconds, bytes, cores.

Source: Kubernetes, pkg/kubelet/metrics/collectors/resource_metrics.go and
pkg/kubelet/metrics/metrics.go; cAdvisor, metrics/prometheus.go.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from itertools import accumulate, chain
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from podslice import __version__
from podslice.agent.context import Counters, Histogram
from podslice.agent.endpoints.http import JSON_TYPE, Response, Route
from podslice.agent.endpoints.kubelet_summary import Json, Summarizer, pod_list
from podslice.agent.endpoints.snapshot import Snapshot, container_properties, pod_properties
from podslice.kernel.cgroup import Sample
from podslice.model.codec import parse_device_limits
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition
from podslice.model.pod import Qos
from podslice.model.properties import PROPERTIES
from podslice.model.resources import CPU, PIDS, Amounts, RecommendedAmounts
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import threshold_amount
from podslice.usage.stats import NodeStats, PodStats

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


_POD = ("namespace", "pod")
_CONTAINER = ("container", *_POD)

_POD_METRICS = (*usage_metrics("pod", "pod"), *detail_metrics("podslice_pod"))
_CONTAINER_METRICS = (
    *usage_metrics("container", "container"),
    *detail_metrics("container", tasks="threads", oom_kills="oom_events_total"),
    *(
        SampleMetric(
            f"container_pressure_{resource}_{name}_seconds_total", text, partial(of, resource)
        )
        for name, (text, of) in PRESSURE_METRICS.items()
        for resource in PRESSURE_RESOURCES
    ),
)


def collect_pods(snapshot: Snapshot, pods: Sequence[PodStats]) -> Iterator[Family]:
    """Yield usage, pressure, requests and limits of pods."""
    samples = [(_pod_labels(pod), pod.sample) for pod in pods]
    yield from sample_families(_POD_METRICS, _POD, samples)
    yield from pressure_families("pod", _POD, samples)
    yield make_family(
        "podslice_pod_resource_request",
        "Requests of the pod, including pod level and overhead",
        (*_POD, *RESOURCE),
        (
            ((*_pod_labels(pod), *labels), value)
            for pod in pods
            for labels, value in amounts_by_unit(pod.decision.requests)
        ),
    )
    yield from property_families(
        "pod",
        "Limits of the pod's slice; absent without a limit",
        _POD,
        ((_pod_labels(pod), pod_properties(pod.decision, snapshot.initializing)) for pod in pods),
    )
    yield make_family(
        "podslice_pod_exclusive_cpus",
        "Number of CPUs that the pod has for itself; absent without any",
        _POD,
        (
            (_pod_labels(pod), len(own))
            for pod in pods
            if (own := snapshot.own_cpus.get(pod.decision.pod.key))
        ),
    )
    yield from _recommended(snapshot, pods)
    yield from _pod_info(pods)
    yield from _volumes(pods)


def _recommended(snapshot: Snapshot, pods: Sequence[PodStats]) -> Iterator[Family]:
    """Yield the recommended requests and limits of pods that have a history of usage."""
    found = [
        (_pod_labels(pod), amounts)
        for pod in pods
        if (amounts := snapshot.recommended.get(pod.decision.pod.key)) is not None
    ]
    of_part: Mapping[str, Callable[[RecommendedAmounts], Amounts]] = {
        "request": lambda amounts: amounts.requests,
        "limit": lambda amounts: amounts.limits,
    }
    for part, amounts_of in of_part.items():
        yield make_family(
            f"podslice_pod_resource_recommended_{part}",
            f"The {part} that fits the recorded usage of the pod",
            (*_POD, *RESOURCE),
            (
                ((*labelled, *labels), value)
                for labelled, amounts in found
                for labels, value in amounts_by_unit(amounts_of(amounts))
            ),
        )


def _pod_labels(pod: PodStats) -> Labels:
    return pod.decision.pod.namespace, pod.decision.pod.name


def _pod_info(pods: Sequence[PodStats]) -> Iterator[Family]:
    yield make_family(
        "podslice_pod_info",
        "QoS class, uid and slice of the pod",
        (*_POD, "qos_class", "uid", "slice"),
        (
            (
                (
                    *_pod_labels(pod),
                    pod.decision.qos.value,
                    pod.decision.pod.uid,
                    pod.decision.slice,
                ),
                1,
            )
            for pod in pods
        ),
    )
    yield make_family(
        "podslice_pod_start_time_seconds",
        "Start time of the pod's slice since the Unix epoch in seconds",
        _POD,
        ((_pod_labels(each), each.started_usec / 1e6) for each in pods),
    )
    yield make_family(
        "podslice_pod_written_bytes_total",
        "Bytes written by the pod, by device",
        (*_POD, "device"),
        (
            ((*_pod_labels(each), device), written)
            for each in pods
            for device, written in sorted(each.sample.written_bytes.items())
        ),
    )
    by_class = Counter(each.decision.qos for each in pods)
    yield make_family(
        "podslice_pods",
        "Number of applied pods, by QoS class",
        ("qos_class",),
        (((qos.value,), by_class[qos]) for qos in Qos),
    )
    yield from number_families(
        ("kubelet_running_pods", "Number of pods that have a slice", len(pods))
    )


def _volumes(pods: Sequence[PodStats]) -> Iterator[Family]:
    found = [((*_pod_labels(pod), each.name), each) for pod in pods for each in pod.volumes]
    yield make_family(
        "podslice_pod_volume_used_bytes",
        "Memory used by the in-memory volume of the pod in bytes",
        (*_POD, "volume"),
        ((labels, each.used_bytes) for labels, each in found),
    )
    yield make_family(
        "podslice_pod_volume_capacity_bytes",
        "Size of the in-memory volume of the pod in bytes",
        (*_POD, "volume"),
        ((labels, each.capacity_bytes) for labels, each in found),
    )


def collect_containers(pods: Sequence[PodStats]) -> Iterator[Family]:
    """Yield usage and limits of running containers."""
    # by label: a runtime may create a scope for processes that are in a service already
    found = {(each.name, *_pod_labels(pod)): (pod, each) for pod in pods for each in pod.containers}
    samples = [(labels, each.sample) for labels, (_, each) in found.items()]
    yield from sample_families(_CONTAINER_METRICS, _CONTAINER, samples)
    yield from property_families(
        "container",
        "Limits of the container's own; absent without a limit",
        _CONTAINER,
        (
            (labelled, container_properties(pod.decision, each.name))
            for labelled, (pod, each) in found.items()
        ),
    )
    yield make_family(
        "kubelet_running_containers",
        "Number of containers that have processes",
        ("container_state",),
        [(("running",), len(found))],
    )


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PROCESS = ProcessCollector(registry=None)
"""The memory, CPU time and open files of this process."""
_GROUP_METRICS = (*usage_metrics("podslice_group", "group"), *detail_metrics("podslice_group"))


def expose(snapshot: Snapshot, stats: NodeStats) -> Iterator[bytes]:
    """Yield all metrics in the text format of Prometheus, family by family."""
    yield from map(format_family, collect(snapshot, stats))


def collect(snapshot: Snapshot, stats: NodeStats) -> Iterator[Metric]:
    """Yield all metric families that have samples."""
    families = chain(
        _node(snapshot, stats),
        _groups(snapshot.allocation, stats),
        collect_pods(snapshot, stats.pods),
        collect_containers(stats.pods),
        _agent(snapshot),
    )
    return (family for family in families if family.samples)


# The node and its parts.


def _node(snapshot: Snapshot, stats: NodeStats) -> Iterator[Family]:
    yield from sample_families(usage_metrics("node", "node"), (), [((), stats.sample)])
    yield from pressure_families("node", (), [((), stats.sample)])
    allocation = snapshot.allocation
    for name, text, amounts in (
        ("capacity", "Capacity of the node", allocation.capacity),
        (
            "allocatable",
            "Resources of the node that pods may request in total",
            allocation.allocatable,
        ),
    ):
        values = amounts_by_unit(amounts)
        yield make_family(f"podslice_node_resource_{name}", text, RESOURCE, values)
    yield from _cpus(snapshot)
    yield from _signals(snapshot)
    yield make_family(
        "podslice_node_condition",
        "Whether the node has the condition",
        ("condition",),
        (((each.value,), each in snapshot.conditions) for each in Condition),
    )


def _cpus(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the sizes of the pools of the CPU manager, if there is one.

    Source: Kubernetes, pkg/kubelet/cm/cpumanager/policy_static.go, initializeMetrics.
    """
    available = snapshot.available_cpus
    if available is None:
        return
    yield from number_families(
        (
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "Number of CPUs that pods have for themselves",
            sum(map(len, snapshot.own_cpus.values())),
        ),
        (
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "CPUs that pods share, without the reserved ones, in thousandths",
            len(available) * 1000,
        ),
    )


def _signals(snapshot: Snapshot) -> Iterator[Family]:
    """Yield eviction signals and thresholds, in bytes, inodes or processes."""
    observed = snapshot.observe()
    label = ("eviction_signal",)
    yield make_family(
        "podslice_eviction_signal_available",
        "Available amount of the eviction signal",
        label,
        (((name,), each.available / 1000) for name, each in sorted(observed.items())),
    )
    yield make_family(
        "podslice_eviction_signal_capacity",
        "Capacity of the eviction signal",
        label,
        (((name,), each.capacity / 1000) for name, each in sorted(observed.items())),
    )
    thresholds = (
        (
            (each.signal, "hard" if each.is_hard else "soft"),
            threshold_amount(each.value, observed[each.signal].capacity) / 1000,
        )
        for each in snapshot.thresholds
        if each.signal in observed
    )
    yield make_family(
        "podslice_eviction_threshold",
        "Available amount below which pods are evicted",
        (*label, "kind"),
        thresholds,
    )


def _groups(allocation: Allocation, stats: NodeStats) -> Iterator[Family]:
    samples = [((each.name,), each.sample) for each in stats.groups]
    yield from sample_families(_GROUP_METRICS, ("group",), samples)
    yield from pressure_families("group", ("group",), samples)
    reserved = {
        "runtime": allocation.kube_reserved,
        "misc": allocation.system_reserved,
        "pods": allocation.enforced,
    }
    yield make_family(
        "podslice_group_resource_reservation",
        "Reservation of the group; for pods, the capacity without all reservations",
        ("group", *RESOURCE),
        (
            ((group, *labels), value)
            for group, amounts in reserved.items()
            for labels, value in amounts_by_unit(amounts)
        ),
    )


# The agent itself.


def collect_agent(
    counters: Counters,
    events: Mapping[Kind, int],
    kinds: Iterable[Kind],
    problems: int,
    *,
    rounds: str,
) -> Iterator[Metric]:
    """Yield the metrics that every agent has.

    Args:
        counters: its counters.
        events: the number of events by kind.
        kinds: the kinds of events that it may report.
        problems: the number of problems that impair it.
        rounds: what happens in a round, for the help.
    """
    yield make_family(
        "podslice_build_info", "Version of the agent", ("version",), [((__version__,), 1)]
    )
    yield histogram_family(
        "podslice_reconcile_duration_seconds",
        f"Duration in seconds of rounds, in which {rounds}",
        {(): counters.reconciles},
    )
    yield make_family(
        "podslice_events_total",
        "Number of events reported to the journal",
        ("kind",),
        (((kind.label,), events.get(kind, 0)) for kind in kinds),
    )
    yield from number_families(
        ("podslice_reconcile_errors_total", "Number of failed rounds", counters.reconcile_errors),
        ("podslice_drift_repaired_total", "External changes undone", counters.drift_repaired),
        ("podslice_problems", "Problems that impair the agent", problems),
    )
    yield from _PROCESS.collect()


def _agent(snapshot: Snapshot) -> Iterator[Metric]:
    counters = snapshot.counters
    rounds = "the node is reconciled"
    problems = len(snapshot.problems)
    yield from collect_agent(counters, snapshot.events, Kind, problems, rounds=rounds)
    yield histogram_family(
        "kubelet_cgroup_manager_duration_seconds",
        "Duration in seconds to create, update or destroy a control group",
        {(kind.value,): found for kind, found in counters.operations.items()},
        ("operation_type",),
    )
    yield histogram_family(
        "podslice_eviction_reaction_seconds",
        "Duration in seconds from crossing a threshold to stopping a pod",
        {(): counters.reactions},
    )
    # counters exist from the start, so that the first event is an increase
    signals = {each.signal for each in snapshot.thresholds} | counters.evictions.keys()
    yield make_family(
        "podslice_evictions_total",
        "Number of evicted pods, by eviction signal",
        ("eviction_signal",),
        (((signal,), counters.evictions[signal]) for signal in sorted(signals)),
    )
    yield from number_families(
        (
            "podslice_oom_kills_total",
            "Number of OOM-killed processes of pods, including removed pods",
            counters.oom_kills,
        ),
        (
            "podslice_oomd_kills_total",
            "Number of kills of containers by systemd-oomd, including those of removed pods",
            counters.oomd_kills,
        ),
        ("podslice_broken_manifests", "Invalid manifest files", counters.broken_manifests),
        ("podslice_orphans", "Slices below the root that belong to no pod", counters.orphans),
        ("podslice_refused_pods", "Number of pods that are not admitted", counters.refused),
        ("podslice_evicted_pods", "Evicted pods that may not run again", snapshot.evicted),
        (
            "podslice_daemon_reloads_total",
            "Number of reloads of systemd since its start (systemd 261 and later)",
            snapshot.reload_count,
        ),
    )


_FRESH_SEC = 1.0
"""How long a response that reads every pod is used for further requests."""


def routes(snapshot: Callable[[], Snapshot]) -> Mapping[str, Route]:
    """Return the routes by path.

    Args:
        snapshot: returns the current snapshot, quickly.
    """
    summarizer = Summarizer()

    async def health() -> Response:
        return health_response(snapshot().problems)

    async def scrape() -> Response:
        now = snapshot()
        body = expose(now, await now.stats())
        return Response(body=body, content_type=CONTENT_TYPE, fresh_sec=_FRESH_SEC)

    async def pods() -> Response:
        now = snapshot()
        return document_response(pod_list(now, await now.stats()))

    async def summary() -> Response:
        now = snapshot()
        return document_response(summarizer.summary(now, await now.stats()))

    return {"/healthz": health, "/metrics": scrape, "/pods": pods, "/stats/summary": summary}


def document_response(document: Json, fresh_sec: float = _FRESH_SEC) -> Response:
    """Return a JSON document, which is used for `fresh_sec` for further requests."""
    body = [json.dumps(document).encode(), b"\n"]
    return Response(body=body, content_type=JSON_TYPE, fresh_sec=fresh_sec)


def health_response(problems: Iterable[str]) -> Response:
    """Return the response `ok`, or the problems with the status 503."""
    text = "".join(f"{each}\n" for each in problems)
    if not text:
        return Response(body=[b"ok\n"])
    return Response(body=[text.encode()], status=HTTPStatus.SERVICE_UNAVAILABLE)
