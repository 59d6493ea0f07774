"""Metrics for Prometheus, and the paths that the agent serves.

Names of metrics are the kubelet's, and cAdvisor's, which is part of it, where the meaning is the
same; all others begin with `podslice_`. Amounts are in base units: seconds, bytes, cores.

Source: Kubernetes, pkg/kubelet/metrics/collectors/resource_metrics.go and
pkg/kubelet/metrics/metrics.go; cAdvisor, metrics/prometheus.go.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from itertools import accumulate, chain

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
from podslice.agent.endpoints.http import Response, Route
from podslice.agent.endpoints.kubelet_summary import Json, Summarizer, pod_list
from podslice.agent.endpoints.snapshot import Snapshot, container_properties
from podslice.kernel.cgroup import Sample
from podslice.model.codec import parse_device_limits
from podslice.model.event import Kind
from podslice.model.node_state import SIZE_LIMIT, Condition
from podslice.model.pod import Qos
from podslice.model.properties import PROPERTIES
from podslice.model.resources import CPU, PIDS, Amounts
from podslice.model.unit import PropertyValue
from podslice.policy.allocatable import threshold_amount
from podslice.usage.stats import NodeStats, PodStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]
Family = CounterMetricFamily | GaugeMetricFamily
Samples = Sequence[tuple[Labels, Sample]]

# How families are made and formatted.


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


def _histogram_family(
    name: str, text: str, found: Mapping[Labels, Histogram], labels: Sequence[str] = ()
) -> HistogramMetricFamily:
    """Return a family of durations."""
    family = HistogramMetricFamily(name, text, labels=labels)
    for labelled, each in found.items():
        bounds = (*map(floatToGoString, each.bounds_sec), "+Inf")
        # The buckets of Prometheus are cumulative.
        sums = accumulate(each.counts)
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


# What control groups have: rows of names, help texts, and fields of samples.

_USAGE = (
    (
        "cpu_usage_seconds_total",
        "Cumulative cpu time consumed by the {what} in core-seconds",
        "cpu_usec",
    ),
    (
        "memory_working_set_bytes",
        "Current working set of the {what} in bytes",
        "working_set_bytes",
    ),
    ("swap_usage_bytes", "Current amount of the {what} swap usage in bytes", "swap_bytes"),
)
"""The metrics that the kubelet has for nodes, pods and containers."""
_DETAILS = (
    ("memory_usage_bytes", "Memory usage in bytes, including the page cache", "memory_bytes"),
    ("tasks", "Number of processes and threads", "tasks"),
    ("cpu_cfs_periods_total", "Number of elapsed CPU quota periods", "periods"),
    (
        "cpu_cfs_throttled_periods_total",
        "Number of throttled CPU quota periods",
        "throttled_periods",
    ),
    (
        "cpu_cfs_throttled_seconds_total",
        "Total time throttled by the CPU quota in seconds",
        "throttled_usec",
    ),
    ("oom_kills_total", "Number of processes killed by the OOM killer", "oom_kills"),
)
"""Metrics for why something is slow or was killed."""
_CADVISOR_NAMES = {"tasks": "threads", "oom_kills_total": "oom_events_total"}
_PRESSURE = (
    ("waiting", "Total time in which some tasks waited for the resource in seconds", "some"),
    ("stalled", "Total time in which all tasks waited for the resource in seconds", "full"),
)
_PRESSURE_RESOURCES = ("cpu", "memory", "io")


def _sample_families(
    prefix: str,
    labels: Sequence[str],
    samples: Samples,
    rows: Iterable[tuple[str, str, str]],
    what: str = "",
) -> Iterator[Family]:
    """Yield one family per row; times are in seconds."""
    for name, text, field in rows:
        unit = 1e6 if field.endswith("_usec") else 1
        values = (
            (labelled, None if (number := getattr(sample, field)) is None else number / unit)
            for labelled, sample in samples
        )
        yield make_family(f"{prefix}_{name}", text.format(what=what), labels, values)


def _pressure_sec(sample: Sample, resource: str, which: str) -> float | None:
    found = sample.pressure.get(resource)
    return None if found is None else getattr(found, which).usec / 1e6


def _pressure_families(what: str, labels: Sequence[str], samples: Samples) -> Iterator[Family]:
    """Yield the waiting times by resource."""
    for name, text, which in _PRESSURE:
        values = (
            ((*labelled, resource), _pressure_sec(sample, resource, which))
            for labelled, sample in samples
            for resource in _PRESSURE_RESOURCES
        )
        full_name = f"podslice_{what}_pressure_{name}_seconds_total"
        yield make_family(full_name, text, (*labels, "resource"), values)


# Amounts and limits.

_RESOURCE = ("resource", "unit")
_UNITS = {CPU: "cores", PIDS: "integer"}


def _amount_family(
    name: str, text: str, labels: Sequence[str], found: Iterable[tuple[Labels, Amounts]]
) -> Family:
    """Return a family of amounts, with the labels `resource` and `unit`."""
    values = (
        ((*labelled, resource, _UNITS.get(resource, "bytes")), amounts[resource] / 1000)
        for labelled, amounts in found
        for resource in sorted(amounts)
    )
    return make_family(name, text, (*labels, *_RESOURCE), values)


def _property_families(
    what: str,
    text: str,
    labels: Sequence[str],
    found: Iterable[tuple[Labels, Iterable[PropertyValue]]],
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
    devices = "Limits of input and output by device; absent without a limit"
    weights = "Weights under contention; absent where none is stated"
    for family, help_, more in (
        ("resource_limit", text, _RESOURCE),
        ("device_limit", devices, (*_RESOURCE, "device")),
        ("resource_weight", weights, _RESOURCE[:1]),
    ):
        values = ((labelled, value) for of, labelled, value in samples if of == family)
        yield make_family(f"podslice_{what}_{family}", help_, (*labels, *more), values)


def _property_samples(properties: Iterable[PropertyValue]) -> Iterator[tuple[str, Labels, float]]:
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


# The node and its parts.


def expose(snapshot: Snapshot, stats: NodeStats) -> Iterator[bytes]:
    """Yield all metrics in the text format of Prometheus, family by family."""
    yield from map(format_family, collect(snapshot, stats))


def collect(snapshot: Snapshot, stats: NodeStats) -> Iterator[Metric]:
    """Yield all metric families that have samples."""
    families = chain(
        _node(snapshot, stats),
        _groups(snapshot, stats),
        _pods(snapshot, stats.pods),
        _containers(stats.pods),
        _agent(snapshot),
    )
    return (family for family in families if family.samples)


def _node(snapshot: Snapshot, stats: NodeStats) -> Iterator[Family]:
    samples: Samples = [((), stats.sample)]
    yield from _sample_families("node", (), samples, _USAGE, "node")
    yield from _pressure_families("node", (), samples)
    allocation = snapshot.desired.allocation
    text = "Resources of the node that pods may request in total"
    for name, help_, amounts in (
        ("capacity", "Capacity of the node", allocation.capacity),
        ("allocatable", text, allocation.allocatable),
    ):
        yield _amount_family(f"podslice_node_resource_{name}", help_, (), [((), amounts)])
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
    available = snapshot.desired.available_cpus
    if available is None:
        return
    yield from number_families(
        (
            "kubelet_cpu_manager_exclusive_cpu_allocation_count",
            "Number of exclusive CPUs of pods",
            sum(map(len, snapshot.desired.own_cpus.values())),
        ),
        (
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "CPUs that pods share, without the reserved ones, in thousandths",
            len(available) * 1000,
        ),
    )


def _signals(snapshot: Snapshot) -> Iterator[Family]:
    """Yield eviction signals and thresholds, in bytes, inodes or processes."""
    observed, label = snapshot.observe(), ("eviction_signal",)
    signals = sorted(observed.items())
    yield make_family(
        "podslice_eviction_signal_available",
        "Available amount of the eviction signal",
        label,
        (((name,), each.available / 1000) for name, each in signals),
    )
    yield make_family(
        "podslice_eviction_signal_capacity",
        "Capacity of the eviction signal",
        label,
        (((name,), each.capacity / 1000) for name, each in signals),
    )
    thresholds = (
        (
            (each.signal, "hard" if each.is_hard else "soft"),
            threshold_amount(each.value, observed[each.signal].capacity) / 1000,
        )
        for each in snapshot.thresholds
        if each.signal in observed
    )
    text = "Available amount below which pods are evicted"
    yield make_family("podslice_eviction_threshold", text, (*label, "kind"), thresholds)


def _groups(snapshot: Snapshot, stats: NodeStats) -> Iterator[Family]:
    allocation, label = snapshot.desired.allocation, ("group",)
    samples = [((each.name,), each.sample) for each in stats.groups]
    yield from _sample_families("podslice_group", label, samples, _USAGE, "group")
    yield from _sample_families("podslice_group", label, samples, _DETAILS)
    yield from _pressure_families("group", label, samples)
    reserved: list[tuple[Labels, Amounts]] = [
        (("runtime",), allocation.kube_reserved),
        (("misc",), allocation.system_reserved),
        (("pods",), allocation.enforced),
    ]
    text = "Reservation of the group; for pods, the capacity without all reservations"
    yield _amount_family("podslice_group_resource_reservation", text, label, reserved)


# Pods and containers.

_POD = ("namespace", "pod")
_CONTAINER = ("container", *_POD)


def _labels_of(pod: PodStats) -> Labels:
    return pod.decision.pod.namespace, pod.decision.pod.name


def _pods(snapshot: Snapshot, pods: Sequence[PodStats]) -> Iterator[Family]:
    """Yield usage, pressure, requests, limits and identity of pods."""
    by_labels = [(_labels_of(pod), pod, pod.decision) for pod in pods]
    samples = [(labels, pod.sample) for labels, pod, _ in by_labels]
    yield from _sample_families("pod", _POD, samples, _USAGE, "pod")
    yield from _sample_families("podslice_pod", _POD, samples, _DETAILS)
    yield from _pressure_families("pod", _POD, samples)
    yield _amount_family(
        "podslice_pod_resource_request",
        "Requests of the pod, including pod level and overhead",
        _POD,
        ((labels, decision.requests) for labels, _, decision in by_labels),
    )
    yield from _property_families(
        "pod",
        "Limits of the pod's slice; absent without a limit",
        _POD,
        ((labels, snapshot.pod_properties(decision)) for labels, _, decision in by_labels),
    )
    own_cpus = snapshot.desired.own_cpus
    yield make_family(
        "podslice_pod_exclusive_cpus",
        "Number of CPUs that the pod has for itself; absent without any",
        _POD,
        (
            (labels, len(own_cpus.get(decision.pod.key, ())) or None)
            for labels, _, decision in by_labels
        ),
    )
    recommended = [
        (labels, snapshot.recommended[decision.pod.key])
        for labels, _, decision in by_labels
        if decision.pod.key in snapshot.recommended
    ]
    for part, amounts in (
        ("request", [(labels, each.requests) for labels, each in recommended]),
        ("limit", [(labels, each.limits) for labels, each in recommended]),
    ):
        text = f"The {part} that fits the recorded usage of the pod"
        yield _amount_family(f"podslice_pod_resource_recommended_{part}", text, _POD, amounts)
    yield make_family(
        "podslice_pod_info",
        "QoS class, uid and slice of the pod",
        (*_POD, "qos_class", "uid", "slice"),
        (
            ((*labels, decision.qos.value, decision.pod.uid, decision.slice), 1)
            for labels, _, decision in by_labels
        ),
    )
    yield make_family(
        "podslice_pod_start_time_seconds",
        "Start time of the pod's slice since the Unix epoch in seconds",
        _POD,
        ((labels, pod.started_usec / 1e6) for labels, pod, _ in by_labels),
    )
    yield make_family(
        "podslice_pod_written_bytes_total",
        "Bytes written by the pod, by device",
        (*_POD, "device"),
        (
            ((*labels, device), written)
            for labels, pod, _ in by_labels
            for device, written in sorted(pod.sample.written_bytes.items())
        ),
    )
    by_class = Counter(decision.qos for _, _, decision in by_labels)
    yield make_family(
        "podslice_pods",
        "Number of applied pods, by QoS class",
        ("qos_class",),
        (((qos.value,), by_class[qos]) for qos in Qos),
    )
    yield from number_families(
        ("kubelet_running_pods", "Number of pods that have a slice", len(pods))
    )
    volumes = [
        ((*labels, name), each)
        for labels, pod, _ in by_labels
        for name, each in pod.volumes.items()
    ]
    yield make_family(
        "podslice_pod_volume_used_bytes",
        "Memory used by the in-memory volume of the pod in bytes",
        (*_POD, "volume"),
        ((labels, each.used_bytes) for labels, each in volumes),
    )
    yield make_family(
        "podslice_pod_volume_capacity_bytes",
        "Size of the in-memory volume of the pod in bytes",
        (*_POD, "volume"),
        ((labels, each.capacity_bytes) for labels, each in volumes),
    )


def _containers(pods: Sequence[PodStats]) -> Iterator[Family]:
    """Yield usage and limits of running containers."""
    # by label: a runtime may create a scope for processes that are in a service already
    found = {(each.name, *_labels_of(pod)): (pod, each) for pod in pods for each in pod.containers}
    samples = [(labels, each.sample) for labels, (_, each) in found.items()]
    details = [(_CADVISOR_NAMES.get(name, name), text, of) for name, text, of in _DETAILS]
    yield from _sample_families("container", _CONTAINER, samples, _USAGE, "container")
    yield from _sample_families("container", _CONTAINER, samples, details)
    for name, text, which in _PRESSURE:
        for resource in _PRESSURE_RESOURCES:
            values = ((labels, _pressure_sec(each, resource, which)) for labels, each in samples)
            full_name = f"container_pressure_{resource}_{name}_seconds_total"
            yield make_family(full_name, text, _CONTAINER, values)
    yield from _property_families(
        "container",
        "Limits of the container's own; absent without a limit",
        _CONTAINER,
        (
            (labels, container_properties(pod.decision, each.name))
            for labels, (pod, each) in found.items()
        ),
    )
    yield make_family(
        "kubelet_running_containers",
        "Number of containers that have processes",
        ("container_state",),
        [(("running",), len(found))],
    )


# The agent itself.

_PROCESS = ProcessCollector(registry=None)
"""The memory, CPU time and open files of this process."""


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
    yield _histogram_family(
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
    counters, problems = snapshot.counters, len(snapshot.problems)
    rounds = "the node is reconciled"
    yield from collect_agent(counters, snapshot.events, Kind, problems, rounds=rounds)
    yield _histogram_family(
        "kubelet_cgroup_manager_duration_seconds",
        "Duration in seconds to create, update or destroy a control group",
        {(kind.value,): found for kind, found in counters.operations.items()},
        ("operation_type",),
    )
    yield _histogram_family(
        "podslice_eviction_reaction_seconds",
        "Duration in seconds from crossing a threshold to stopping a pod",
        {(): counters.reactions},
    )
    # counters exist from the start, so that the first event is an increase
    signals = {SIZE_LIMIT, *(each.signal for each in snapshot.thresholds), *counters.evictions}
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


# The paths that are served.

_FRESH_SEC = 1.0
"""How long a response that reads every pod is used for further requests."""


def routes(snapshot: Callable[[], Snapshot]) -> Mapping[str, Route]:
    """Return the routes by path; `snapshot` returns the current snapshot, quickly."""
    summarizer = Summarizer()

    async def health() -> Response:
        return health_response(snapshot().problems)

    async def scrape() -> Response:
        now = snapshot()
        return Response(expose(now, await now.stats()), CONTENT_TYPE, fresh_sec=_FRESH_SEC)

    async def pods() -> Response:
        now = snapshot()
        return document_response(pod_list(now, await now.stats()))

    async def summary() -> Response:
        now = snapshot()
        return document_response(summarizer.summary(now, await now.stats()))

    return {"/healthz": health, "/metrics": scrape, "/pods": pods, "/stats/summary": summary}


def document_response(document: Json, fresh_sec: float = _FRESH_SEC) -> Response:
    """Return a JSON document, which is used for `fresh_sec` for further requests."""
    body = (json.dumps(document).encode(), b"\n")
    return Response(body, "application/json", fresh_sec=fresh_sec)


def health_response(problems: Iterable[str]) -> Response:
    """Return the response `ok`, or the problems with the status 503."""
    text = "".join(f"{each}\n" for each in problems)
    if not text:
        return Response((b"ok\n",))
    return Response((text.encode(),), status=HTTPStatus.SERVICE_UNAVAILABLE)
