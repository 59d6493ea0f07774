"""Lines of YAML: every reader takes them for the same values."""

import pytest
import yaml

from podslice.features.compose.manifest import format_yaml

WORDS = (
    """web a.b/c-d on y No ~ null 1 0x1F 1_000 1e3 é #x ' " - 500m 4Gi 2026-11-23 12:30:00 = <<"""
)


@pytest.mark.parametrize("word", [*WORDS.split(), "", " ", "a: b", "\n", "\x85"])
def test_strings_stay_strings(word):
    text = "\n".join(format_yaml({word: word, "list": [{"name": word}, word]}))
    assert yaml.safe_load(text) == {word: word, "list": [{"name": word}, word]}


def test_numbers_and_empty_values():
    value = {"a": 1, "b": -1, "c": {}, "d": {"e": {"f": "g"}}, "h": [{"i": {"j": "k"}, "l": 2}]}
    assert yaml.safe_load("\n".join(format_yaml(value))) == value


def test_comments_are_at_their_values():
    comments = {("a",): "one", ("a", "b"): "two", ("c", 0, "d"): "three"}
    assert list(format_yaml({"a": {"b": 1}, "c": [{"d": 2}]}, comments)) == [
        "a:  # one",
        "  b: 1  # two",
        "c:",
        "- d: 2  # three",
    ]
