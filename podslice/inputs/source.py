"""Bytes from files, directories and standard input: the one place where inputs are read.

What is read is bounded, and nothing blocks for ever: devices and sockets are refused, a named pipe
needs a writer.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from podslice.errors import InputError, Problem, printable
from podslice.inputs.limits import BYTES_MAX, FILES_MAX, PIPE_WAIT_MSEC

STDIN = "-"
MANIFESTS = (".json", ".yaml", ".yml")
"""What a manifest in a directory ends with; as kubectl's `-f DIRECTORY`."""

_CHUNK = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One text to read: how messages call it, and its bytes or why there are none."""

    name: str
    data: bytes = b""
    problem: Problem | None = None
    named: bool = True
    """Stated by the user, not found in a directory."""


def read_sources(sources: tuple[str, ...], stdin: Callable[[], bytes]) -> Iterator[Source]:
    """Read each source: a file, the manifests of a directory in the order of names, or `-`."""
    stdin_used = False
    for source in sources:
        if source == STDIN:
            yield _read_stdin(stdin, used=stdin_used)
            stdin_used = True
        elif "://" in source:
            yield _refuse(source, "podslice reads files only", "save it, or pipe it into '-f -'")
        elif os.path.isdir(source):  # noqa: PTH112 (Path's raises for names that can't be)
            yield from _read_directory(source)
        else:
            yield _read(source, named=True)


def list_manifests(directory: str) -> list[str]:
    """The names of the manifests in a directory, not of those below it, in order.

    Raises:
        OSError: the directory can't be read.
    """
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if _is_manifest(entry))


def read_bytes(path: Path, *, limit_bytes: int) -> bytes:
    """Read a regular file or a pipe.

    Raises:
        InputError: it can't be read, is something else, or is larger than the limit.
        FileNotFoundError: there is none.
    """
    name = printable(str(path))
    try:
        data = _read_path(path, limit_bytes)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        message = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem(where=name, message=_lower(message))) from error
    if len(data) > limit_bytes:
        message = f"is larger than {limit_bytes // 1024:,} KiB, which is the most that is read"
        raise InputError(Problem(where=name, message=message))
    return data


def _read_stdin(stdin: Callable[[], bytes], *, used: bool) -> Source:
    if used:
        return _refuse("stdin", "standard input can be read only once", "state '-' once")
    try:
        data = stdin()
    except OSError as error:
        return _refuse("stdin", f"it cannot be read: {_lower(error.strerror or str(error))}")
    if len(data) > BYTES_MAX:
        return _refuse("stdin", f"is larger than {BYTES_MAX // 2**20} MiB", "use several files")
    return Source(name="stdin", data=data)


def _read_directory(directory: str) -> Iterator[Source]:
    """The manifests of a directory, not those below it. Hidden files are editors' and tools'."""
    try:
        names = list_manifests(directory)
    except OSError as error:
        yield _refuse(directory, _lower(error.strerror or str(error)))
        return
    if not names:
        yield _refuse(directory, "the directory has no *.json, *.yaml or *.yml")
    if len(names) > FILES_MAX:
        yield _refuse(directory, f"the directory has more than {FILES_MAX} manifests")
        return
    for name in names:
        yield _read(os.path.join(directory, name), named=False)  # noqa: PTH118 (text as given)


def _is_manifest(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    if name.startswith(".") or not name.endswith(MANIFESTS):
        return False
    try:
        return not entry.is_dir()
    except OSError:  # a link to itself; reading it will tell
        return True


def _read(path: str, *, named: bool) -> Source:
    try:
        data = read_bytes(Path(path), limit_bytes=BYTES_MAX)
    except FileNotFoundError:
        return _refuse(path, "no such file or directory")
    except InputError as error:
        return Source(name=printable(path), problem=error.problems[0])
    return Source(name=printable(path), data=data, named=named)


def _refuse(source: str, message: str, hint: str = "") -> Source:
    name = printable(source)
    return Source(name=name, problem=Problem(where=name, message=message, hint=hint))


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _read_path(path: Path, limit_bytes: int) -> bytes:
    """Up to one byte more than the limit. Non-blocking, so that opening a pipe returns."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise ValueError(f"is {_kind(mode)}, not a file")
        first = _await_writer(descriptor) if stat.S_ISFIFO(mode) else b""
        return first + _drain(descriptor, limit_bytes + 1 - len(first))
    finally:
        os.close(descriptor)


def _kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "a device or a socket"


def _await_writer(descriptor: int) -> bytes:
    """Wait until somebody has the pipe open for writing; return what was read in finding out."""
    try:
        first = os.read(descriptor, _CHUNK)
    except BlockingIOError:  # it has a writer, who has written nothing so far
        first = b""
    else:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not first and not poll.poll(PIPE_WAIT_MSEC):
            raise ValueError("is a pipe that nobody writes to")
    os.set_blocking(descriptor, True)
    return first


def _drain(descriptor: int, limit_bytes: int) -> bytes:
    chunks = []
    left = limit_bytes
    while left > 0 and (chunk := os.read(descriptor, min(_CHUNK, left))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
