"""Files that are there in whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podslice.errors import HostError

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


def read_json(path: Path) -> dict[str, Any]:
    """A mapping as it is written; nothing where there is none, or none that can be read.

    Raises:
        OSError: the file is there and can't be read.
    """
    try:
        found = json.loads(path.read_bytes())
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
            new.write_text(json.dumps(content))
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


def entries(directory: Path) -> list[Path]:
    """What is in a directory, by name; nothing where that can't be told."""
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
