"""What a file of TOML cannot state of the grammars in tests/cases/grammars.toml."""

import pytest

from podslice.model.grammar import ARGUMENT


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_a_text_without_encoding_is_not_an_argument(text):
    assert not ARGUMENT.matches(text)
