"""Decode and split the text that the kernel shows in /proc and /sys.

Other users choose part of this text: the names of processes, control groups, mount points and file
systems. Lines end with a line feed and nothing else, fields are separated by spaces and tabs, and
names need not be UTF-8. `str.splitlines`, `str.split` and `str.strip` without an argument also act
on form feeds, U+0085, U+2028 and others, so that a name could forge a line or a field.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_READ_BYTES = 2**16

_ESCAPED = re.compile(r"\\([01][0-7]{2})")
"""Only ASCII characters are escaped. Source: Linux, fs/proc_namespace.c, mangle."""


def read_text(path: str | Path) -> str:
    """Return the text of a file; bytes that are not UTF-8 are kept as surrogates.

    It is several times as fast as `Path.read_text`; observing all pods reads thousands of files.

    Raises:
        OSError: the file cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(handle, _READ_BYTES):
            parts.append(part)
        return os.fsdecode(b"".join(parts))
    finally:
        os.close(handle)


def read_value(path: str | Path) -> str:
    """Return the text of a file that holds a single line, without the line's end.

    Raises:
        OSError: the file cannot be read.
    """
    return read_text(path).removesuffix("\n")


def read_value_or_empty(path: str | Path) -> str:
    """Return the text of a file that holds a single line; empty if it cannot be read."""
    try:
        return read_value(path)
    except OSError:
        return ""


def split_lines(text: str) -> list[str]:
    """Split text into lines, at line feeds only.

    Source: Linux, kernel/cgroup/cgroup.c, cgroup_mkdir: no other byte is refused in a name.
    """
    return text.removesuffix("\n").split("\n") if text else []


def split_words(line: str) -> list[str]:
    """Split a line into its fields, at spaces and tabs only."""
    return [word for word in line.replace("\t", " ").split(" ") if word]


def unescape(field: str) -> str:
    r"""Decode the octal escapes of a field in /proc/<pid>/mounts and mountinfo: `\040` is a space.

    Source: Linux, fs/proc_namespace.c, mangle.
    """
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


class Mount(NamedTuple):
    """A mounted file system."""

    source: str
    place: str
    """The mount point."""
    kind: str
    """The type of the file system: `cgroup2`."""
    options: frozenset[str]


def parse_mounts(text: str) -> Iterator[Mount]:
    """Parse /proc/<pid>/mounts, in the order of mounting. Source: fstab(5), proc_pid_mounts(5)."""
    for line in split_lines(text):
        source, place, kind, options, *_ = map(unescape, line.split(" "))
        yield Mount(source=source, place=place, kind=kind, options=frozenset(options.split(",")))
