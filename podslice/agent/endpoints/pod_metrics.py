"""Metrics of pods and containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from podslice.agent.endpoints.metric_families import (
    PRESSURE_METRICS,
    PRESSURE_RESOURCES,
    RESOURCE,
    Family,
    Labels,
    SampleMetric,
    amounts_by_unit,
    detail_metrics,
    make_family,
    pressure_families,
    property_families,
    sample_families,
    usage_metrics,
)
from podslice.agent.endpoints.snapshot import Snapshot, container_properties, pod_properties
from podslice.model.pod import Qos
from podslice.model.resources import Amounts
from podslice.policy.recommendation import RecommendedAmounts
from podslice.usage.stats import PodStats

_POD = ("namespace", "pod")
_CONTAINER = ("container", *_POD)

_POD_METRICS = (*usage_metrics("pod", "pod"), *detail_metrics("podslice_pod"))
_CONTAINER_METRICS = (
    *usage_metrics("container", "container"),
    *detail_metrics("container", tasks="threads", oom_kills="oom_events_total"),
    *(
        SampleMetric(
            name=f"container_pressure_{resource}_{name}_seconds_total",
            help=text,
            of=partial(of, resource),
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
        (((*_pod_labels(each), *_identity(each)), 1) for each in pods),
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
    yield make_family(
        "kubelet_running_pods", "Number of pods that have a slice", (), [((), len(pods))]
    )


def _identity(pod: PodStats) -> Labels:
    return pod.decision.qos.value, pod.decision.pod.uid, pod.decision.slice


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
