"""Texts in units: podman's generator, then systemd, and what arrives is what was meant."""

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.features.quadlet.unit_text import (
    EMPTY_VARIABLE,
    arguments,
    needs_empty_variable,
    words,
)
from tests.cases.unit_words import generate, resolved, split, start

TEXTS = st.lists(
    st.one_of(
        st.text(
            st.characters(blacklist_categories=("Cs",), blacklist_characters="\0").filter(
                lambda c: not 0x80 <= ord(c) < 0xA0
            ),
            max_size=12,
        ),
        st.sampled_from(
            ["", ";", "%n", "$HOME", "${HOME}", "a b", "\\", '"', "'", "\n", "-x", "$$"]
        ),
    ),
    max_size=6,
)


@given(TEXTS)
def test_arguments_arrive_through_generator_and_systemd(texts):
    environment = {EMPTY_VARIABLE: ""} if needs_empty_variable(texts) else {}
    line = arguments(texts)
    assert "\n" not in line
    assert start(generate(line), environment) == texts


@given(TEXTS)
def test_words_arrive_through_systemd(texts):
    line = words(texts)
    assert "\n" not in line
    lone = [";" if text == '";"' else text for text in line.split()]
    assert lone.count(";") == texts.count(";")
    assert [resolved(text, {}) for text in split(line)] == texts
