import pytest

from podslice.errors import printable, quote
from podslice.inputs.scalars import Boolean, Number, Odd, describe, extend_path, read_plain
from tests.cases.tables import cases


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (Number, "0 -1 +2 12 0.1 .5 1. 1e3 1E+3 1.5e-3"),
        (Odd, "010 08 0o17 0x1F 0b11 1_000 1_0.5 .inf -.Inf .nan .NaN"),
        (Boolean, "true True TRUE false yes No on OFF"),
        (str, "1:30 1Gi 500m web 2024-01-01 1.2.3 - . .. -a 1e 0x tRue y n nil +"),
    ],
)
def test_plain_scalar_keeps_its_text_and_has_a_type(kind, texts):
    for text in texts.split():
        value = read_plain(text)
        assert (type(value), value) == (kind, text)


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_is_none(text):
    assert read_plain(text) is None


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("web", "web"),
        ("wéb ✓", "wéb ✓"),
        ("a\nb\x1b[2J\x00", r"a\nb\x1b[2J\x00"),
        ("a\u202eb\u200b", r"a\u202eb\u200b"),
        ("\ud800", r"\ud800"),
        ("\x85\x9b", r"\x85\x9b"),
    ],
)
def test_printable_escapes_characters_that_terminals_interpret(text, expect):
    assert printable(text) == expect


def test_quote_truncates_long_text():
    assert quote("a" * 64) == f"'{'a' * 64}'"
    assert quote("a" * 65) == f"'{'a' * 64}…'"


@pytest.mark.parametrize(
    ("value", "expect"),
    [
        (None, "null"),
        ({}, "a mapping"),
        ([], "a list"),
        ("x", "the string 'x'"),
        (Number("1.5"), "the number 1.5"),
        (Odd("0x1"), "the number 0x1"),
        (Boolean("yes"), "the boolean yes"),
        (True, "the boolean true"),
        (5, "the number 5"),
        (10**400, "a very large number"),
        (float("nan"), "a very large number"),
    ],
)
def test_describe(value, expect):
    assert describe(value) == expect


@cases
def test_path(parts, expect):
    assert extend_path("", *parts) == expect
