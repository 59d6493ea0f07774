"""What a file of TOML cannot state of the grammars in tests/cases/grammars.toml."""

import pytest

from podslice.model.grammar import ADDRESS, ARGUMENT, ARGUMENT_BYTES_MAX, LINE, full_image


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_a_text_without_encoding_is_not_an_argument(text):
    assert not ARGUMENT.matches(text)


@pytest.mark.parametrize(
    ("grammar", "longest"),
    [
        (ARGUMENT, "a" * ARGUMENT_BYTES_MAX),
        (LINE, "a" * 4095),
        (LINE, "é" * 2047 + "a"),
        (ADDRESS, "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255"),
    ],
)
def test_the_longest_text(grammar, longest):
    assert grammar.matches(longest)
    assert not grammar.matches(f"{longest}a")


def test_a_text_that_is_not_a_reference_has_no_full_form():
    """The generator refuses it by its grammar, after the service of the container."""
    assert full_image("a b") == "a b"
