"""Keys from the bytes that a terminal sends."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from enum import StrEnum


class Key(StrEnum):
    """A key that is not a character; others are the character that they produce."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page-up"
    PAGE_DOWN = "page-down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"


_ESCAPE = "\x1b"
# Source: xterm, "XTerm Control Sequences": PC-style function keys; the Linux console and tmux
# send 1~ and 4~ for Home and End, rxvt 7~ and 8~
_SEQUENCES: Mapping[str, Key] = {
    "A": Key.UP,
    "B": Key.DOWN,
    "H": Key.HOME,
    "F": Key.END,
    "1~": Key.HOME,
    "7~": Key.HOME,
    "4~": Key.END,
    "8~": Key.END,
    "5~": Key.PAGE_UP,
    "6~": Key.PAGE_DOWN,
}
_CONTROLS: Mapping[str, Key] = {
    "\r": Key.ENTER,
    "\n": Key.ENTER,
    "\x7f": Key.BACKSPACE,
    "\b": Key.BACKSPACE,
}
# Source: ECMA-48, 5.4: parameters, intermediate bytes and the final byte; xterm sends O and one
# character in the mode of application keys
_SEQUENCE = re.compile(r"\x1b(?:\[([0-9:;<=>?]*[ -/]*[@-~])|O(.))", re.DOTALL)
_BEGINNING = re.compile(r"\x1b(?:\[[0-9:;<=>?]*[ -/]*|O)?")


class KeyDecoder:
    """Turns bytes into keys; a sequence may arrive in several parts."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def is_pending(self) -> bool:
        """Whether the last bytes are the Escape key or the beginning of a sequence."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the keys of these bytes, and keep the beginning of a sequence."""
        text, self._rest = self._rest + self._text.decode(data), ""
        keys: list[str] = []
        while text:
            if found := _SEQUENCE.match(text):
                keys += filter(None, [_SEQUENCES.get(found[1] or found[2])])
                text = text[found.end() :]
            elif _BEGINNING.fullmatch(text):
                self._rest, text = text, ""
            else:
                keys += _key(text[0])
                text = text[1:]
        return keys

    def flush(self) -> list[str]:
        """Return what is pending as keys, when nothing has followed."""
        rest, self._rest = self._rest, ""
        return [Key.ESCAPE, *rest[1:]] if rest else []


def _key(char: str) -> list[str]:
    if char == _ESCAPE:
        return [Key.ESCAPE]
    if char in _CONTROLS:
        return [_CONTROLS[char]]
    return [char] if char.isprintable() else []
