"""Plots as PNG, with matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from tests.bench.result import Plot, Point

SIZE_INCHES = (7.0, 4.0)
DPI = 110
GROUP_WIDTH = 0.8


def draw(plot: Plot, directory: Path) -> Path:
    """Write a plot to a directory; return the file."""
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    if plot.kind == "lines":
        _draw_lines(plot, axes)
    else:
        _draw_bars(plot, axes)
    if plot.guide is not None:
        axes.axhline(plot.guide, color="grey", linewidth=0.8, linestyle="--")
    axes.set_title(plot.title, fontsize=10)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", linewidth=0.3)
    if len(plot.series) > 1:
        axes.legend(fontsize=8)
    path = directory / f"{plot.name}.png"
    # without the version of the library, so that equal figures give equal files
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)
    return path


def _draw_lines(plot: Plot, axes: Axes) -> None:
    for label, points in plot.series.items():
        axes.errorbar(
            [float(point.x) for point in points],
            [point.y.middle for point in points],
            yerr=_errors(points),
            label=label,
            marker="o",
            markersize=4,
            capsize=3,
        )


def _draw_bars(plot: Plot, axes: Axes) -> None:
    groups = list(dict.fromkeys(str(point.x) for s in plot.series.values() for point in s))
    width = GROUP_WIDTH / len(plot.series)
    for number, (label, points) in enumerate(plot.series.items()):
        offset = (number + 0.5) * width - GROUP_WIDTH / 2
        axes.bar(
            [groups.index(str(point.x)) + offset for point in points],
            [point.y.middle for point in points],
            width=width,
            yerr=_errors(points),
            label=label,
            capsize=2,
        )
    axes.set_xticks(range(len(groups)), groups)


def _errors(points: tuple[Point, ...]) -> tuple[list[float], list[float]]:
    return (
        [point.y.middle - point.y.low for point in points],
        [point.y.high - point.y.middle for point in points],
    )
