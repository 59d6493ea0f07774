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
    ratios,
    spread,
    to_json,
    to_markdown,
    to_text,
)

PLOTS = (Plot(name="lines", title="Lines", x="pods", y="ms", kind="lines", series={}),)
RESULT = Result(
    name="x",
    title="What is measured",
    tables=(Table(title="A table", columns=("what", "ms"), rows=(("a", "1"), ("longer", "22"))),),
    aims=(Aim(text="wall", value=0.9, limit=0.8), Aim(text="cpu", value=1, limit=2, unit="ms")),
    plots=PLOTS,
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


@pytest.mark.parametrize(
    ("sense", "value", "is_met"),
    [("at most", 2, True), ("at most", 2.1, False), ("at least", 2, True), ("at least", 1, False)],
)
def test_an_aim_is_met_or_missed(sense, value, is_met):
    aim = Aim(text="x", value=value, limit=2, sense=sense)
    assert aim.is_met is is_met
    assert aim.show().startswith("met: " if is_met else "MISSED: ")


def test_text_is_aligned_and_shows_disturbed_rounds():
    text = to_text(RESULT)
    assert "what    ms\n------  --\na        1\nlonger  22\n" in text
    assert "MISSED: wall: 0.9, aim at most 0.8" in text
    assert "1 of 2 rounds were disturbed" in text


def test_markdown_shows_tables_and_pictures():
    text = to_markdown(RESULT, "plots")
    assert "| what | ms |\n|---|---:|\n| a | 1 |" in text
    assert "![Lines](plots/lines.png)" in text


def test_the_document_has_everything():
    document = json.loads(json.dumps(to_json({"python": "3"}, [RESULT])))
    assert document["version"] == 1
    (aim, _) = document["results"]["x"]["aims"]
    assert aim["is_met"] is False
    assert document["results"]["x"]["rounds"][1]["disturbed"] is True


def test_tables_take_their_places_in_a_text(tmp_path):
    path = tmp_path / "RESULTS.md"
    path.write_text("a\n<!-- machine -->\nold\n<!-- end -->\nb\n<!-- x -->\n<!-- end -->\nc\n")
    bench.put_tables(path, {"python": "3"}, [RESULT], tmp_path / "plots")
    text = path.read_text()
    assert "old" not in text
    assert "python          3" in text
    assert "| longer | 22 |" in text
    assert text.endswith("<!-- end -->\nc\n")
    with pytest.raises(ValueError, match="the text has no mark y"):
        bench.put_between(text, "y", "")


def test_figures_of_other_benchmarks_stay(tmp_path):
    path = tmp_path / "deep" / "results.json"
    bench.write_figures(path, {"results": {"a": 1, "b": 1}})
    bench.write_figures(path, {"results": {"b": 2}})
    assert json.loads(path.read_text())["results"] == {"a": 1, "b": 2}


def test_a_benchmark_that_is_not_there_is_named(capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["planing"])
    assert ended.value.code == 2
    assert "planing: there is planning" in capsys.readouterr().err
