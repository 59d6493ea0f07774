"""Plots become pictures."""

import pytest

pytest.importorskip("matplotlib")  # not in the packages that a distribution builds with

from tests.bench import pictures
from tests.bench.result import Plot, Point, Spread

PLOTS = (
    Plot(
        name="lines",
        title="Lines",
        x="pods",
        y="ms",
        kind="lines",
        series={"one": (Point(x=1, y=Spread(1, 2, 3)), Point(x=2, y=Spread(2, 3, 4)))},
    ),
    Plot(
        name="bars",
        title="Bars",
        x="pods",
        y="ratio",
        kind="bars",
        series={
            "one": (Point(x="a", y=Spread(1, 2, 3)),),
            "two": (Point(x="a", y=Spread(1, 2, 3)), Point(x="b", y=Spread(1, 2, 3))),
        },
        guide=1.0,
    ),
)


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.kind)
def test_plots_are_drawn(plot, tmp_path):
    path = pictures.draw(plot, tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size > 5000
