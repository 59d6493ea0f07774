"""Horizontal bars as a picture in SVG. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from podslice.cli.views.simulation import Simulation

_LABEL, _CHART, _NUMBER, _ROW, _BAR, _MARGIN = 360, 400, 70, 24, 14, 20
"""Widths and heights in pixels."""
_TEXT = 'font-family="sans-serif" font-size="12"'
BAR_COLOR, MARK_COLOR = "#4c78a8", "#d62728"
_GRAY = "#e8e8e8"


class Bar(NamedTuple):
    """One bar: a part of the whole."""

    label: str
    depth: int
    value: float
    text: str
    mark: float | None = None
    """A line across the bar."""


class BarChart(NamedTuple):
    """Bars below each other."""

    title: str
    whole: float
    """The value of the longest possible bar."""
    bars: tuple[Bar, ...]


def chart_of(found: Simulation) -> BarChart:
    """Return the use of CPUs by each slice, with the request of a pod as a mark."""
    return BarChart(
        title=f"Simulated use of {found.cpu_count} CPUs; requests in red",
        whole=1000 * found.cpu_count,
        bars=tuple(
            Bar(
                label=unit.label,
                depth=unit.depth,
                value=unit.cpu_milli,
                mark=unit.requested_milli,
                text=f"{unit.cpu_milli / 1000:.2f}",
            )
            for unit in found.units
            if not unit.is_container
        ),
    )


def svg(chart: BarChart) -> str:
    """Return a chart as an SVG document."""
    width = _LABEL + _CHART + _NUMBER
    height = _ROW * (len(chart.bars) + 1) + 2 * _MARGIN
    rows = (line for at, each in enumerate(chart.bars) for line in _row(each, at, chart.whole))
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN}" {_TEXT} font-weight="bold">{escape(chart.title)}</text>',
            *rows,
            "</svg>\n",
        )
    )


def _row(bar: Bar, at: int, whole: float) -> Iterator[str]:
    """Yield the elements of one bar."""
    top = _MARGIN + _ROW * (at + 1) - _BAR
    base = top + _BAR - 3
    yield f'<text x="{_MARGIN * (1 + bar.depth)}" y="{base}" {_TEXT}>{escape(bar.label)}</text>'
    yield _rect(_LABEL, top, _CHART, _GRAY)
    yield _rect(_LABEL, top, _CHART * bar.value / whole, BAR_COLOR)
    if bar.mark is not None:
        yield _rect(_LABEL + _CHART * min(bar.mark / whole, 1.0) - 1, top, 2, MARK_COLOR)
    yield f'<text x="{_LABEL + _CHART + 8}" y="{base}" {_TEXT}>{escape(bar.text)}</text>'


def _rect(left: float, top: float, width: float, color: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BAR}" fill="{color}"/>'
    )
