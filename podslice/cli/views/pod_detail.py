"""Everything about one pod, as `status POD` shows it, and its JSON document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

from podslice.cli.views import pod_documents, status_documents
from podslice.cli.views.documents import Document
from podslice.cli.views.status_lines import UnitRow
from podslice.cli.views.usage_table import UsageRow
from podslice.errors import printable
from podslice.kernel.cgroup import Pressure, Sample, Waited
from podslice.model.desired import PodDecision
from podslice.model.properties import CPU_QUOTA, MEMORY_MAX, TASKS_MAX
from podslice.model.unit import INFINITY, UnitName
from podslice.policy.recommendation import UsedAmounts
from podslice.processes.runtimes import RuntimeContainer
from podslice.systemd.journalctl import Entry
from podslice.usage.stats import PodStats
from podslice.usage.unit_status import HOLDS_PROCESSES, UnitStatus


class ContainerDetail(NamedTuple):
    """What only the page of its pod shows about a container."""

    runtime: RuntimeContainer | None = None
    """None unless podman or docker runs it."""
    sample: Sample | None = None
    """None without a control group."""
    log: Sequence[Entry] = ()
    """Its last messages, the oldest first."""


class PodDetail(NamedTuple):
    """A pod, with what was observed of it."""

    decision: PodDecision
    units: tuple[UnitRow, ...]
    """Its slice first, then volumes and containers, then other units in it."""
    stats: PodStats | None
    """None where its slice has no control group."""
    usage: UsageRow | None
    time_usec: int
    """Of the observation, since the epoch."""
    phase: str
    """`running`, `init` or `terminating`."""
    init_containers: tuple[tuple[str, bool], ...]
    """Each with whether it is done."""
    source: str | None
    """Its manifest file; None where it was not applied from a manifest directory."""
    node_conditions: tuple[str, ...]
    recorded: UsedAmounts | None
    """The 90th percentile of recorded usage; None without a history."""
    events: tuple[Entry, ...]
    """The last ones, the oldest first."""
    events_problem: str
    """Why there are no events; empty where they could be read."""
    containers: Mapping[UnitName, ContainerDetail]
    """By the unit that is shown."""
    log_problem: str
    """Why there are no messages of containers; empty where they could be read."""

    @property
    def slice(self) -> UnitStatus | None:
        """The pod's slice."""
        return next((row.unit for row in self.units if row.unit.name == self.decision.slice), None)

    def limit(self, name: str) -> int | None:
        """Return a limit of the pod's slice, as systemd has it; None without one."""
        for each in self.slice.properties if self.slice else ():
            if each.name == name and isinstance(each.systemd, int) and each.systemd < INFINITY:
                return each.systemd
        return None

    def usage_of(self, unit: UnitName) -> UsageRow | None:
        """Return the usage of a container by its unit."""
        containers = self.usage.containers if self.usage else ()
        return next((each for each in containers if each.unit == unit), None)


def document(detail: PodDetail) -> Document:
    """Return the JSON document of a pod; the properties are those of its units in the status."""
    decision, stats = detail.decision, detail.stats
    pod = decision.pod
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "qos_class": decision.qos.value,
        "phase": detail.phase,
        "init_containers": [{"name": name, "done": done} for name, done in detail.init_containers],
        "node_conditions": list(detail.node_conditions),
        "manifest": None if detail.source is None else printable(detail.source),
        "slice": decision.slice,
        "started_usec": (stats.started_usec or None) if stats else None,
        "grace_period_sec": pod.grace_period_sec,
        "requests": pod_documents.amounts(decision.requests),
        "limits": pod_documents.amounts(decision.limits),
        "usage": _usage(detail),
        "usage_p90": _recorded(detail),
        "containers": [
            _container(detail, row) for row in detail.units if row.unit.kind in HOLDS_PROCESSES
        ],
        "volumes": [
            {
                "name": each.name,
                "unit": each.unit,
                "path": each.path,
                "size_bytes": each.size_bytes,
                "used_bytes": used_bytes(detail, each.name),
            }
            for each in decision.volumes
        ],
        "events": [asdict(each) for each in detail.events],
        "events_problem": detail.events_problem or None,
        "log_problem": detail.log_problem or None,
    }


def used_bytes(detail: PodDetail, volume: str) -> int | None:
    """Return the used bytes of a mounted volume."""
    volumes = detail.stats.volumes if detail.stats else ()
    return next((each.used_bytes for each in volumes if each.name == volume), None)


def _usage(detail: PodDetail) -> Document:
    quota = detail.limit(CPU_QUOTA)
    limits = {
        "cpu_limit_milli": None if quota is None else quota // 1000,
        "memory_limit_bytes": detail.limit(MEMORY_MAX),
        "tasks_limit": detail.limit(TASKS_MAX),
    }
    return {**limits, **({} if detail.usage is None else _row(detail.usage))}


def _recorded(detail: PodDetail) -> Document | None:
    found = detail.recorded
    if found is None:
        return None
    return {"cpu_milli": found.cpu_milli, "memory_working_set_bytes": found.memory_bytes}


def _row(row: UsageRow) -> Document:
    sample = row.sample
    return {
        "cpu_milli": row.cpu_milli,
        "cpu_usec": sample.cpu_usec,
        "memory_working_set_bytes": sample.working_set_bytes,
        "memory_bytes": sample.memory_bytes,
        "tasks": sample.tasks,
        "oom_kills": sample.oom_kills,
        **_io(sample),
        "periods": sample.periods,
        "throttled_periods": sample.throttled_periods,
        "throttled_usec": sample.throttled_usec,
        "pressure": {name: _pressure(each) for name, each in sample.pressure.items()},
    }


def _io(sample: Sample | None) -> Document:
    """Return the bytes that were read and written, of all devices; null without any."""
    read, written = (sample.read_bytes, sample.written_bytes) if sample else ({}, {})
    return {
        "io_read_bytes": sum(read.values()) if read else None,
        "io_written_bytes": sum(written.values()) if written else None,
    }


def _pressure(pressure: Pressure) -> Document:
    return {"some": _waited(pressure.some), "full": _waited(pressure.full)}


def _waited(waited: Waited) -> Document:
    return {
        "avg10_percent": waited.avg10_milli / 1000,
        "avg60_percent": waited.avg60_milli / 1000,
        "avg300_percent": waited.avg300_milli / 1000,
        "total_usec": waited.usec,
    }


def _container(detail: PodDetail, row: UnitRow) -> Document:
    unit = row.unit
    used = detail.usage_of(unit.name)
    more = detail.containers.get(unit.name, ContainerDetail())
    held = more.runtime
    kinds = {each.name: each.kind.value for each in detail.decision.scopes}
    return {
        "name": unit.label,
        "kind": kinds.get(unit.label),
        "unit": unit.name,
        "state": unit.state,
        "restarts": unit.restarts,
        "last_exit": unit.last_exit and status_documents.container_exit(unit.last_exit),
        "processes": [{"pid": each.pid, "name": each.name} for each in row.processes],
        "usage": None if used is None else _row(used),
        "runtime": held and held.runtime,
        "runtime_name": held and held.name,
        "image": held.image or None if held else None,
        "ports": [asdict(each) for each in held.ports] if held else [],
        **_io(more.sample),
        "log": [{"time_usec": each.time_usec, "message": each.message} for each in more.log],
    }
