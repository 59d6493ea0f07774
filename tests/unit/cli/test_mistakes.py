"""Command lines that podslice does not have, and the way out that it names."""

import shlex
import tomllib
from pathlib import Path

import pytest

MISTAKES = tomllib.loads((Path(__file__).with_name("mistakes.toml")).read_text())


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_answered_with_the_way_out(podslice, memory, line):
    ended = podslice(*shlex.split(line))
    assert (ended.code, ended.out) == (2, "")
    assert MISTAKES[line] in ended.err
    if MISTAKES[line].startswith("error: "):  # nothing else is printed
        assert (ended.err.find(MISTAKES[line]), ended.err.count("\n")) == (0, 1)
    assert not memory.calls
