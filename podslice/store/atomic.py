"""Files that are there in whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podslice.errors import HostError
from podslice.files import read_regular
from podslice.inputs.limits import BYTES_MAX

RECORD_BYTES_MAX = BYTES_MAX
"""Bytes of one file: a pod as large as a whole manifest may be."""

_WRITE_TRIES = 5

Stamp = tuple[int, int, int, int]
"""What tells that a file is another one, or was written to."""


def failed(error: OSError, path: Path) -> HostError:
    """An error of the file system, with the way out."""
    hint = "; run as root, or use --user" if isinstance(error, PermissionError) else ""
    return HostError(f"{error.filename or path}: {error.strerror}{hint}")


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Word what fails inside.

    Raises:
        HostError: something could not be written.
    """
    try:
        yield
    except OSError as error:
        raise failed(error, root) from error


def stamp(status: os.stat_result) -> Stamp:
    """The stamp of a file; that of what takes its place is another."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def parse_json(path: Path) -> Any:  # noqa: ANN401 - whatever is in it
    """Return what a file of ours says.

    Raises:
        OSError: it cannot be read.
        ValueError, RecursionError: it is not a regular file, is too large, or is not JSON.
    """
    return json.loads(read_regular(path, limit_bytes=RECORD_BYTES_MAX))


def read_json(path: Path) -> dict[str, Any]:
    """Return a mapping as it was written; an empty one where the path holds none.

    Raises:
        OSError: the file is there and can't be read.
    """
    try:
        found = parse_json(path)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a mapping, whole or not at all, with the directories above it."""
    new = path.with_suffix(".new")
    tries_left = _WRITE_TRIES
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # in one line: indented, it takes several times as long
            _write_new(new, json.dumps(content))
            new.replace(path)
        except FileNotFoundError:  # another has tidied the directory away meanwhile
            tries_left -= 1
            if not tries_left:
                raise
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
        else:
            return


def _write_new(path: Path, text: str) -> None:
    """Write a file that is not there yet; what a crash left in its place is removed, not opened."""
    if len(text) > RECORD_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with path.open("x") as file:
        file.write(text)


def remove(path: Path) -> None:
    """Remove a file, or an empty directory in its place.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        path.rmdir()


def entries(directory: Path) -> list[Path]:
    """What is in a directory, by name; nothing where that can't be told."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
