"""Text of /proc and /sys with names that other users have chosen."""

import os

import pytest

from podslice.kernel.text import (
    Mount,
    parse_mounts,
    read_text,
    read_value,
    split_lines,
    split_words,
    unescape,
)
from tests.cases.tables import cases

# Python splits lines or words at each of these, the kernel at none
NO_SEPARATORS = "\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000"


@pytest.mark.parametrize("character", NO_SEPARATORS)
def test_lines_and_words_end_where_the_kernel_ends_them(character):
    line = f"a{character}b"
    assert split_lines(f"{line}\n{line}\n") == [line, line]
    assert split_words(f"{line} \t{line}") == [line, line]


@pytest.mark.parametrize(
    ("text", "lines"),
    [("", []), ("a", ["a"]), ("a\n", ["a"]), ("a\n\nb\n", ["a", "", "b"]), ("\n", [""])],
)
def test_the_last_line_need_not_end(text, lines):
    assert split_lines(text) == lines


@cases
def test_words_may_be_aligned(line, words):
    assert split_words(line) == words


def test_a_file_may_hold_any_bytes(tmp_path):
    path = tmp_path / "comm"
    path.write_bytes(b"\xff \n")
    assert os.fsencode(read_text(path)) == b"\xff \n"
    assert os.fsencode(read_value(str(path))) == b"\xff "


@cases
def test_octal_escapes_are_decoded_once(field, path):
    r"""Source: Linux, fs/proc_namespace.c, mangle: `seq_escape(m, s, " \t\n\\#")`."""
    assert unescape(field) == path


def test_mounts_are_parsed_with_whatever_names_they_have():
    text = (
        "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
        "x\f/sys/fs/cgroup\fcgroup2\frw /home/eve/a\\040b fuse.x rw,user_id=1000 0 0\n"
    )
    assert list(parse_mounts(text)) == [
        Mount(
            source="cgroup2",
            place="/sys/fs/cgroup",
            kind="cgroup2",
            options=frozenset({"rw", "nsdelegate"}),
        ),
        Mount(
            source="x\f/sys/fs/cgroup\fcgroup2\frw",
            place="/home/eve/a b",
            kind="fuse.x",
            options=frozenset({"rw", "user_id=1000"}),
        ),
    ]
