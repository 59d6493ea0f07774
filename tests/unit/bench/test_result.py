"""Tables, aims and documents of a benchmark."""

import json

import pytest

from tests.bench import __main__ as bench
from tests.bench.result import (
    Aim,
    Plot,
    Result,
    Spread,
    Table,
    ratio,
    ratios,
    spread,
)

RESULT = Result(
    name="x",
    title="What is measured",
    tables=(Table(title="A table", columns=("what", "ms"), rows=(("a", "1"), ("longer", "22"))),),
    aims=(Aim(text="wall", value=0.9, limit=0.8), Aim(text="cpu", value=1, limit=2, unit="ms")),
    plots=(Plot(name="bars", title="Bars", x="pods", y="ms", series={}, guide=1.0),),
    rounds=[{"round": 1, "disturbed": False}, {"round": 2, "disturbed": True}],
)


def test_spread_is_least_median_and_most():
    assert spread([5, 1, 9, 3]) == Spread(1, 4, 9)
    assert spread([5, 1, 9, 3]).show(1) == "4.0 (1.0 to 9.0)"
    with pytest.raises(ValueError, match="no round"):
        spread([])


def test_ratios_are_formed_round_by_round():
    assert ratios([1, 4, 9], [1, 2, 3]) == Spread(1, 2, 3)
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])
    rounds = [
        {"what": what, "pods": pods, "ms": ms}
        for what, pods, ms in (("b", 1, 10), ("a", 1, 5), ("b", 1, 40), ("a", 1, 10), ("a", 2, 9))
    ]
    assert ratio(rounds, "ms", "b", "a", pods=1) == Spread(2, 3, 4)


@pytest.mark.parametrize(("value", "is_met"), [(2, True), (2.1, False)])
def test_an_aim_is_met_or_missed(value, is_met):
    aim = Aim(text="x", value=value, limit=2)
    assert aim.is_met is is_met
    assert aim.show().startswith("met: " if is_met else "MISSED: ")


def test_tables_take_their_places_in_a_text(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text("a\n<!-- machine -->\nold\n<!-- end -->\nb\n<!-- x -->\n<!-- end -->\nc\n")
    bench.put_tables(path, {"python": "3"}, [RESULT], tmp_path / "plots")
    text = path.read_text()
    assert "old" not in text
    assert "python          3" in text
    assert "| what | ms |\n|---|---:|\n| a | 1 |\n| longer | 22 |\n" in text
    assert "- MISSED: wall: 0.9, aim at most 0.8\n" in text
    assert "1 of 2 rounds were disturbed" in text
    assert "![Bars](plots/bars.png)" in text
    assert text.endswith("<!-- end -->\nc\n")
    with pytest.raises(ValueError, match="the text has no mark y"):
        bench.put_between(text, "y", "")


def test_figures_of_other_benchmarks_stay(tmp_path):
    path = tmp_path / "deep" / "results.json"
    bench.write_figures(path, {"results": {"a": 1, "b": 1}})
    bench.write_figures(path, {"results": {"b": 2}})
    assert json.loads(path.read_text())["results"] == {"a": 1, "b": 2}
