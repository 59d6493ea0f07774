"""Files that exist whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podslice.errors import HostError
from podslice.inputs.limits import BYTES_MAX
from podslice.kernel.files import read_regular

RECORD_BYTES_MAX = BYTES_MAX
"""The largest file: a pod may be as large as a whole manifest."""

_WRITE_TRIES = 5
_CLOCK_REALTIME_COARSE = 5
"""Source: Linux, include/uapi/linux/time.h."""

Stamp = tuple[int, int, int, int]
"""Identifies one version of a file."""


def failed(error: OSError, path: Path) -> HostError:
    """Translate an error of the file system, with the remedy."""
    hint = "; run as root, or use --user" if isinstance(error, PermissionError) else ""
    return HostError(f"{error.filename or path}: {error.strerror}{hint}")


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Translate errors of the file system.

    Raises:
        HostError: a file could not be written.
    """
    try:
        yield
    except OSError as error:
        raise failed(error, root) from error


def stamp(status: os.stat_result) -> Stamp:
    """Return the stamp of a file; a file that replaces it has another."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def directory_stamp(path: Path) -> Stamp | None:
    """Return the stamp of a directory: it differs after each change of the names in it.

    None: it does not exist, or has changed within the current tick of the clock, so that another
    change might not show. The kernel takes the times of files from this clock.

    Source: Linux 6.12, fs/inode.c, current_time().
    """
    now = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    try:
        status = path.stat()
    except OSError:
        return None
    return stamp(status) if status.st_mtime_ns < now else None


def parse_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Parse a JSON file.

    Raises:
        OSError: it can't be read.
        ValueError, RecursionError: it is not a regular file, is too large, or is not JSON.
    """
    return json.loads(read_regular(path, limit_bytes=RECORD_BYTES_MAX))


def read_json(path: Path) -> dict[str, Any]:
    """Read a mapping; an empty one where the file is missing or not a mapping.

    Raises:
        OSError: the file exists and can't be read.
    """
    try:
        found = parse_json(path)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a mapping atomically; create the directories above it."""
    new = path.with_suffix(".new")
    # on one line: with indentation it takes several times as long
    text = json.dumps(content)
    tries_left = _WRITE_TRIES
    while True:
        try:
            create_file(new, text)
            new.replace(path)
        except FileNotFoundError:  # nothing was written there, or another process removed it
            tries_left -= 1
            if not tries_left:
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        else:
            return


def create_file(path: Path, text: str) -> None:
    """Create a file; remains of a crash at its path are removed, not opened."""
    if len(text) > RECORD_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    try:
        file = path.open("x")
    except FileExistsError:
        path.unlink(missing_ok=True)
        file = path.open("x")
    with file:
        file.write(text)


def remove(path: Path) -> None:
    """Remove a file or an empty directory.

    Raises:
        OSError: it can't be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        path.rmdir()


def entries(directory: Path) -> list[Path]:
    """Return the entries of a directory by name; none where it can't be read, or is a link."""
    try:
        return [] if directory.is_symlink() else sorted(directory.iterdir())
    except OSError:
        return []


def scan(directory: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, with their types; none as for `entries`."""
    try:
        if directory.is_symlink():
            return []
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []


def unlink_link(path: Path) -> bool:
    """Remove a link in the place of a directory; return whether it was one.

    Raises:
        OSError: it can't be removed.
    """
    if not path.is_symlink():
        return False
    path.unlink(missing_ok=True)
    return True
