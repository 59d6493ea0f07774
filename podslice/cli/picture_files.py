"""Pictures in files: SVG, and PNG where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from podslice.cli.views.bar_chart import BAR_COLOR, MARK_COLOR, BarChart, svg
from podslice.errors import HostError, invalid

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def writer_of(path: Path) -> Callable[[BarChart], None]:
    """Return the function that writes a chart to a file, by the ending of its name.

    Raises:
        InputError: the ending is unknown.
        HostError: it is PNG, and matplotlib is not installed.
    """
    if path.suffix == ".svg":
        return lambda chart: _write_svg(chart, path)
    if path.suffix != ".png":
        raise invalid(f"{path.name!r} does not end in .svg or .png", where="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HostError(
            "--plot: PNG requires matplotlib, which is not installed; write a file that ends in"
            " .svg, or install python3-matplotlib"
        ) from error
    return lambda chart: _write_png(chart, path, Figure(figsize=(9, 1 + len(chart.bars) / 4)))


def _write_svg(chart: BarChart, path: Path) -> None:
    path.write_text(svg(chart), encoding="utf-8")


def _write_png(chart: BarChart, path: Path, figure: Figure) -> None:
    """Draw the same bars with matplotlib."""
    figure.set_layout_engine("tight")
    axes = figure.add_subplot()
    places = range(len(chart.bars))
    drawn = axes.barh(places, [each.value for each in chart.bars], color=BAR_COLOR)
    axes.bar_label(drawn, [each.text for each in chart.bars], padding=4)
    for place, each in zip(places, chart.bars, strict=True):
        if each.mark is not None:
            axes.plot([each.mark, each.mark], [place - 0.4, place + 0.4], color=MARK_COLOR)
    axes.set_yticks(places, [each.label for each in chart.bars])
    axes.set_xlim(0, chart.whole)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.set_title(chart.title)
    figure.savefig(path, metadata={"Software": None})
