"""The page of a pod for JSON: its use against the limits, containers, volumes and events. Pure: values in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from podslice.cli.report import AmountsEntry, amounts_entry
from podslice.cli.views.pod_page import ContainerDetail, PodDetail, used_bytes
from podslice.cli.views.status_view import UnitRow
from podslice.cli.views.usage_table import UsageRow
from podslice.errors import printable
from podslice.kernel.cgroup import Sample, Waited
from podslice.model.container_exit import ContainerExit
from podslice.model.pod import ContainerKind, Qos
from podslice.model.properties import CPU_QUOTA, MEMORY_MAX, TASKS_MAX
from podslice.model.unit import UnitName
from podslice.systemd.journal import Entry
from podslice.usage.location import Running
from podslice.usage.runtimes import PublishedPort
from podslice.usage.unit_status import HOLDS_PROCESSES


@dataclass(frozen=True, kw_only=True)
class ExitEntry:
    """How a container ended."""

    result: str
    exit_code: int | None
    signal: str | None
    oom_killed: bool
    started_usec: int | None
    ended_usec: int | None
    duration_usec: int | None


@dataclass(frozen=True, kw_only=True)
class WaitedEntry:
    """The share of time that tasks waited for a resource, and the total."""

    avg10_percent: float
    avg60_percent: float
    avg300_percent: float
    total_usec: int


@dataclass(frozen=True, kw_only=True)
class PressureEntry:
    """The pressure on a resource: of some tasks, and of all."""

    some: WaitedEntry
    full: WaitedEntry


@dataclass(frozen=True, kw_only=True)
class UseEntry:
    """The use of a pod or a container; null where the kernel has no value."""

    cpu_milli: int | None
    cpu_usec: int | None
    memory_working_set_bytes: int | None
    memory_bytes: int | None
    tasks: int | None
    oom_kills: int | None
    io_read_bytes: int | None
    io_written_bytes: int | None
    periods: int | None
    throttled_periods: int | None
    throttled_usec: int | None
    pressure: dict[str, PressureEntry]


@dataclass(frozen=True, kw_only=True)
class LimitsEntry:
    """The limits of a pod's slice, as systemd has them."""

    cpu_limit_milli: int | None
    memory_limit_bytes: int | None
    tasks_limit: int | None


@dataclass(frozen=True, kw_only=True)
class LimitedUseEntry(LimitsEntry, UseEntry):
    """The use of a pod, with its limits."""


@dataclass(frozen=True, kw_only=True)
class RecordedEntry:
    """The 90th percentile of recorded usage."""

    cpu_milli: int | None
    memory_working_set_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class InitContainerEntry:
    """An init container, and whether it is done."""

    name: str
    done: bool


@dataclass(frozen=True, kw_only=True)
class MessageEntry:
    """A message of a container."""

    time_usec: int
    message: str


@dataclass(frozen=True, kw_only=True)
class PodContainerEntry:
    """A container of a pod, or another unit with processes in it."""

    name: str
    kind: ContainerKind | None
    unit: UnitName
    state: str
    restarts: int
    last_exit: ExitEntry | None
    processes: tuple[Running, ...]
    usage: UseEntry | None
    runtime: str | None
    runtime_name: str | None
    image: str | None
    ports: tuple[PublishedPort, ...]
    io_read_bytes: int | None
    io_written_bytes: int | None
    log: tuple[MessageEntry, ...]


@dataclass(frozen=True, kw_only=True)
class PodVolumeEntry:
    """A volume of a pod in memory."""

    name: str
    unit: UnitName
    path: str
    size_bytes: int | None
    used_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class PodReport:
    """Everything about one pod, except the properties of its units, which are in the status."""

    namespace: str
    name: str
    uid: str
    qos_class: Qos
    phase: str
    init_containers: tuple[InitContainerEntry, ...]
    node_conditions: tuple[str, ...]
    manifest: str | None
    apply_command: tuple[str, ...] | None
    """The command that applies the manifest again."""
    slice: UnitName
    started_usec: int | None
    grace_period_sec: int
    requests: AmountsEntry
    limits: AmountsEntry
    usage: LimitsEntry | LimitedUseEntry
    usage_p90: RecordedEntry | None
    containers: tuple[PodContainerEntry, ...]
    volumes: tuple[PodVolumeEntry, ...]
    events: tuple[Entry, ...]
    events_problem: str | None
    log_problem: str | None


def pod_report(detail: PodDetail) -> PodReport:
    """Return the page of a pod."""
    decision, stats, recorded = detail.decision, detail.stats, detail.recorded
    pod, quota = decision.pod, detail.limit(CPU_QUOTA)
    limits: dict[str, Any] = {
        "cpu_limit_milli": None if quota is None else quota // 1000,
        "memory_limit_bytes": detail.limit(MEMORY_MAX),
        "tasks_limit": detail.limit(TASKS_MAX),
    }
    volumes = (
        PodVolumeEntry(
            name=each.name,
            unit=each.unit,
            path=each.path,
            size_bytes=each.size_bytes,
            used_bytes=used_bytes(detail, each.name),
        )
        for each in decision.volumes
    )
    return PodReport(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        qos_class=decision.qos,
        phase=detail.phase,
        init_containers=init_container_entries(detail.init_containers),
        node_conditions=tuple(detail.node_conditions),
        manifest=None if detail.source is None else printable(detail.source),
        apply_command=detail.apply_command,
        slice=decision.slice,
        started_usec=(stats.started_usec or None) if stats else None,
        grace_period_sec=pod.grace_period_sec,
        requests=amounts_entry(decision.requests),
        limits=amounts_entry(decision.limits),
        usage=LimitedUseEntry(**limits, **_use(detail.usage))
        if detail.usage
        else LimitsEntry(**limits),
        usage_p90=recorded
        and RecordedEntry(
            cpu_milli=recorded.cpu_milli, memory_working_set_bytes=recorded.memory_bytes
        ),
        containers=tuple(
            _container_entry(detail, row)
            for row in detail.units
            if row.unit.kind in HOLDS_PROCESSES
        ),
        volumes=tuple(volumes),
        events=detail.events,
        events_problem=detail.events_problem or None,
        log_problem=detail.log_problem or None,
    )


def init_container_entries(found: Iterable[tuple[str, bool]]) -> tuple[InitContainerEntry, ...]:
    """Return init containers; `found` are the names, and whether the containers are done."""
    return tuple(InitContainerEntry(name=name, done=done) for name, done in found)


def _use(row: UsageRow) -> dict[str, Any]:
    """Return the fields of `UseEntry`."""
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
        "pressure": {
            name: PressureEntry(some=_waited(each.some), full=_waited(each.full))
            for name, each in sample.pressure.items()
        },
    }


def _io(sample: Sample | None) -> dict[str, int | None]:
    """Return the bytes that were read and written, of all devices; None without any."""
    read, written = (sample.read_bytes, sample.written_bytes) if sample else ({}, {})
    return {
        "io_read_bytes": sum(read.values()) if read else None,
        "io_written_bytes": sum(written.values()) if written else None,
    }


def _waited(waited: Waited) -> WaitedEntry:
    return WaitedEntry(
        avg10_percent=waited.avg10_milli / 1000,
        avg60_percent=waited.avg60_milli / 1000,
        avg300_percent=waited.avg300_milli / 1000,
        total_usec=waited.usec,
    )


def _container_entry(detail: PodDetail, row: UnitRow) -> PodContainerEntry:
    unit = row.unit
    used = detail.usage_of(unit.name)
    more = detail.containers.get(unit.name, ContainerDetail())
    held = more.runtime
    kinds = {each.name: each.kind for each in detail.decision.scopes}
    return PodContainerEntry(
        name=unit.label,
        kind=kinds.get(unit.label),
        unit=unit.name,
        state=unit.state,
        restarts=unit.restarts,
        last_exit=exit_entry(unit.last_exit),
        processes=tuple(row.processes),
        usage=None if used is None else UseEntry(**_use(used)),
        runtime=held and held.runtime,
        runtime_name=held and held.name,
        image=held.image or None if held else None,
        ports=tuple(held.ports) if held else (),
        **_io(more.sample),
        log=tuple(
            MessageEntry(time_usec=each.time_usec, message=each.message) for each in more.log
        ),
    )


def exit_entry(last: ContainerExit | None) -> ExitEntry | None:
    """Return the last exit of a container, if there is one."""
    if last is None:
        return None
    return ExitEntry(
        result=last.result,
        exit_code=last.exit_code,
        signal=last.signal,
        oom_killed=last.is_oom,
        started_usec=last.started_usec or None,
        ended_usec=last.ended_usec,
        duration_usec=last.duration_usec,
    )
