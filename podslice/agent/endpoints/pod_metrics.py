"""What the agent tells Prometheus of pods and containers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from podslice.agent.endpoints.metric_families import (
    PRESSED,
    PRESSURES,
    RESOURCE,
    Family,
    Labels,
    Row,
    basics,
    details,
    filled,
    in_limits,
    in_units,
    pressures,
    read_off,
)
from podslice.agent.endpoints.snapshot import Snapshot, container_limits, pod_limits
from podslice.model.pod import Qos
from podslice.usage.stats import PodStats

_POD = ("namespace", "pod")
_CONTAINER = ("container", *_POD)

_POD_ROWS = (*basics("pod", "pod"), *details("podslice_pod"))
_CONTAINER_ROWS = (
    *basics("container", "container"),
    *details("container", tasks="threads", oom_kills="oom_events_total"),
    *(
        Row(
            name=f"container_pressure_{resource}_{name}_seconds_total",
            help=text,
            of=partial(of, resource),
        )
        for name, (text, of) in PRESSURES.items()
        for resource in PRESSED
    ),
)


def of_pods(snapshot: Snapshot, pods: Sequence[PodStats]) -> Iterator[Family]:
    """What pods use, wait for, and may use."""
    samples = [(_pod_labels(pod), pod.sample) for pod in pods]
    yield from read_off(_POD_ROWS, _POD, samples)
    yield from pressures("pod", _POD, samples)
    yield filled(
        "podslice_pod_resource_request",
        "What the pod requests, pod level and overhead included",
        (*_POD, *RESOURCE),
        (
            ((*_pod_labels(pod), *labels), value)
            for pod in pods
            for labels, value in in_units(pod.decision.requests)
        ),
    )
    yield filled(
        "podslice_pod_resource_limit",
        "What the pod's slice is held to; without a limit it is absent",
        (*_POD, *RESOURCE),
        (
            ((*_pod_labels(pod), *labels), value)
            for pod in pods
            for labels, value in in_limits(pod_limits(pod.decision, snapshot.initializing))
        ),
    )
    yield from _about_pods(pods)
    yield from _volumes(pods)


def _pod_labels(pod: PodStats) -> Labels:
    return pod.decision.pod.namespace, pod.decision.pod.name


def _about_pods(pods: Sequence[PodStats]) -> Iterator[Family]:
    yield filled(
        "podslice_pod_info",
        "The pod's class, uid and slice",
        (*_POD, "qos_class", "uid", "slice"),
        (((*_pod_labels(each), *_identity(each)), 1) for each in pods),
    )
    yield filled(
        "podslice_pod_start_time_seconds",
        "When the pod's slice was made, since the epoch",
        _POD,
        ((_pod_labels(each), each.started_usec / 1e6) for each in pods),
    )
    yield filled(
        "podslice_pod_written_bytes_total",
        "What the pod has written, by device",
        (*_POD, "device"),
        (
            ((*_pod_labels(each), device), written)
            for each in pods
            for device, written in sorted(each.sample.written_bytes.items())
        ),
    )
    by_class = Counter(each.decision.qos for each in pods)
    yield filled(
        "podslice_pods",
        "Applied pods by class",
        ("qos_class",),
        (((qos.value,), by_class[qos]) for qos in Qos),
    )
    yield filled("kubelet_running_pods", "Pods that have a slice", (), [((), len(pods))])


def _identity(pod: PodStats) -> Labels:
    return pod.decision.qos.value, pod.decision.pod.uid, pod.decision.slice


def _volumes(pods: Sequence[PodStats]) -> Iterator[Family]:
    found = [((*_pod_labels(pod), each.name), each) for pod in pods for each in pod.volumes]
    yield filled(
        "podslice_pod_volume_used_bytes",
        "Memory that is in use by the pod's volume",
        (*_POD, "volume"),
        ((labels, each.used_bytes) for labels, each in found),
    )
    yield filled(
        "podslice_pod_volume_capacity_bytes",
        "Size of the pod's volume in memory",
        (*_POD, "volume"),
        ((labels, each.capacity_bytes) for labels, each in found),
    )


def of_containers(pods: Sequence[PodStats]) -> Iterator[Family]:
    """The same of the containers that something runs in."""
    # by label: a runtime may make a scope for what runs as a service already
    found = {(each.name, *_pod_labels(pod)): (pod, each) for pod in pods for each in pod.containers}
    samples = [(labels, each.sample) for labels, (_, each) in found.items()]
    yield from read_off(_CONTAINER_ROWS, _CONTAINER, samples)
    yield filled(
        "podslice_container_resource_limit",
        "What the container is held to by itself; without a limit it is absent",
        (*_CONTAINER, *RESOURCE),
        (
            ((*labelled, *labels), value)
            for labelled, (pod, each) in found.items()
            for labels, value in in_limits(container_limits(pod.decision, each.name))
        ),
    )
    yield filled(
        "kubelet_running_containers",
        "Containers that something runs in",
        ("container_state",),
        [(("running",), len(found))],
    )
