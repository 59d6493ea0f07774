"""The node's usage, conditions and problems above the table of `top`. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.cli.views.layout import Column, fold, table
from podslice.cli.views.style import Cell, Display, Role, bar
from podslice.cli.views.tables import human_bytes
from podslice.cli.views.usage_table import NodeSummary, NodeUsage

_NAMED = 5
"""Evicted pods that are named; the others are counted."""
_TWO_GAUGES = 80
"""From this width two gauges are beside each other."""
_BAR, _LONG_BAR = 5, 10


def head(usage: NodeUsage, summary: NodeSummary, display: Display) -> Iterator[str]:
    """Yield the node's usage, conditions and problems in a few lines, on a terminal with bars."""
    if display.width is None:
        yield from _sentences(usage, summary)
    else:
        yield from _gauges(usage, summary, display, display.width)
    for text, role in _notices(summary):
        yield from (display.paint(line, role) for line in fold(text, display, hanging="  "))


def _sentences(usage: NodeUsage, summary: NodeSummary) -> Iterator[str]:
    stats = usage.stats
    memory = _of(stats.memory_available_bytes, stats.memory_capacity_bytes)
    storage = _of(stats.fs_available_bytes, stats.fs_capacity_bytes)
    yield f"cpu {_cpu(usage, summary)} used, memory {memory} available"
    yield f"storage {storage} free, processes {stats.pids} of {stats.pids_max}"


def _cpu(usage: NodeUsage, summary: NodeSummary) -> str:
    used = "-" if usage.node.cpu_milli is None else f"{usage.node.cpu_milli / 1000:.2f}"
    return f"{used} of {summary.cpus_milli / 1000:g}"


def _of(part: int, whole: int) -> str:
    return f"{human_bytes(part)} of {human_bytes(whole)}"


def _gauges(usage: NodeUsage, summary: NodeSummary, display: Display, width: int) -> Iterator[str]:
    stats = usage.stats
    size = _LONG_BAR if width >= 2 * _TWO_GAUGES else _BAR
    memory, storage = stats.memory_capacity_bytes, stats.fs_capacity_bytes
    cpu_milli = usage.node.cpu_milli or 0
    gauges: list[Sequence[Cell]] = [
        ("cpu", bar(cpu_milli, summary.cpus_milli, width=size), f"{_cpu(usage, summary)} used"),
        (
            "processes",
            bar(stats.pids, stats.pids_max, width=size),
            f"{stats.pids} of {stats.pids_max}",
        ),
        (
            "memory",
            bar(memory - stats.memory_available_bytes, memory, width=size),
            f"{_of(stats.memory_available_bytes, memory)} free",
        ),
        (
            "storage",
            bar(storage - stats.fs_available_bytes, storage, width=size),
            f"{_of(stats.fs_available_bytes, storage)} free",
        ),
    ]
    columns = [Column(title=""), Column(title=""), Column(title="", min_width=10)]
    rows: Sequence[Sequence[Cell]] = gauges
    if width >= _TWO_GAUGES:
        columns = columns * 2
        rows = [(*left, *right) for left, right in zip(gauges[:2], gauges[2:], strict=True)]
    return table(columns, rows, display, has_head=False)


def _notices(summary: NodeSummary) -> Iterator[tuple[str, Role]]:
    if summary.conditions:
        yield f"node conditions: {', '.join(summary.conditions)}", Role.WARNING
    if summary.evicted:
        names = ", ".join(summary.evicted[:_NAMED])
        if (more := len(summary.evicted) - _NAMED) > 0:
            names = f"{names} and {more} more"
        yield f"evicted: {names}; to readmit one: podslice readmit POD", Role.WARNING
    yield from ((text, Role.ERROR) for text in summary.problems)
