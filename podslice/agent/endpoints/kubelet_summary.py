"""The Summary API of the kubelet, and its list of pods.

Source: Kubernetes, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go, Summary; times are
metav1.Time, which is RFC 3339 in whole seconds. Pressure values are those of the kernel: a
total in microseconds, although the comment of the type states nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from podslice.agent.endpoints.snapshot import Snapshot, container_properties
from podslice.inputs.manifest.load import format_manifest
from podslice.kernel.cgroup import Pressure, Sample
from podslice.model.desired import PodDecision
from podslice.model.properties import MEMORY_MAX
from podslice.model.resources import memory_bytes
from podslice.model.unit import limit_of
from podslice.usage.stats import ContainerStats, FileSystem, GroupStats, NodeStats, PodStats

Json = dict[str, object]

_SYSTEM = ("kubelet", "runtime", "misc", "pods")
"""The system containers of the schema, which has no tiers."""
_NODE = "/"


class Summarizer:
    """Makes summaries; CPU usage is the average since the previous summary."""

    def __init__(self) -> None:
        self._uptime_usec = 0
        self._cpu: dict[str, int] = {}
        """The CPU time in the previous summary by control group, in microseconds."""

    def summary(self, snapshot: Snapshot, stats: NodeStats) -> Json:
        """Return the document at `/stats/summary`."""
        made = _Summary(snapshot, stats, self._rates(stats))
        return {"node": made.node(), "pods": [made.pod(pod) for pod in stats.pods]}

    def _rates(self, stats: NodeStats) -> Mapping[str, int]:
        """Return nanoseconds of CPU time per second, by control group; at first none."""
        before, now = self._cpu, _cpu_times(stats)
        passed_usec = stats.uptime_usec - self._uptime_usec
        self._cpu, self._uptime_usec = now, stats.uptime_usec
        # requests within one measurement share its time
        if not before or passed_usec <= 0:
            return {}
        return {
            group: max(now[group] - before[group], 0) * 1_000_000_000 // passed_usec
            for group in now.keys() & before.keys()
        }


def _cpu_times(stats: NodeStats) -> dict[str, int]:
    samples = {_NODE: stats.sample}
    samples |= {group.name: group.sample for group in stats.groups}
    for pod in stats.pods:
        samples[pod.decision.slice] = pod.sample
        samples |= {f"{pod.decision.slice} {each.name}": each.sample for each in pod.containers}
    return {name: each.cpu_usec for name, each in samples.items() if each.cpu_usec is not None}


class _Summary:
    """One summary, part by part."""

    def __init__(self, snapshot: Snapshot, stats: NodeStats, rates: Mapping[str, int]) -> None:
        self._snapshot = snapshot
        self._stats = stats
        self._rates = rates
        self._now = _time(stats.time_usec)

    def node(self) -> Json:
        stats = self._stats
        return {
            "nodeName": self._snapshot.node_name,
            "systemContainers": [
                self._group(each) for each in stats.groups if each.name in _SYSTEM
            ],
            "startTime": _time(stats.boot_time_usec),
            **self._used(_NODE, stats.sample, stats.memory.available),
            "fs": self._file_system(stats.file_system),
            "rlimit": self._timed({"maxpid": stats.pids_max, "curproc": stats.pids}),
        }

    def pod(self, stats: PodStats) -> Json:
        decision, started = stats.decision, _time(stats.started_usec)
        limit = limit_of(self._snapshot.pod_properties(decision), MEMORY_MAX)
        pod = decision.pod
        found: Json = {
            "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "startTime": started,
            "containers": [
                # the start of a container is not recorded; this is the earliest possible time
                {"name": each.name, "startTime": started, **self._container(decision, each)}
                for each in stats.containers
            ],
            **self._used(decision.slice, stats.sample, _left(limit, stats.sample)),
        }
        if stats.volumes:
            found["volume"] = [
                {**self._file_system(each), "name": name} for name, each in stats.volumes.items()
            ]
        if stats.sample.tasks is not None:
            found["process_stats"] = {"process_count": stats.sample.tasks}
        return found

    def _container(self, decision: PodDecision, container: ContainerStats) -> Json:
        limit = limit_of(container_properties(decision, container.name), MEMORY_MAX)
        group, sample = f"{decision.slice} {container.name}", container.sample
        return self._used(group, sample, _left(limit, sample))

    def _group(self, group: GroupStats) -> Json:
        enforced = self._snapshot.desired.allocation.enforced if group.name == "pods" else {}
        return {
            "name": group.name,
            "startTime": _time(self._stats.boot_time_usec),
            **self._used(group.name, group.sample, _left(memory_bytes(enforced), group.sample)),
        }

    def _file_system(self, found: FileSystem) -> Json:
        figures = {
            "availableBytes": found.available_bytes,
            "capacityBytes": found.capacity_bytes,
            "usedBytes": found.used_bytes,
            "inodesFree": found.inodes_free,
            "inodes": found.inodes,
            "inodesUsed": found.inodes - found.inodes_free,
        }
        return self._timed(figures)

    def _used(self, group: str, sample: Sample, available: int | None) -> Json:
        """Return `cpu`, `memory`, `io` and `swap`, each only if the kernel counts it."""
        psi = {name: _psi(each) for name, each in sample.pressure.items()}
        figures: dict[str, dict[str, object]] = {
            "cpu": {
                "usageNanoCores": self._rates.get(group),
                "usageCoreNanoSeconds": None if sample.cpu_usec is None else sample.cpu_usec * 1000,
                "psi": psi.get("cpu"),
            },
            "memory": {
                "availableBytes": available,
                "usageBytes": sample.memory_bytes,
                "workingSetBytes": sample.working_set_bytes,
                "rssBytes": sample.rss_bytes,
                "pageFaults": sample.page_faults,
                "majorPageFaults": sample.major_page_faults,
                "psi": psi.get("memory"),
            },
            "io": {"psi": psi.get("io")},
            "swap": {"swapUsageBytes": sample.swap_bytes},
        }
        return {
            name: self._timed(each)
            for name, each in figures.items()
            if any(value is not None for value in each.values())
        }

    def _timed(self, figures: Mapping[str, object]) -> Json:
        """Return the known figures, with the time of the observation."""
        return {"time": self._now, **{k: v for k, v in figures.items() if v is not None}}


def _psi(pressure: Pressure) -> Json:
    return {
        name: {
            "total": waited.usec,
            "avg10": waited.avg10_milli / 1000,
            "avg60": waited.avg60_milli / 1000,
            "avg300": waited.avg300_milli / 1000,
        }
        for name, waited in (("full", pressure.full), ("some", pressure.some))
    }


def _left(limit: int | None, sample: Sample) -> int | None:
    """Return what is available below a memory limit."""
    if limit is None or sample.working_set_bytes is None:
        return None
    return max(limit - sample.working_set_bytes, 0)


def _time(usec: int) -> str:
    return datetime.fromtimestamp(usec // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_list(snapshot: Snapshot, stats: NodeStats) -> Json:
    """Return the document at `/pods`: a v1.PodList of the applied pods.

    Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, PodList.
    """
    items = [
        {
            **format_manifest(each.decision.pod),
            "status": _status(each, snapshot.desired.initializing),
        }
        for each in stats.pods
    ]
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def _status(stats: PodStats, initializing: frozenset[str]) -> Json:
    """Return the status of a pod, which is running while it has processes."""
    is_initialized = stats.decision.pod.key not in initializing
    runs = bool(stats.containers or stats.sample.tasks)
    conditions = {
        "PodScheduled": True,
        "Initialized": is_initialized,
        "ContainersReady": runs and is_initialized,
        "Ready": runs and is_initialized,
    }
    return {
        "phase": "Running" if runs and is_initialized else "Pending",
        "conditions": [{"type": kind, "status": str(holds)} for kind, holds in conditions.items()],
        "qosClass": stats.decision.qos.value,
        "startTime": _time(stats.started_usec),
    }
