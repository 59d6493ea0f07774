"""Texts in units: podman's generator reads them first, and systemd what it has written.

The generator splits words and resolves quotes and C escapes in some keys, and takes others as they
are. It copies `%` and `$`, which systemd then interprets; so both are doubled in every key. It drops
empty words with all that follow, and writes a `;` of its own without quotes, which systemd takes for
the end of a command: these words get a reference to a variable that is empty.

Source: podman 5.4, pkg/systemd/parser/split.go, extractFirstWord, charNeedEscape; unitfile.go,
Lookup, LookupAllArgs, LookupAllKeyVal; systemd.service(5), "Command lines"; systemd.unit(5),
"Specifiers".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from podslice.dataclass import dataclass

EMPTY_VARIABLE = "PODSLICE_EMPTY"
"""A variable of the service, not of the container, that is set to nothing."""
_EMPTY = f"${{{EMPTY_VARIABLE}}}"

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./%$-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f"\\]')
_NOT_AS_IT_IS = re.compile(r"[\x00-\x1f\x7f]|^[\s\"']|[\s\"'\\]$")


def double(text: str) -> str:
    """Return a text whose `%` and `$` systemd leaves as they are."""
    return text.replace("%", "%%").replace("$", "$$")


def word(text: str) -> str:
    """Return one word of a command line or assignment."""
    doubled = double(text)
    if _PLAIN.fullmatch(doubled):
        return doubled
    return f'"{_TO_ESCAPE.sub(_escape, doubled)}"'


def words(texts: Iterable[str]) -> str:
    """Return a command line that systemd reads itself."""
    return " ".join(map(word, texts))


def argument(text: str) -> str:
    """Return one argument that podman's generator reads before systemd."""
    return f"{text}{_EMPTY}" if text in ("", ";") else word(text)


def arguments(texts: Iterable[str]) -> str:
    """Return arguments that podman's generator reads before systemd."""
    return " ".join(map(argument, texts))


def needs_empty_variable(texts: Iterable[str]) -> bool:
    """Return whether arguments refer to the empty variable."""
    return any(each in ("", ";") for each in texts)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _ESCAPES.get(character, f"\\x{ord(character):02x}")


@dataclass(slots=True)
class Section:
    """One section of a unit, as it is filled."""

    name: str
    lines: list[str]

    def add(self, key: str, *values: str) -> None:
        """Add a line for each value, as systemd and the generator read it.

        Raises:
            ValueError: a value would begin another line.
        """
        if any(each in value for value in values for each in "\n\r"):
            raise ValueError(f"a value of {key} has several lines")
        self.lines += [f"{key}={value}" for value in values]

    def add_text(self, key: str, option: str, text: str) -> None:
        """Add a text that the generator takes as it is; with the option of podman if it cannot."""
        if not text:
            return
        if _NOT_AS_IT_IS.search(text):
            self.add("PodmanArgs", argument(f"{option}={text}"))
        else:
            self.add(key, double(text))

    def add_flag(self, key: str, *, value: bool) -> None:
        """Add a boolean that is true."""
        if value:
            self.add(key, "true")

    def comment(self, text: str) -> None:
        """Add a comment, if there is one."""
        if text:
            self.lines.append(f"# {text}")


def section(name: str) -> Section:
    """Return an empty section."""
    return Section(name, [])


def unit(head: str, sections: Iterable[Section]) -> str:
    """Return a unit file of the sections that have lines."""
    filled = ["\n".join((f"[{each.name}]", *each.lines)) for each in sections if each.lines]
    return "\n\n".join((head, *filled)) + "\n"
