"""Reads of files, directories and standard input: the only place where inputs are read.

Reads are limited in size and never block for ever: devices and sockets are rejected, in directories
also pipes; a named pipe and standard input have a deadline.
"""

from __future__ import annotations

import math
import os
import select
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from podslice.errors import InputError, Problem, invalid, printable
from podslice.inputs.budget import (
    FILES_MAX,
    PIPE_WAIT_SEC,
    READ_WAIT_SEC,
    TEXT_BYTES_MAX,
    Budget,
    BudgetItem,
    Exhausted,
)
from podslice.kernel.files import Path as AnyPath
from podslice.kernel.files import (
    TooLargeError,
    follow_links,
    keep_links,
    open_regular,
    read_opened,
    read_with_status,
)

STDIN, STDIN_NAME = "-", "stdin"
MANIFESTS = (".json", ".yaml", ".yml")
"""Suffixes of manifests in a directory, as for kubectl's `-f DIRECTORY`."""

_CHUNK = 2**18


class InputText(NamedTuple):
    """One text: its name in messages, and its bytes or the reason why they were not read."""

    name: str
    data: bytes = b""
    problem: Problem | None = None
    exhausted: Exhausted | None = None
    """It is larger than the rest of the budget."""
    named: bool = True
    """Named by the user, not found in a directory."""


class Timeouts(NamedTuple):
    """Timeouts of pipes and standard input; `now` is a monotonic clock."""

    writer_sec: float = PIPE_WAIT_SEC
    """Until the first writer of a named pipe."""
    whole_sec: float = READ_WAIT_SEC
    """Until the end of the text."""
    now: Callable[[], float] = time.monotonic


TIMEOUTS = Timeouts()


def read_sources(
    sources: tuple[str, ...],
    stdin: Callable[[], bytes],
    budget: Budget,
    timeouts: Timeouts = TIMEOUTS,
) -> Iterator[InputText]:
    """Read each source: a file, the manifests of a directory in the order of names, or `-`."""
    stdin_used = False
    for source in sources:
        if source == STDIN:
            yield _read_stdin(stdin, budget, used=stdin_used)
            stdin_used = True
        elif "://" in source:
            yield _rejected(source, "podslice reads files only", "save it, or pipe it into '-f -'")
        elif os.path.isdir(source):  # noqa: PTH112 (Path raises for invalid names)
            yield from _read_directory(source, budget)
        else:
            read = partial(_read_any, timeouts=timeouts)
            yield _read(source, budget, read, named=True)


def list_manifests(directory: str) -> list[str]:
    """Return the sorted names of the manifests in a directory, not of those below it.

    If there are more than `FILES_MAX`, it returns one more than these.

    Raises:
        OSError: the directory can't be read.
    """
    with os.scandir(directory) as entries:
        names = (entry.name for entry in entries if _is_manifest(entry))
        return sorted(islice(names, FILES_MAX + 1))


def read_bytes(path: Path, *, limit_bytes: int, timeouts: Timeouts = TIMEOUTS) -> bytes:
    """Read a regular file or a pipe.

    Raises:
        InputError: it can't be read, is of another type, or is larger than the limit.
        FileNotFoundError: it does not exist.
    """
    name = printable(str(path))
    try:
        return _read_any(path, limit_bytes, timeouts)
    except FileNotFoundError:
        raise
    except TooLargeError as error:
        message = f"is larger than the limit of {limit_bytes // 1024:,} KiB"
        raise InputError(Problem(where=name, message=message)) from error
    except (OSError, ValueError) as error:
        raise InputError(Problem(where=name, message=describe_error(error))) from error


def read_file(path: Path, *, limit_bytes: int, hint: str = "") -> bytes:
    """Return the content of a file.

    Raises:
        InputError: it cannot be read, or is too large; `hint` is the way out.
    """
    try:
        return read_bytes(path, limit_bytes=limit_bytes)
    except OSError as error:
        message = (error.strerror or str(error)).lower()
        found = Problem(where=printable(str(path)), message=message, hint=hint)
        raise InputError(found) from error


def is_pem(text: str) -> bool:
    """Return whether a text has certificates or keys in PEM."""
    return "-----BEGIN " in text


def read_authority(path: Path, option: str) -> str:
    """Return the certificates of a file that an option states.

    Raises:
        InputError: the file cannot be read, or has no certificate: without any, those of the host
            would be trusted.
    """
    text = read_file(path, limit_bytes=TEXT_BYTES_MAX).decode("ascii", errors="replace")
    if not is_pem(text):
        hint = f"state a file of certificates in PEM with {option}"
        raise invalid("there is no certificate in it", hint, where=printable(str(path)))
    return text


def read_manifest(path: str, limit_bytes: int) -> tuple[bytes, os.stat_result]:
    """Read a regular file of a directory; return its content and its status.

    Raises:
        OSError, ValueError: it cannot be read, is of another type, or a link that is not followed.
        TooLargeError: it is larger than the limit.
    """
    return read_with_status(path, limit_bytes=limit_bytes, locate=locate_entitled)


def read_stream(descriptor: int, *, limit_bytes: int, timeouts: Timeouts = TIMEOUTS) -> bytes:
    """Read an open file, such as standard input, to its end; a terminal has no deadline.

    Raises:
        OSError, ValueError: it can't be read, or does not end before the deadline.
        TooLargeError: there is more than the limit.
    """
    if os.isatty(descriptor):
        timeouts = timeouts._replace(whole_sec=math.inf)
    return _drain(descriptor, limit_bytes, timeouts, began=timeouts.now())


def describe_error(error: OSError | ValueError) -> str:
    """Return the message of an error, for use after the name of a file."""
    message = getattr(error, "strerror", None) or str(error)
    return message[:1].lower() + message[1:]


def _read_stdin(stdin: Callable[[], bytes], budget: Budget, *, used: bool) -> InputText:
    if used:
        return _rejected(STDIN_NAME, "standard input can be read only once", "write '-' once")
    try:
        data = stdin()
    except TooLargeError:
        return InputText(name=STDIN_NAME, exhausted=budget.exhausted(BudgetItem.BYTES))
    except (OSError, ValueError) as error:
        return _rejected(STDIN_NAME, f"cannot be read: {describe_error(error)}")
    return _charged(STDIN_NAME, data, budget, named=True)


def _read_directory(directory: str, budget: Budget) -> Iterator[InputText]:
    """Read the manifests of a directory, not those below it, without hidden files."""
    try:
        names = list_manifests(directory)
    except OSError as error:
        yield _rejected(directory, describe_error(error))
        return
    if not names:
        yield _rejected(directory, "the directory has no *.json, *.yaml or *.yml")
    if len(names) > FILES_MAX:
        yield _rejected(directory, f"the directory has more than {FILES_MAX} manifests")
        return
    for name in names:
        path = os.path.join(directory, name)  # noqa: PTH118 (text as given)
        yield _read(path, budget, lambda path, limit: read_manifest(path, limit)[0], named=False)


def is_manifest_name(name: str) -> bool:
    """Return whether a file of this name in a directory is a manifest."""
    return name.endswith(MANIFESTS) and not name.startswith(".")


def _is_manifest(entry: os.DirEntry[str]) -> bool:
    if not is_manifest_name(entry.name):
        return False
    try:
        return not entry.is_dir()
    except OSError:  # a link to itself; reading it fails with this error
        return True


def _read(
    path: str, budget: Budget, read: Callable[[str, int], bytes], *, named: bool
) -> InputText:
    """Read a file with a function that takes a path and a limit in bytes."""
    try:
        data = read(path, budget.left(BudgetItem.BYTES))
    except FileNotFoundError:
        return _rejected(path, "no such file or directory")
    except TooLargeError:
        return InputText(name=printable(path), exhausted=budget.exhausted(BudgetItem.BYTES))
    except (OSError, ValueError) as error:
        return _rejected(path, describe_error(error))
    return _charged(printable(path), data, budget, named=named)


def _charged(name: str, data: bytes, budget: Budget, *, named: bool) -> InputText:
    try:
        budget.charge(BudgetItem.BYTES, len(data))
    except Exhausted as error:
        return InputText(name=name, exhausted=error)
    return InputText(name=name, data=data, named=named)


def _rejected(source: str, message: str, hint: str = "") -> InputText:
    name = printable(source)
    return InputText(name=name, problem=Problem(where=name, message=message, hint=hint))


def _read_any(path: str | Path, limit_bytes: int, timeouts: Timeouts) -> bytes:
    """Read a regular file, or a pipe to its end."""
    descriptor = open_regular(path, os.O_RDONLY, locate=follow_links, allow_pipe=True)
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return read_opened(descriptor, limit_bytes=limit_bytes)
        began = timeouts.now()
        first = _await_writer(descriptor, timeouts)
        return first + _drain(descriptor, limit_bytes - len(first), timeouts, began=began)
    finally:
        os.close(descriptor)


def _await_writer(descriptor: int, timeouts: Timeouts) -> bytes:
    """Wait until a process opens the pipe for writing; return the bytes read meanwhile."""
    try:
        first = os.read(descriptor, _CHUNK)
    except BlockingIOError:  # there is a writer, which has not written yet
        return b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not first and not poll.poll(timeouts.writer_sec * 1000):
        raise ValueError("is a pipe that no process writes to")
    return first


def _drain(descriptor: int, limit_bytes: int, timeouts: Timeouts, *, began: float) -> bytes:
    """Read to the end of the text, before the deadline."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    chunks: list[bytes] = []
    left = limit_bytes
    while True:
        rest_sec = began + timeouts.whole_sec - timeouts.now()
        wait_msec = None if math.isinf(rest_sec) else max(rest_sec, 0) * 1000
        if rest_sec < 0 or not poll.poll(wait_msec):
            raise ValueError(f"did not end within {timeouts.whole_sec:g} s")
        chunk = os.read(descriptor, _CHUNK)
        left -= len(chunk)
        if not chunk:
            return b"".join(chunks)
        if left < 0:
            raise TooLargeError(limit_bytes)
        chunks.append(chunk)


_NAMES_MAX = 400
"""Path components that are resolved. The kernel follows 40 links, but they may be long.

Source: Linux, include/linux/namei.h, MAXSYMLINKS.
"""


def locate_entitled(path: AnyPath) -> int:
    """Locate the file at a path; follow links that belong to entitled users.

    These are root, the reader, and the owner of the target. The kernel follows the links by its own
    rules. Then they are resolved one by one and must lead to the same file, so that replacing one
    meanwhile has no effect.

    Raises:
        OSError: the file does not exist, or there are too many links.
        ValueError: a link belongs to another user.
    """
    located = keep_links(path)
    if not stat.S_ISLNK(os.fstat(located).st_mode):
        return located
    os.close(located)
    target = follow_links(path)
    try:
        _check(path, os.fstat(target))
    except (OSError, ValueError):
        os.close(target)
        raise
    return target


def _check(path: AnyPath, target: os.stat_result) -> None:
    """Check that every link belongs to a user who is entitled to the target."""
    owners, reached = list[int](), None
    # a link may be replaced meanwhile, or be one of /proc that only the kernel can resolve
    with suppress(FileNotFoundError, NotADirectoryError):
        owners, reached = _walk(path)
    if reached is None or not os.path.samestat(reached, target):
        raise ValueError("is a link whose path to its target cannot be checked")
    for owner in owners:
        if owner not in (0, os.geteuid(), target.st_uid):
            raise ValueError(
                f"is a link of user {owner} to a file of another user and is not followed;"
                " copy the file"
            )


def _walk(path: AnyPath) -> tuple[list[int], os.stat_result | None]:
    """Resolve the last component of a path; return the owners of links, and the target's status.

    Components are opened one by one, so links to directories are checked as well.
    """
    directory, name = os.path.split(os.fspath(path))
    names, owners = [name], list[int]()
    here = follow_links(directory or ".")
    try:
        for _ in range(_NAMES_MAX):
            if not names:
                return owners, os.fstat(here)
            there = _step(here, names, owners)
            os.close(here)
            here = there
    finally:
        os.close(here)
    return owners, None


def _step(here: int, names: list[str], owners: list[int]) -> int:
    """Open the next component, the last of the list; return the descriptor to continue from.

    A link adds its owner, and the components of its target.
    """
    there = os.open(names.pop(), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    try:
        status = os.fstat(there)
        if not stat.S_ISLNK(status.st_mode):
            return os.dup(there)
        owners.append(status.st_uid)
        target = os.readlink("", dir_fd=there)
        names += [each for each in reversed(target.split("/")) if each]
        return follow_links("/") if target.startswith("/") else os.dup(here)
    finally:
        os.close(there)
