"""Everything about one pod: the page of `status POD`. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from podslice.cli.views import layout, status_view
from podslice.cli.views.layout import Align, Column, Shorten
from podslice.cli.views.status_view import OTHER, UnitRow, format_time, state
from podslice.cli.views.style import MARKS, Cell, Display, Role, Styled, marks_of, use_bar, warned
from podslice.cli.views.usage_table import UsageRow
from podslice.errors import printable
from podslice.kernel.cgroup import Sample
from podslice.model.desired import PodDecision
from podslice.model.properties import CPU_QUOTA, MEMORY_MAX, TASKS_MAX
from podslice.model.quantity import human_bytes
from podslice.model.resources import UsedAmounts, cpu_milli, format_amounts, memory_bytes
from podslice.model.unit import INFINITY, UnitKind, UnitName
from podslice.systemd.journal import Entry
from podslice.usage.runtimes import RuntimeContainer
from podslice.usage.stats import PodStats
from podslice.usage.unit_status import EXITED, HOLDS_PROCESSES, MISSING, WITHOUT_UNIT, UnitStatus


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
    apply_command: tuple[str, ...] | None
    """The command that applies this file again; None without one."""
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


def used_bytes(detail: PodDetail, volume: str) -> int | None:
    """Return the used bytes of a mounted volume."""
    found = detail.stats.volumes.get(volume) if detail.stats else None
    return found.used_bytes if found else None


_BAR, _BAR_MIN, _TEXT = 20, 5, 45
_INDENT = "  "
_PAIR = (Column(title=""), Column(title="", min_width=20, shorten=Shorten.FOLD))
_BARS = (
    Column(title=""),
    Column(title="", drop=1),
    Column(title="", min_width=20, shorten=Shorten.FOLD),
)
_PROPERTIES = (
    Column(title="UNIT", min_width=8, shorten=Shorten.MIDDLE),
    Column(title="PROPERTY", min_width=12, shorten=Shorten.MIDDLE),
    Column(title="DESIRED", align=Align.RIGHT),
    Column(title="SYSTEMD", align=Align.RIGHT),
    Column(title="KERNEL", drop=1, align=Align.RIGHT),
)
_CONTAINERS = (
    Column(title="NAME", min_width=8, shorten=Shorten.MIDDLE),
    status_view.STATE,
    Column(title="RESTARTS", drop=2, align=Align.RIGHT),
    Column(title="CPU", align=Align.RIGHT),
    Column(title="MEM", align=Align.RIGHT),
    Column(title="TASKS", drop=1, align=Align.RIGHT),
)
_VOLUMES = (
    Column(title="NAME", min_width=8, shorten=Shorten.MIDDLE),
    Column(title="USED", align=Align.RIGHT),
    Column(title="SIZE", align=Align.RIGHT),
    Column(title="PATH", min_width=20, shorten=Shorten.MIDDLE),
    Column(title="UNIT", drop=1, min_width=20, shorten=Shorten.MIDDLE),
)
_EVENTS = (
    Column(title="TIME"),
    Column(title="KIND", min_width=8),
    Column(title="MESSAGE", min_width=20, shorten=Shorten.FOLD),
)


def pod_page(detail: PodDetail, display: Display) -> Iterator[str]:
    """Yield the page of a pod."""
    yield from _head(detail, display)
    for title, lines in (
        ("USE", _use(detail, display)),
        ("CONTAINERS", _containers(detail, display)),
        ("PROPERTIES", _properties(detail, display)),
        ("VOLUMES", _volumes(detail, display)),
        ("EVENTS", _events(detail, display)),
    ):
        section = list(lines)
        if section:
            yield ""
            yield display.paint(title, Role.HEADING)
            yield from section


def _head(detail: PodDetail, display: Display) -> Iterator[str]:
    decision, stats = detail.decision, detail.stats
    pod = decision.pod
    title = f"pod {pod.key}  {decision.qos}  {_phase(detail)}"
    yield from layout.fold(title, display, hanging=_INDENT, role=Role.HEADING)
    started = "-"
    if stats and stats.started_usec:
        age = status_view.duration(max(detail.time_usec - stats.started_usec, 0))
        started = f"{format_time(stats.started_usec)} ({age} ago)"
    pairs: list[tuple[str, Cell]] = [
        ("manifest", detail.source or "none found in a manifest directory"),
        ("slice", decision.slice),
        ("uid", pod.uid),
        ("started", started),
        ("grace", f"{pod.grace_period_sec}s"),
        ("requests", format_amounts(decision.requests) or "none"),
        ("limits", format_amounts(decision.limits) or "none"),
    ]
    if detail.node_conditions:
        pairs.append(("node", Styled(", ".join(detail.node_conditions), Role.WARNING)))
    yield from layout.table(_PAIR, pairs, display, indent=_INDENT, has_head=False)


def _phase(detail: PodDetail) -> str:
    if detail.phase != "init":
        is_missing = detail.slice is None or detail.slice.state == MISSING
        return "its slice is missing" if is_missing else detail.phase
    done = sum(done for _, done in detail.init_containers)
    return f"init phase: {done} of {len(detail.init_containers)} init containers are done"


def _use(detail: PodDetail, display: Display) -> Iterator[str]:
    """Yield the use, as bars where there is a limit, then throttling, pressure and OOM kills."""
    if detail.usage is None:
        return
    sample = detail.usage.sample
    width = _BAR
    if display.width is not None:
        width = max(_BAR_MIN, min(_BAR, display.width - _TEXT))
    quota, usage, requests = detail.limit(CPU_QUOTA), detail.usage, detail.decision.requests
    cpu_limit = None if quota is None else quota // 1000
    recorded = detail.recorded
    of_cpu = marks_of(cpu_milli(requests), recorded.cpu_milli if recorded else None)
    of_memory = marks_of(memory_bytes(requests), recorded.memory_bytes if recorded else None)
    memory_limit = detail.limit(MEMORY_MAX)
    rows: list[tuple[Cell, ...]] = []
    for name, used, limit, text, marks in (
        ("cpu", usage.cpu_milli, cpu_limit, _cpus, of_cpu),
        ("memory", sample.working_set_bytes, memory_limit, human_bytes, of_memory),
        ("tasks", sample.tasks, detail.limit(TASKS_MAX), str, {}),
    ):
        if used is not None:
            rows.append((name, *_bar(used, limit, width, text, marks)))
    rows += [(name, "", text) for name, text in _counters(sample)]
    yield from layout.table(_BARS, rows, display, indent=_INDENT, has_head=False)


def _bar(
    used: int, limit: int | None, width: int, text: Callable[[int], str], marks: Mapping[str, int]
) -> tuple[Cell, str]:
    """Return the bar of a limit, or of the largest amount that is marked, and the amounts as text."""
    of = f" of {text(limit)}" if limit is not None else ""
    unit = " CPUs" if text is _cpus else ""
    words = f"{text(used)}{of}{unit}{', no limit' * (not of)}"
    words += "".join(f"; {mark}: {MARKS[mark]} {text(marks[mark])}" for mark in marks)
    return use_bar(used, limit, marks, width=width), words


def _counters(sample: Sample) -> Iterator[tuple[str, Cell]]:
    if sample.memory_bytes is not None and sample.memory_bytes != sample.working_set_bytes:
        yield "", f"{human_bytes(sample.memory_bytes)} with reclaimable caches"
    if sample.periods:
        throttled = sample.throttled_periods or 0
        text = f"{throttled} of {sample.periods} periods ({throttled * 100 // sample.periods}%)"
        duration = status_view.duration(sample.throttled_usec or 0)
        yield "throttled", warned(f"{text}, {duration} in total", when=throttled > 0)
    if sample.pressure:
        parts = (
            f"{name} {each.some.avg10_milli / 1000:.1f}%" for name, each in sample.pressure.items()
        )
        high = any(each.some.avg10_milli >= _HIGH_MILLI for each in sample.pressure.values())
        yield "pressure", warned(f"{', '.join(parts)} of the last 10 s", when=high)
    if io := _io(sample):
        yield "I/O", io
    if sample.oom_kills is not None:
        yield "OOM kills", warned(str(sample.oom_kills), when=sample.oom_kills > 0)


_HIGH_MILLI = 10_000


def _containers(detail: PodDetail, display: Display) -> Iterator[str]:
    """Yield a table of containers and other units, then the details of each that was started."""
    rows = [row for row in detail.units if row.unit.kind in HOLDS_PROCESSES]
    if rows:
        cells = (_container(detail, row) for row in rows)
        yield from layout.table(_CONTAINERS, cells, display, indent=_INDENT)
    for row in rows:
        pairs = list(_details(detail, row, display))
        if pairs:
            yield f"{_INDENT}{printable(row.unit.label)}"
            indent = _INDENT * 2
            yield from layout.table(_PAIR, pairs, display, indent=indent, has_head=False)
    if detail.log_problem not in ("", detail.events_problem):
        text = f"log: {detail.log_problem}"
        yield from layout.fold(text, display, indent=_INDENT, hanging=_INDENT * 2)


def _container(detail: PodDetail, row: UnitRow) -> Sequence[Cell]:
    unit = row.unit
    used = detail.usage_of(unit.name)
    memory = used.sample.working_set_bytes if used else unit.usage.memory_bytes
    tasks = unit.usage.tasks
    return (
        unit.label,
        _state(unit),
        str(unit.restarts) if unit.state != OTHER else "-",
        "-" if used is None or used.cpu_milli is None else f"{used.cpu_milli / 1000:.2f}",
        "-" if memory is None else human_bytes(memory),
        "-" if tasks is None else str(tasks),
    )


def _state(unit: UnitStatus) -> Cell:
    last = unit.last_exit
    if unit.state == EXITED and last is not None:
        if last.is_oom or last.is_oomd:
            return Styled(state(unit), Role.ERROR)
        if last.exit_code:
            return Styled(state(unit), Role.WARNING)
    return state(unit)


def _details(detail: PodDetail, row: UnitRow, display: Display) -> Iterator[tuple[str, Cell]]:
    unit = row.unit
    more = detail.containers.get(unit.name, ContainerDetail())
    held = more.runtime
    if held is not None:
        if held.image:
            yield "image", held.image
        yield f"{held.runtime} exec", held.name
        if held.ports:
            yield "ports", ", ".join(map(str, held.ports))
    if unit.state not in WITHOUT_UNIT or display.wide:
        yield "unit", unit.name
    if row.processes:
        most = None if display.wide else status_view.SHOWN
        yield "processes", ", ".join(status_view.list_processes(row.processes, most))
    if unit.last_exit is not None:
        text = status_view.exit_sentence(unit.last_exit, unit.restarts)
        yield "last exit", warned(text, when=unit.last_exit.is_oom or unit.last_exit.is_oomd)
    if more.sample is not None and (io := _io(more.sample)):
        yield "I/O", io
    for index, each in enumerate(more.log):
        yield "" if index else "log", f"{format_time(each.time_usec)} {each.message}"


def _io(sample: Sample) -> str:
    """Return the bytes that were read and written; empty without any."""
    if not sample.read_bytes and not sample.written_bytes:
        return ""
    read, written = (sum(each.values()) for each in (sample.read_bytes, sample.written_bytes))
    return f"{human_bytes(read)} read, {human_bytes(written)} written"


def _properties(detail: PodDetail, display: Display) -> Iterator[str]:
    """Yield a table of the desired values, systemd's and the kernel's."""
    rows: list[Sequence[Cell]] = []
    for unit in (row.unit for row in detail.units):
        name = "pod" if unit.kind is UnitKind.SLICE else unit.label
        rows += status_view.property_cells(name, unit, mark=status_view.MARK)
    if rows:
        yield from layout.table(_PROPERTIES, rows, display, indent=_INDENT)


def _volumes(detail: PodDetail, display: Display) -> Iterator[str]:
    rows = [
        (
            each.name,
            "-" if (used := used_bytes(detail, each.name)) is None else human_bytes(used),
            "-" if each.size_bytes is None else human_bytes(each.size_bytes),
            each.path,
            each.unit,
        )
        for each in detail.decision.volumes
    ]
    if rows:
        yield from layout.table(_VOLUMES, rows, display, indent=_INDENT)


def _events(detail: PodDetail, display: Display) -> Iterator[str]:
    if detail.events_problem:
        yield from layout.fold(detail.events_problem, display, indent=_INDENT, hanging=_INDENT)
        return
    rows = [(format_time(each.time_usec), each.kind, each.message) for each in detail.events]
    if not rows:
        yield f"{_INDENT}none"
        return
    yield from layout.table(_EVENTS, rows, display, indent=_INDENT)


def _cpus(milli: int) -> str:
    return f"{milli / 1000:.2f}"
