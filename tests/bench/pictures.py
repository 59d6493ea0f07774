"""Plots as PNG, with matplotlib."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from tests.bench.result import Plot

SIZE_INCHES = (7.0, 4.0)
DPI = 110
GROUP_WIDTH = 0.8


def draw(plot: Plot, directory: Path) -> None:
    """Write a plot to a directory."""
    figure, axes = plt.subplots(figsize=SIZE_INCHES, layout="constrained")
    groups = list(dict.fromkeys(group for bars in plot.series.values() for group in bars))
    width = GROUP_WIDTH / len(plot.series)
    for number, (label, bars) in enumerate(plot.series.items()):
        offset = (number + 0.5) * width - GROUP_WIDTH / 2
        low = [each.middle - each.low for each in bars.values()]
        high = [each.high - each.middle for each in bars.values()]
        axes.bar(
            [groups.index(group) + offset for group in bars],
            [each.middle for each in bars.values()],
            width=width,
            yerr=(low, high),
            label=label,
            capsize=2,
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.axhline(plot.guide, color="grey", linewidth=0.8, linestyle="--")
    axes.set_title(plot.title, fontsize=10)
    axes.set_xlabel(plot.x)
    axes.set_ylabel(plot.y)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", linewidth=0.3)
    axes.legend(fontsize=8)
    # without the version of the library, so that equal figures give equal files
    figure.savefig(directory / f"{plot.name}.png", dpi=DPI, metadata={"Software": None})
    plt.close(figure)
