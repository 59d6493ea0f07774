"""Answers of Prometheus."""

import json

import pytest

from podslice.errors import InputError
from podslice.features.history import prometheus as prometheus_history
from podslice.features.history.prometheus import parse_error, parse_range
from tests.cases.tables import cases


def answer(*result, status="success", **more):
    return json.dumps({"status": status, "data": {"result": list(result)}, **more}).encode()


def test_series_have_labels_and_finite_values():
    metric = {"pod": "web", "container": "main"}
    left_out = ("NaN", "+Inf", "-Inf", "1e308", "-1e308", "9223372036854775808")
    values = [[60, "1.5"], *([120.7, text] for text in left_out), [240.9, "2"]]
    (series,) = parse_range(answer({"metric": metric, "values": values}))
    assert series.labels == metric
    assert series.points == ((60, 1.5), (240, 2.0))
    assert parse_range(answer()) == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"<html>", "the answer is not JSON, or has more than 350,000 values; is it the address"),
        (b"\xff", "the answer is not JSON"),
        (b"[" * 100_000, "the answer is not JSON"),
        (b"[]", "the server refuses the query: no reason is stated"),
        (answer(status="error", error="bad \x1b query"), r"the query: bad \\x1b query"),
        (b'{"status":"success"}', "the answer has no series of values"),
        (answer(1), "the answer has no series of values"),
        (answer({"metric": {}}), "the answer has no series of values"),
        (answer({"metric": 1, "values": []}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [[1]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [["1", "1"]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [[1e300, "1"]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [[-1, "1"]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [[1, "one"]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [[1, 2]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": [[1, "0" * 41]]}), "the answer has no series of values"),
        (answer({"metric": {}, "values": {}}), "the answer has no series of values"),
        (answer({"metric": {}, "values": "ab"}), "the answer has no series of values"),
        (answer({"metric": [], "values": []}), "the answer has no series of values"),
        (answer({"metric": {"pod": []}, "values": []}), "the answer has no series of values"),
        (answer(b"x".hex()), "the answer has no series of values"),
        (b'{"status":"success","data":[]}', "the answer has no series of values"),
        (b'{"status":"success","data":{"result":{}}}', "the answer has no series of values"),
        (b'{"status":[]}', "the server refuses the query: no reason is stated"),
        (b"1" * 5000, "the answer is not JSON"),
    ],
)
def test_another_answer_is_an_error(text, error):
    with pytest.raises(InputError, match=error):
        parse_range(text)


@cases
def test_an_answer_with_another_status_states_its_reason(status, text, error):
    text = text.encode("latin-1")
    assert str(parse_error(text, status)).startswith(error)


def test_the_number_of_values_is_limited(monkeypatch):
    """Also in an error: an empty object takes 30 times the memory of its text."""
    found = answer(*[{"metric": {}, "values": [[1, "1"], [2, "1"]]}] * 2)
    monkeypatch.setattr(prometheus_history, "VALUES_MAX", 13)
    assert len(parse_range(found)) == 2
    monkeypatch.setattr(prometheus_history, "VALUES_MAX", 12)
    with pytest.raises(InputError, match="has more than 12 values"):
        parse_range(found)
    text = answer(status="error", error="x", more=[{}] * 12)
    assert str(parse_error(text, 503)).startswith("the server answers 503 Service Unavailable")
