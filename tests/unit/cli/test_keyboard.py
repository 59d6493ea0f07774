"""Keys from the bytes of a terminal."""

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given
from hypothesis import strategies as st

from podslice.cli.terminal import Key, KeyDecoder


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"qc/", ["q", "c", "/"]),
        (b"\x1b[A\x1b[B\x1bOA\x1bOB", [Key.UP, Key.DOWN, Key.UP, Key.DOWN]),
        (b"\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN]),
        (b"\x1b[H\x1bOH\x1b[1~\x1b[7~", [Key.HOME] * 4),
        (b"\x1b[F\x1bOF\x1b[4~\x1b[8~", [Key.END] * 4),
        (b"\r\n\x7f\b", [Key.ENTER, Key.ENTER, Key.BACKSPACE, Key.BACKSPACE]),
        ("ü日".encode(), ["ü", "日"]),
        # unknown keys: F5, Ctrl-Right, a mouse report, Ctrl-A, a broken character
        (b"\x1b[15~\x1b[1;5C\x1b[<0;1;1Mq\x01\xff", ["q", "\ufffd"]),
        (b"\x1b\x1b[A", [Key.ESCAPE, Key.UP]),
        (b"\x1bx", [Key.ESCAPE, "x"]),
    ],
)
def test_bytes_are_keys(data, keys):
    decoder = KeyDecoder()
    assert decoder.feed(data) == keys
    assert not decoder.is_pending
    one_by_one = KeyDecoder()
    assert [key for byte in data for key in one_by_one.feed(bytes([byte]))] == keys


def test_escape_is_a_key_if_nothing_follows():
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b") == []
    assert decoder.is_pending
    assert decoder.flush() == [Key.ESCAPE]
    assert decoder.feed(b"\x1b[") == []
    assert decoder.flush() == [Key.ESCAPE, "["]
    assert decoder.flush() == []


@given(st.lists(st.binary(max_size=8), max_size=8))
def test_any_bytes_are_accepted(parts):
    decoder = KeyDecoder()
    keys = [key for part in parts for key in decoder.feed(part)] + decoder.flush()
    assert all(key.isprintable() for key in keys)
