"""What `podslice simulate` prints: its tables, its document, and its picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from podslice.cli.views.layout import Align, Column, Shorten, fold, table
from podslice.cli.views.style import Cell, Display, Role, Styled, bar
from podslice.cli.views.tables import list_first
from podslice.errors import HostError, invalid
from podslice.features.simulate.sharing import MemorySharing, SimulatedUnit, Simulation
from podslice.model.pod import Qos
from podslice.model.quantity import format_bytes, format_milli, human_bytes
from podslice.model.resources import memory_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BAR_WIDTH = 20
_NUMBER = Align.RIGHT
_COLUMNS = (
    Column(title="NAME", min_width=20, shorten=Shorten.MIDDLE),
    Column(title="WEIGHT", align=_NUMBER, drop=2),
    Column(title="REQUEST", align=_NUMBER),
    Column(title="LIMIT", align=_NUMBER, drop=3),
    Column(title="CPU", align=_NUMBER),
    Column(title="", drop=1),
)
_TOLERANCE_MILLI = 10
"""The rounding of weights."""


def simulation_lines(found: Simulation, display: Display) -> Iterator[str]:
    """Yield a table of CPUs and one of memory.

    The first has a line for each slice, and with all details for each container.
    """
    shown = found.units if display.wide else found.slices
    yield from table(_COLUMNS, [_cells(unit, found, display) for unit in shown], display)
    if found.memory.pods:
        yield ""
        yield from memory_lines(found.memory, display)


def _cells(unit: SimulatedUnit, found: Simulation, display: Display) -> Sequence[Cell]:
    request = unit.requested_milli
    quota = unit.group.quota_milli
    is_less = request is not None and unit.cpu_milli + _TOLERANCE_MILLI < request
    role = Role.WARNING if is_less else Role.GOOD
    return [
        "  " * unit.depth + (unit.group.name if display.wide else unit.label),
        str(unit.group.weight),
        "-" if request is None else format_milli(request),
        "-" if quota is None else format_milli(quota),
        Styled(unit.cpus, role) if is_less else unit.cpus,
        Styled(bar(unit.cpu_milli, 1000 * found.cpu_count, width=_BAR_WIDTH).text, role),
    ]


@dataclass(frozen=True, kw_only=True)
class MemoryEntry:
    """The memory of all pods together."""

    available_bytes: int
    limit_bytes: int
    overcommitted_bytes: int


@dataclass(frozen=True, kw_only=True)
class UnitEntry:
    """A unit with its CPUs."""

    name: str
    parent: str | None
    weight: int
    quota_cpu_milli: int | None
    threads: int | None
    """None for one on each CPU, and with units below it."""
    allowed_cpus: tuple[int, ...] | None
    cpu_milli: int


@dataclass(frozen=True, kw_only=True)
class PodEntry:
    """A pod with its CPUs and its memory."""

    namespace: str
    name: str
    qos: Qos
    requested_cpu_milli: int | None
    limit_cpu_milli: int | None
    cpu_milli: int
    requested_memory_bytes: int | None
    limit_memory_bytes: int | None
    protected_memory_bytes: int
    reclaimable_memory_bytes: int
    oom_score: int
    eviction_rank: int | None


@dataclass(frozen=True, kw_only=True)
class SimulationReport:
    """What each unit and each pod gets."""

    cpus: int
    memory: MemoryEntry
    units: tuple[UnitEntry, ...]
    pods: tuple[PodEntry, ...]
    """In the order of the units."""


def simulation_report(found: Simulation) -> SimulationReport:
    """Return the report for programs."""
    memory = {each.pod.pod.key: each for each in found.memory.pods}
    return SimulationReport(
        cpus=found.cpu_count,
        memory=MemoryEntry(
            available_bytes=found.memory.available_bytes,
            limit_bytes=found.memory.limit_bytes,
            overcommitted_bytes=found.memory.overcommitted_bytes,
        ),
        units=tuple(
            UnitEntry(
                name=group.name,
                parent=unit.parent or None,
                weight=group.weight,
                quota_cpu_milli=group.quota_milli,
                threads=None if group.children else group.threads,
                allowed_cpus=None if group.cpus is None else tuple(sorted(group.cpus)),
                cpu_milli=unit.cpu_milli,
            )
            for unit in found.units
            for group in [unit.group]
        ),
        pods=tuple(
            PodEntry(
                namespace=pod.pod.namespace,
                name=pod.pod.name,
                qos=pod.qos,
                requested_cpu_milli=unit.requested_milli,
                limit_cpu_milli=unit.group.quota_milli,
                cpu_milli=unit.cpu_milli,
                requested_memory_bytes=memory_bytes(pod.requests),
                limit_memory_bytes=of_pod.limit_bytes if of_pod.is_limited else None,
                protected_memory_bytes=of_pod.protected_bytes,
                reclaimable_memory_bytes=of_pod.reclaimable_bytes,
                oom_score=of_pod.oom_score,
                eviction_rank=of_pod.eviction_rank,
            )
            for unit in found.units
            if (pod := unit.pod) and (of_pod := memory[pod.pod.key])
        ),
    )


_MEMORY_COLUMNS = (
    Column(title="NAME", min_width=20, shorten=Shorten.MIDDLE),
    Column(title="REQUEST", align=_NUMBER, drop=1),
    Column(title="LIMIT", align=_NUMBER),
    Column(title="PROTECTED", align=_NUMBER),
    Column(title="RECLAIMABLE", align=_NUMBER, drop=2),
    Column(title="OOM SCORE", align=_NUMBER),
    Column(title="EVICTED", align=_NUMBER, drop=3),
)
_NAMED = 5
"""Pods without a limit that are named; the others are counted."""


def memory_lines(found: MemorySharing, display: Display) -> Iterator[str]:
    """Yield a line for each pod, those that are killed first at the top, and a summary."""

    def amount(number: int | None) -> str:
        if number is None:
            return "-"
        return format_bytes(number) if display.is_exact else human_bytes(number)

    cells = (
        [
            each.pod.pod.key,
            amount(memory_bytes(each.pod.requests)),
            amount(each.limit_bytes if each.is_limited else None),
            amount(each.protected_bytes),
            amount(each.reclaimable_bytes),
            str(each.oom_score),
            str(each.eviction_rank or "-"),
        ]
        for each in found.pods
    )
    yield from table(_MEMORY_COLUMNS, cells, display)
    yield ""
    text = (
        f"The pods can use {amount(found.limit_bytes)} of {amount(found.available_bytes)} together"
    )
    if over := found.overcommitted_bytes:
        text += f": {amount(over)} is overcommitted"
    yield from fold(f"{text}.", display)
    if unlimited := [each.pod.pod.key for each in found.pods if not each.is_limited]:
        yield from fold(f"Without a memory limit: {list_first(unlimited, _NAMED)}.", display)


_LABEL_SIZE, _CHART_SIZE, _NUMBER_SIZE, _ROW_SIZE, _BAR_SIZE, _MARGIN = 360, 400, 70, 24, 14, 20
"""Widths and heights in pixels."""
_SVG_TEXT = 'font-family="sans-serif" font-size="12"'
_BAR_COLOR, _MARK_COLOR, _GRAY = "#4c78a8", "#d62728", "#e8e8e8"


def writer_of(path: Path) -> Callable[[Simulation], object]:
    """Return the function that draws the CPUs of slices in a file, by the ending of its name.

    Raises:
        InputError: the ending is unknown.
        HostError: it is PNG, and matplotlib is not installed.
    """
    if path.suffix == ".svg":
        return lambda found: path.write_text(svg(found), encoding="utf-8")
    if path.suffix != ".png":
        raise invalid(f"{path.name!r} does not end in .svg or .png", where="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HostError(
            "--plot: PNG requires matplotlib, which is not installed; write a file that ends in"
            " .svg, or install python3-matplotlib"
        ) from error
    return lambda found: _write_png(found, path, Figure(figsize=(9, 1 + len(found.slices) / 4)))


def _title(found: Simulation) -> str:
    return f"Simulated use of {found.cpu_count} CPUs; requests in red"


def _write_png(found: Simulation, path: Path, figure: Figure) -> None:
    """Draw the same bars with matplotlib."""
    bars = found.slices
    figure.set_layout_engine("tight")
    axes = figure.add_subplot()
    drawn = axes.barh(range(len(bars)), [each.cpu_milli for each in bars], color=_BAR_COLOR)
    axes.bar_label(drawn, [each.cpus for each in bars], padding=4)
    for place, each in enumerate(bars):
        if (mark := each.requested_milli) is not None:
            axes.plot([mark, mark], [place - 0.4, place + 0.4], color=_MARK_COLOR)
    axes.set_yticks(range(len(bars)), [each.label for each in bars])
    axes.set_xlim(0, 1000 * found.cpu_count)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_title(_title(found))
    figure.savefig(path, metadata={"Software": None})


def svg(found: Simulation) -> str:
    """Return a bar for each slice as an SVG document, with the request of a pod as a mark."""
    width = _LABEL_SIZE + _CHART_SIZE + _NUMBER_SIZE
    height = _ROW_SIZE * (len(found.slices) + 1) + 2 * _MARGIN
    scale = _CHART_SIZE / (1000 * found.cpu_count)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_MARGIN}" y="{_MARGIN}" {_SVG_TEXT} font-weight="bold">{_title(found)}</text>',
    ]
    for at, each in enumerate(found.slices):
        top = _MARGIN + _ROW_SIZE * (at + 1) - _BAR_SIZE
        lines += (
            _text(_MARGIN * (1 + each.depth), top, each.label),
            _rect(_LABEL_SIZE, top, _CHART_SIZE, _GRAY),
            _rect(_LABEL_SIZE, top, each.cpu_milli * scale, _BAR_COLOR),
        )
        if (mark := each.requested_milli) is not None:
            left = _LABEL_SIZE + min(mark * scale, _CHART_SIZE) - 1
            lines.append(_rect(left, top, 2, _MARK_COLOR))
        lines.append(_text(_LABEL_SIZE + _CHART_SIZE + 8, top, each.cpus))
    return "\n".join((*lines, "</svg>\n"))


def _text(left: int, top: int, text: str) -> str:
    return f'<text x="{left}" y="{top + _BAR_SIZE - 3}" {_SVG_TEXT}>{escape(text)}</text>'


def _rect(left: float, top: float, width: float, color: str) -> str:
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BAR_SIZE}" fill="{color}"/>'
