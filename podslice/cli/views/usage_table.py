"""The usage that `top` shows: rows, the head above them, and the report. Pure: two measurements in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from podslice.cli.arguments import Sort
from podslice.cli.report import ConfigurationEntry
from podslice.cli.views import layout
from podslice.cli.views.layout import Align, Column, Shorten, fold, text_of
from podslice.cli.views.style import Cell, Display, Role, Styled, bar, marks_of, use_bar, warned
from podslice.cli.views.tables import list_first
from podslice.cli.views.text_width import rjust, width_of
from podslice.errors import printable
from podslice.kernel.cgroup import Sample
from podslice.model.naming import natural_key
from podslice.model.quantity import format_bytes, human_bytes
from podslice.model.resources import UsedAmounts, cpu_milli, memory_bytes
from podslice.model.unit import UnitName
from podslice.usage.stats import NodeStats, PodStats

NODE = UnitName("")
"""The key of the node among units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """The usage of a unit or of the node; None where the kernel has no value, or no rate yet."""

    name: str
    unit: UnitName
    sample: Sample
    qos: str = ""
    cpu_milli: int | None = None
    """Thousandths of a CPU, on average between the two measurements."""
    throttled_percent: int | None = None
    """Share of CPU quota periods that were throttled between the two measurements."""
    limit_bytes: int | None = None
    cpu_limit_milli: int | None = None
    cpu_marks: Mapping[str, int] = field(default_factory=dict)
    """The marks of the bar of its CPU, see `use_bars`."""
    memory_marks: Mapping[str, int] = field(default_factory=dict)
    containers: tuple[UsageRow, ...] = ()
    allowed_cpus: str = ""
    """The list of CPUs to which it is limited; empty if it may use all that its parent may."""
    read_per_sec: int | None = None
    """Bytes that were read in a second, on average between the two measurements."""
    written_per_sec: int | None = None

    @property
    def memory_percent(self) -> int | None:
        """The working set in percent of the limit."""
        used = self.sample.working_set_bytes
        return None if used is None or not self.limit_bytes else used * 100 // self.limit_bytes

    @property
    def pressure_milli(self) -> int:
        """The highest pressure of the last 10 s, in thousandths of a percent."""
        return max((each.some.avg10_milli for each in self.sample.pressure.values()), default=0)


class NodeUsage(NamedTuple):
    """The usage of the node, its slices and its pods."""

    node: UsageRow
    stats: NodeStats
    groups: tuple[UsageRow, ...] = ()
    """kubepods, the tiers and the reserved slices."""
    pods: tuple[UsageRow, ...] = ()
    interval_usec: int = 0
    """The time between the two measurements."""

    def sorted(self, by: Sort) -> NodeUsage:
        """Return the usage with pods and containers sorted."""
        return self._replace(pods=_sorted(self.pods, by))


class NodeSummary(NamedTuple):
    """The node's capacity, conditions, evicted pods and problems."""

    cpus_milli: int = 0
    conditions: Sequence[str] = ()
    """The conditions that the agent reports, such as `MemoryPressure`."""
    evicted: Sequence[str] = ()
    problems: Sequence[str] = ()
    """One line each."""


def measure(
    now: NodeStats,
    before: NodeStats,
    limits: Mapping[UnitName, int],
    recorded: Mapping[str, UsedAmounts | None] = MappingProxyType({}),
    *,
    cpu_limits: Mapping[UnitName, int] = MappingProxyType({}),
    allowed_cpus: Mapping[UnitName, str] = MappingProxyType({}),
) -> NodeUsage:
    """Return the usage between two measurements, pods by name.

    `limits` of memory, `cpu_limits` in thousandths and lists of `allowed_cpus` are by unit,
    `recorded` use is by the pod's key.
    """
    elapsed, earlier = now.uptime_usec - before.uptime_usec, dict(_samples(before))

    def row(name: str, unit: UnitName, sample: Sample, **more: object) -> UsageRow:
        old = earlier.get(unit, Sample())
        return UsageRow(
            name=printable(name),
            unit=unit,
            sample=sample,
            cpu_milli=_rate(sample.cpu_usec, old.cpu_usec, elapsed),
            throttled_percent=_throttled(sample, old),
            limit_bytes=now.memory.capacity if unit == NODE else limits.get(unit),
            cpu_limit_milli=cpu_limits.get(unit),
            read_per_sec=_io_rate(sample.read_bytes, old.read_bytes, elapsed),
            written_per_sec=_io_rate(sample.written_bytes, old.written_bytes, elapsed),
            allowed_cpus=allowed_cpus.get(unit, ""),
            **more,  # type: ignore[arg-type]
        )

    def pod(each: PodStats) -> UsageRow:
        made = _sorted((row(c.name, c.unit, c.sample) for c in each.containers), Sort.NAME)
        decision, used = each.decision, recorded.get(each.decision.pod.key)
        used_milli, used_bytes = (used.cpu_milli, used.memory_bytes) if used else (None, None)
        return row(
            decision.pod.key,
            decision.slice,
            each.sample,
            containers=made,
            qos=decision.qos.value,
            cpu_marks=marks_of(cpu_milli(decision.requests), used_milli),
            memory_marks=marks_of(memory_bytes(decision.requests), used_bytes),
        )

    groups = {each.unit: row(each.unit, each.unit, each.sample) for each in now.groups}
    return NodeUsage(
        node=row("node", NODE, now.sample),
        groups=tuple(groups.values()),
        pods=tuple(map(pod, now.pods)),
        stats=now,
        interval_usec=elapsed,
    )


def _samples(stats: NodeStats) -> Iterator[tuple[UnitName, Sample]]:
    yield NODE, stats.sample
    yield from ((each.unit, each.sample) for each in stats.groups)
    for pod in stats.pods:
        yield pod.decision.slice, pod.sample
        yield from ((each.unit, each.sample) for each in pod.containers)


def _rate(now: int | None, before: int | None, elapsed_usec: int) -> int | None:
    """Return the rate in thousandths; None if the counter was reset."""
    if now is None or before is None or now < before or elapsed_usec <= 0:
        return None
    return (now - before) * 1000 // elapsed_usec


def _io_rate(now: Mapping[str, int], before: Mapping[str, int], elapsed_usec: int) -> int | None:
    """Return bytes per second, of all devices; None if nothing was counted."""
    read, earlier = sum(now.values()), sum(before.values())
    return (
        (read - earlier) * 1_000_000 // elapsed_usec
        if now and read >= earlier and elapsed_usec > 0
        else None
    )


def _throttled(now: Sample, before: Sample) -> int | None:
    """Return percent; None without a quota, since the kernel then counts no periods."""
    if not now.periods or before.periods is None or now.periods < before.periods:
        return None
    if now.throttled_periods is None or before.throttled_periods is None:
        return None
    periods = now.periods - before.periods
    return (now.throttled_periods - before.throttled_periods) * 100 // periods if periods else 0


_KEYS: Mapping[Sort, Callable[[UsageRow], int]] = {
    Sort.CPU: lambda row: row.cpu_milli or 0,
    Sort.MEMORY: lambda row: row.sample.working_set_bytes or 0,
    Sort.THROTTLED: lambda row: row.throttled_percent or 0,
    Sort.PRESSURE: lambda row: row.pressure_milli,
    Sort.NAME: lambda _: 0,
}


def _sorted(rows: Iterable[UsageRow], by: Sort) -> tuple[UsageRow, ...]:
    """Sort in descending order, and by name where equal."""
    ordered = sorted(rows, key=lambda row: (-_KEYS[by](row), natural_key(row.name)))
    return tuple(
        replace(row, containers=_sorted(row.containers, by)) if row.containers else row
        for row in ordered
    )


_BAR_WIDTH = 10
_BAR = Column(title="", drop=0)
_CPUS = Column(title="CPUS", drop=1)
_CPU = Column(title="CPU / LIMIT")
_MEMORY = Column(title="MEM / LIMIT")
_COLUMNS = (
    Column(title="NAME", min_width=20, shorten=Shorten.MIDDLE),
    _CPU,
    _BAR,
    _MEMORY,
    _BAR,
    Column(title="MEM%", drop=4, align=Align.RIGHT),
    Column(title="THROTTLED", drop=6, align=Align.RIGHT),
    Column(title="TASKS", drop=5, align=Align.RIGHT),
)
_WIDE_COLUMNS = (
    *_COLUMNS,
    Column(title="READ/S", drop=2, align=Align.RIGHT),
    Column(title="WRITTEN/S", drop=2, align=Align.RIGHT),
    Column(title="OOM", drop=3, align=Align.RIGHT),
    Column(title="QOS", drop=1),
    _CPUS,
)
_PRESSURE = Column(title="PRESSURE", drop=7, min_width=10)
_STEADY = {"CPU": 5, "MEM": 8, "MEM%": 4, "TASKS": 5}
"""The widths of most numbers, so that columns stay in their place on a page that is redrawn."""
_HIGH_PERCENT, _FULL_PERCENT = 75, 90
"""From these shares of a limit, use is a warning or an error."""
_THROTTLED_PERCENT = 25
_PRESSURE_MILLI = 10_000


def table(usage: NodeUsage, display: Display) -> Iterator[str]:
    """Yield the rows as text; with all details also containers, the QoS class and OOM kills."""
    return (line for _, line in rows(usage, display))


def rows(usage: NodeUsage, display: Display, *, plain: str = "") -> Iterator[tuple[str, str]]:
    """Yield lines, each with the name of its pod; it is empty for the titles, node and slices.

    The rows of the pod `plain` have no colors, so that they can be highlighted.
    """
    wide = display.wide
    steady = {} if display.width is None else _STEADY
    listed = [("", "", row) for row in (usage.node, *usage.groups)]
    for pod in usage.pods:
        listed.append((pod.name, "", pod))
        listed += [(pod.name, "  ", each) for each in (pod.containers if wide else ())]
    used_cpus = (_cpus(row.cpu_milli) for *_, row in listed)
    used_bytes = (_bytes(row.sample.working_set_bytes, display) for *_, row in listed)
    cpu, *cpus = _aligned("CPU", used_cpus, steady)
    memory, *memories = _aligned("MEM", used_bytes, steady)
    made = [
        (pod, _cells(row, indent, cpus[number], memories[number], display))
        for number, (pod, indent, row) in enumerate(listed)
    ]
    titles = {_CPU: f"{cpu} / LIMIT", _MEMORY: f"{memory} / LIMIT"}
    columns: Sequence[Column] = (*(_WIDE_COLUMNS if wide else _COLUMNS), _PRESSURE)
    shown = [index for index, each in enumerate(columns) if _is_shown(each, index, made, display)]
    columns = [
        each._replace(title=titles.get(each, each.title), width=steady.get(each.title, 0))
        for each in (columns[index] for index in shown)
    ]
    made = [(pod, [row[index] for index in shown]) for pod, row in made]
    cells = (list(map(text_of, row)) if plain and pod == plain else row for pod, row in made)
    lines = layout.table(columns, cells, display)
    return zip(("", *(pod for pod, _ in made)), lines, strict=True)


def _aligned(title: str, texts: Iterable[str], steady: Mapping[str, int]) -> list[str]:
    """Return a title and the texts below it with the same width."""
    found = [title, *texts]
    width = max(steady.get(title, 0), *map(width_of, found))
    return [rjust(text, width) for text in found]


def _is_shown(
    column: Column, index: int, made: Sequence[tuple[str, Sequence[Cell]]], display: Display
) -> bool:
    """Return whether a column is shown: bars are on terminals, where there are any, as lists of CPUs."""
    if column not in (_BAR, _CPUS):
        return True
    is_filled = any(text_of(row[index]) for _, row in made)
    return is_filled and (column is _CPUS or display.width is not None)


def _cells(row: UsageRow, indent: str, cpu: str, memory: str, display: Display) -> list[Cell]:
    """Return the cells of a row; `cpu` and `memory` are its usage."""
    sample, wide = row.sample, display.wide
    cpu_limit = "-" if row.cpu_limit_milli is None else f"{row.cpu_limit_milli / 1000:g}"
    memory_limit = _bytes(row.limit_bytes, display)
    rates = (row.read_per_sec, row.written_per_sec) if wide else ()
    return [
        indent + row.name,
        f"{cpu} / {cpu_limit}",
        use_bar(row.cpu_milli or 0, row.cpu_limit_milli, row.cpu_marks, width=_BAR_WIDTH),
        _level(f"{memory} / {memory_limit}", row.memory_percent),
        use_bar(sample.working_set_bytes or 0, row.limit_bytes, row.memory_marks, width=_BAR_WIDTH),
        _level(_number(row.memory_percent, "%"), row.memory_percent),
        warned(
            _number(row.throttled_percent, "%"),
            when=(row.throttled_percent or 0) >= _THROTTLED_PERCENT,
        ),
        _number(sample.tasks),
        *(_bytes(rate, display) for rate in rates),
        *((warned(_number(sample.oom_kills), when=bool(sample.oom_kills)),) if wide else ()),
        *((row.qos or "-", row.allowed_cpus) if wide else ()),
        warned(_pressure(sample), when=row.pressure_milli >= _PRESSURE_MILLI),
    ]


def _cpus(milli: int | None) -> str:
    return "-" if milli is None else f"{milli / 1000:.2f}"


def _bytes(number: int | None, display: Display) -> str:
    if number is None:
        return "-"
    return format_bytes(number) if display.is_exact else human_bytes(number)


def _level(text: str, percent: int | None) -> Cell:
    if percent is None or percent < _HIGH_PERCENT:
        return text
    return Styled(text, Role.ERROR if percent >= _FULL_PERCENT else Role.WARNING)


def _number(value: int | None, unit: str = "") -> str:
    return "-" if value is None else f"{value}{unit}"


def _pressure(sample: Sample) -> str:
    """Format pressures that are not zero, the highest first: `cpu 12% io 3%`."""
    if not sample.pressure:
        return "-"
    percent = {name: each.some.avg10_milli // 1000 for name, each in sample.pressure.items()}
    highest = sorted(percent.items(), key=lambda each: -each[1])
    return " ".join(f"{name} {value}%" for name, value in highest if value) or "none"


@dataclass(frozen=True, kw_only=True)
class UsageEntry:
    """What is known of the usage of a unit or of the node."""

    cpu_milli: int | None = None
    cpu_limit_milli: int | None = None
    memory_working_set_bytes: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    throttled_percent: int | None = None
    tasks: int | None = None
    oom_kills: int | None = None
    io_read_bytes_per_sec: int | None = None
    io_written_bytes_per_sec: int | None = None
    allowed_cpus: str | None = None
    cpu_pressure_percent: float | None = None
    memory_pressure_percent: float | None = None
    io_pressure_percent: float | None = None


@dataclass(frozen=True, kw_only=True)
class NodeUsageEntry(UsageEntry):
    """The usage of the node, with its capacity."""

    cpu_capacity_milli: int
    memory_available_bytes: int
    storage_available_bytes: int
    storage_capacity_bytes: int
    pids_max: int
    conditions: tuple[str, ...]
    evicted: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GroupUsageEntry(UsageEntry):
    """The usage of a slice that is not a pod's."""

    unit: UnitName


@dataclass(frozen=True, kw_only=True)
class ContainerUsageEntry(UsageEntry):
    """The usage of a container."""

    name: str
    unit: UnitName


@dataclass(frozen=True, kw_only=True)
class PodUsageEntry(UsageEntry):
    """The usage of a pod."""

    pod: str
    unit: UnitName
    qos_class: str
    containers: tuple[ContainerUsageEntry, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The usage of the node, its slices and its pods."""

    configuration: ConfigurationEntry | None = None
    time_usec: int
    interval_usec: int
    node: NodeUsageEntry
    groups: tuple[GroupUsageEntry, ...]
    pods: tuple[PodUsageEntry, ...]


def report(
    usage: NodeUsage, summary: NodeSummary, configuration: ConfigurationEntry | None = None
) -> Report:
    """Return the usage for JSON."""
    stats = usage.stats
    node = NodeUsageEntry(
        **_values(usage.node),
        cpu_capacity_milli=summary.cpus_milli,
        memory_available_bytes=stats.memory.available,
        storage_available_bytes=stats.file_system.available_bytes,
        storage_capacity_bytes=stats.file_system.capacity_bytes,
        pids_max=stats.pids_max,
        conditions=tuple(summary.conditions),
        evicted=tuple(summary.evicted),
        problems=tuple(summary.problems),
    )
    return Report(
        configuration=configuration,
        time_usec=stats.time_usec,
        interval_usec=usage.interval_usec,
        node=node,
        groups=tuple(GroupUsageEntry(unit=row.unit, **_values(row)) for row in usage.groups),
        pods=tuple(map(_pod_entry, usage.pods)),
    )


def _pod_entry(row: UsageRow) -> PodUsageEntry:
    containers = (
        ContainerUsageEntry(name=each.name, unit=each.unit, **_values(each))
        for each in row.containers
    )
    return PodUsageEntry(
        pod=row.name,
        unit=row.unit,
        qos_class=row.qos,
        containers=tuple(containers),
        **_values(row),
    )


def _values(row: UsageRow) -> dict[str, Any]:
    """Return the fields of `UsageEntry`."""
    sample = row.sample
    return {
        "cpu_milli": row.cpu_milli,
        "cpu_limit_milli": row.cpu_limit_milli,
        "memory_working_set_bytes": sample.working_set_bytes,
        "memory_bytes": sample.memory_bytes,
        "memory_limit_bytes": row.limit_bytes,
        "throttled_percent": row.throttled_percent,
        "tasks": sample.tasks,
        "oom_kills": sample.oom_kills,
        "io_read_bytes_per_sec": row.read_per_sec,
        "io_written_bytes_per_sec": row.written_per_sec,
        "allowed_cpus": row.allowed_cpus or None,
        **{
            f"{name}_pressure_percent": each.some.avg10_milli / 1000
            for name, each in sample.pressure.items()
        },
    }


_EVICTED_NAMED = 5
"""Evicted pods that are named; the others are counted."""
_TWO_GAUGES = 80
"""From this width two gauges are beside each other."""
_SHORT_BAR, _LONG_BAR = 5, 10


def head(usage: NodeUsage, summary: NodeSummary, display: Display) -> Iterator[str]:
    """Yield the node's usage, conditions and problems in a few lines, on a terminal with bars."""
    gauges = _gauges(usage, summary)
    if display.width is None:
        cpu, processes, memory, storage = (f"{name} {text}" for name, _, _, text in gauges)
        yield f"{cpu}, {memory}"
        yield f"{storage}, {processes}"
    else:
        yield from _bars(gauges, display, display.width)
    for text, role in _notices(summary):
        yield from fold(text, display, hanging="  ", role=role)


def _gauges(usage: NodeUsage, summary: NodeSummary) -> Iterator[tuple[str, int, int, str]]:
    """Yield what the node uses, with its capacity, both also as text."""
    stats = usage.stats
    memory, storage = stats.memory.capacity, stats.file_system.capacity_bytes
    cpu = _cpus(usage.node.cpu_milli)
    cpus_milli = summary.cpus_milli
    yield "cpu", usage.node.cpu_milli or 0, cpus_milli, f"{cpu} / {cpus_milli / 1000:g}"
    yield "processes", stats.pids, stats.pids_max, f"{stats.pids} / {stats.pids_max}"
    for name, free, whole in (
        ("memory", stats.memory.available, memory),
        ("storage", stats.file_system.available_bytes, storage),
    ):
        yield name, whole - free, whole, f"{human_bytes(whole - free)} / {human_bytes(whole)}"


def _bars(
    gauges: Iterable[tuple[str, int, int, str]], display: Display, width: int
) -> Iterator[str]:
    size = _LONG_BAR if width >= 2 * _TWO_GAUGES else _SHORT_BAR
    rows: Sequence[Sequence[Cell]] = [
        (name, bar(used, whole, width=size), text) for name, used, whole, text in gauges
    ]
    columns = [Column(title=""), Column(title=""), Column(title="", min_width=10)]
    if width >= _TWO_GAUGES:
        columns = columns * 2
        rows = [(*left, *right) for left, right in zip(rows[:2], rows[2:], strict=True)]
    return layout.table(columns, rows, display, has_head=False)


def _notices(summary: NodeSummary) -> Iterator[tuple[str, Role]]:
    if summary.conditions:
        yield f"node conditions: {', '.join(summary.conditions)}", Role.WARNING
    if summary.evicted:
        names = list_first(summary.evicted, _EVICTED_NAMED)
        yield f"evicted: {names}; to readmit one: podslice readmit POD", Role.WARNING
    yield from ((text, Role.ERROR) for text in summary.problems)
