"""Texts in units: podman's generator reads them first, and systemd what it has written.

A text of a manifest is either in quotes, with `word`, `argument` and `json_words`, or matches the
grammar of its field in `inputs.manifest.fields`, with `plain`.

The generator splits words and resolves quotes and C escapes in some keys, and takes others as they
are. It copies `%` and `$`, which systemd then interprets; so both are doubled in every key. It drops
empty words with all that follow, and writes a `;` of its own without quotes, which systemd takes for
the end of a command: these words get a reference to a variable that is empty.

Source: podman 5.4, pkg/systemd/parser/split.go, extractFirstWord, charNeedEscape; unitfile.go,
Lookup, LookupAllArgs, LookupAllKeyVal; systemd.service(5), "Command lines"; systemd.unit(5),
"Specifiers".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from podslice.errors import invalid
from podslice.features.quadlet.result import UNIT_MODE, File
from podslice.inputs.manifest.fields import checked
from podslice.model.grammar import ARGUMENT
from podslice.model.unit import GENERATED

EMPTY_VARIABLE = "PODSLICE_EMPTY"
"""A variable of the service, not of the container, that is set to nothing."""
_EMPTY = f"${{{EMPTY_VARIABLE}}}"
_LATER = re.compile(r"\x00(PODSLICE_(?:NODE_NAME|HOST_IP|POD_IP))\x00")
"""A variable of the service whose value is known once the pod runs.

A manifest cannot state it: readers refuse U+0000.
"""

_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./%$-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f"\\]')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_LINE_BYTES_MAX = 2**20 - 1
"""Source: systemd, src/basic/constants.h, LONG_LINE_MAX."""


def double(text: str) -> str:
    """Return a text whose `%` and `$` systemd leaves as they are."""
    return text.replace("%", "%%").replace("$", "$$")


def plain(field: str, text: str) -> str:
    """Return a text of a manifest that the generator takes without quotes.

    Raises:
        InputError: it does not match the grammar of its field.
    """
    return double(checked(field, text))


def json_words(texts: Iterable[str]) -> str:
    """Return words as a list in JSON, which podman reads.

    Raises:
        InputError: a program cannot have one of them as an argument.
    """
    texts = list(texts)
    _check(json.dumps(texts))
    listed = (_doubled(each, lambda part: json.dumps(part)[1:-1]) for each in texts)
    return "[" + ", ".join(f'"{each}"' for each in listed) + "]"


def _check(text: str) -> None:
    if not ARGUMENT.matches(text):
        raise invalid(f"a text is not {ARGUMENT.name}", ARGUMENT.form)


def later(variable: str) -> str:
    """Return what stands for a variable of the service in a text."""
    return f"\0{variable}\0"


def later_in(texts: Iterable[str]) -> set[str]:
    """Return the variables of the service that are in texts."""
    return {name for each in texts for name in _LATER.findall(each)}


def _doubled(text: str, write: Callable[[str], str] = str) -> str:
    """Return a text of a manifest, with references to what is known later."""
    parts = _LATER.split(text)
    for each in parts[::2]:
        _check(each)
    return "".join(f"${{{p}}}" if at % 2 else double(write(p)) for at, p in enumerate(parts))


def word(text: str) -> str:
    """Return one word of a command line or assignment.

    Raises:
        InputError: a program cannot have it as an argument.
    """
    doubled = _doubled(text)
    if _PLAIN.fullmatch(doubled):
        return doubled
    return f'"{_TO_ESCAPE.sub(_escape, doubled)}"'


def words(texts: Iterable[str]) -> str:
    """Return a command line that systemd reads itself."""
    return " ".join(map(word, texts))


def shell(script: str, *arguments: str) -> str:
    """Return a command line that runs a script, which has the arguments from `$1` on."""
    return words(("/usr/bin/sh", "-c", script, "sh", *arguments))


def argument(text: str) -> str:
    """Return one argument that podman's generator reads before systemd."""
    return f"{text}{_EMPTY}" if text in ("", ";") else word(text)


def arguments(texts: Iterable[str]) -> str:
    """Return arguments that podman's generator reads before systemd."""
    return " ".join(map(argument, texts))


def csv_field(text: str) -> str:
    """Return one field of a line of CSV. Source: RFC 4180."""
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text


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
            InputError: a value would begin another line, or is too long for one.
        """
        for value in values:
            line = f"{key}={value}"
            if _CONTROL.search(line) or line != line.strip() or value.endswith("\\"):
                raise invalid("the value would not remain the same", where=key)
            if len(line.encode()) > _LINE_BYTES_MAX:
                message = f"the line has more than {_LINE_BYTES_MAX:,} bytes"
                raise invalid(message, "use fewer or shorter texts", where=key)
            self.lines.append(line)

    def add_text(self, key: str, field: str, *texts: str) -> None:
        """Add a line for each text of a field of manifests.

        Raises:
            InputError: a text does not match the grammar of the field.
        """
        self.add(key, *(plain(field, each) for each in texts))

    def comment(self, text: str) -> None:
        """Add a comment, if there is one."""
        if text:
            self.lines.append(f"# {text}")


def section(name: str) -> Section:
    """Return an empty section."""
    return Section(name, [])


def unit_file(
    path: str, *sections: Section, mode: int = UNIT_MODE, is_secret: bool = False
) -> File:
    """Return the file of a unit, with the sections that have lines."""
    filled = ["\n".join((f"[{each.name}]", *each.lines)) for each in sections if each.lines]
    text = "\n\n".join((GENERATED, *filled)) + "\n"
    return File(path=path, content=text.encode(), mode=mode, is_secret=is_secret)
