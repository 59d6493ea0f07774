"""Metrics for Prometheus.

Names are the kubelet's, and those of the cAdvisor in it, where the meaning is the same; all others
begin with `podslice_`. Amounts are in base units: seconds, bytes, cores.

Source: Kubernetes, pkg/kubelet/metrics/collectors/resource_metrics.go and
pkg/kubelet/metrics/metrics.go; cAdvisor, metrics/prometheus.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from podslice import __version__
from podslice.agent.counters import Counters
from podslice.agent.endpoints.metric_families import (
    PRESSURE_METRICS,
    PRESSURE_RESOURCES,
    RESOURCE,
    Family,
    Labels,
    SampleMetric,
    amounts_by_unit,
    detail_metrics,
    format_family,
    histogram_family,
    make_family,
    number_families,
    pressure_families,
    property_families,
    sample_families,
    usage_metrics,
)
from podslice.agent.endpoints.snapshot import Snapshot, container_properties, pod_properties
from podslice.model.event import Kind
from podslice.model.node import Allocation
from podslice.model.node_state import Condition
from podslice.model.pod import Qos
from podslice.model.resources import Amounts, RecommendedAmounts
from podslice.policy.allocatable import threshold_amount
from podslice.usage.stats import NodeStats, PodStats

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
