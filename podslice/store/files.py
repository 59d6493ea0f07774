"""Files that exist whole or not at all, values in them as JSON, and the lock of their writers.

What reads or writes raises OSError if the file system refuses, unless it states otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from podslice.errors import HostError
from podslice.inputs.budget import BYTES_MAX
from podslice.kernel.files import NotRegularError, open_regular, read_regular
from podslice.model.unit import INFINITY

RECORD_BYTES_MAX = BYTES_MAX
"""The largest file: a pod may be as large as a whole manifest."""
_WRITE_TRIES = 5
_CLOCK_REALTIME_COARSE = 5
"""Source: Linux, include/uapi/linux/time.h."""

Stamp = tuple[int, int, int, int]
"""Identifies one version of a file."""

T = TypeVar("T")


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
    # Programs may set the modification time, but not the change time.
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


def replace_file(
    path: str | Path,
    content: bytes,
    *,
    new: str | Path,
    mode: int | None = None,
    directory: int | None = None,
) -> None:
    """Write a file whole or not at all: `new` is written, and then renamed.

    Args:
        path: the file; a link there is replaced.
        content: what to write.
        new: a path in the same file system; what an interrupted write has left there is removed.
        mode: the permissions, before which no other user can read the file; None for the usual ones.
        directory: the descriptor of the directory that both paths are below, if they are relative.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(new, flags, 0o666 if mode is None else 0o600, dir_fd=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(content)
        os.replace(new, path, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new, dir_fd=directory)
        raise


def write_text(path: Path, text: str, *, new: Path | None = None, mode: int | None = None) -> None:
    """Write a file with `replace_file`; create the directories above it."""
    content, new = text.encode(), new or path.with_suffix(".new")
    if len(content) > RECORD_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(new))
    tries_left = _WRITE_TRIES
    while True:
        try:
            return replace_file(path, content, new=new, mode=mode)
        except FileNotFoundError:  # nothing was written there, or another process removed it
            tries_left -= 1
            if not tries_left:
                raise
            path.parent.mkdir(parents=True, exist_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write a value as JSON, dataclasses as mappings, for `read_json` or `read_value`.

    It has one line: with indentation it takes several times as long.
    """
    write_text(path, json.dumps(value, default=asdict))


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


def read_value(kind: type[T], path: Path) -> T | None:
    """Read a value from a JSON file; None where the file is missing or damaged.

    Raises:
        OSError: the file exists and can't be read.
    """
    return value_of(kind, read_json(path))


def value_of(kind: type[T], found: object) -> T | None:
    """Return a value of a type made from JSON; None where that is damaged.

    The types of fields state what is valid: texts, numbers, flags, and what is composed of them; `object` is any JSON.
    """
    try:
        made: T = _value_of(kind, found)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return made


class ValueFile(Generic[T]):
    """A value in a JSON file, which exists while there is one."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self.path = path
        self._kind = kind

    def read(self) -> T | None:
        """Return the value; None where the file is missing, damaged or cannot be read."""
        with contextlib.suppress(OSError):
            return read_value(self._kind, self.path)
        return None

    def save(self, value: T | None) -> None:
        """Write the value if it has changed; remove the file where there is none.

        Raises:
            HostError: it can't be written.
        """
        with writing(self.path):
            if not value:
                remove(self.path)
            elif value != self.read():
                write_json(self.path, value)


_hints = cache(get_type_hints)


def _value_of(kind: Any, found: Any) -> Any:  # noqa: ANN401, PLR0911 - any type, and any JSON value
    """Return a value of a type.

    Raises:
        KeyError, ValueError, TypeError, AttributeError: JSON has no such value.
    """
    kind = getattr(kind, "__supertype__", kind)
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if found is None and NoneType in parts:
            return None
        others = [each for each in parts if each is not NoneType]
        return _value_of(str if str in others and isinstance(found, str) else others[0], found)
    if origin is tuple:
        return tuple(_value_of(parts[0], each) for each in found)
    if origin in (Mapping, dict):
        return {_value_of(parts[0], key): _value_of(parts[1], each) for key, each in found.items()}
    if kind is object:
        return found
    if kind is bool:
        return found is True
    if kind is int:
        is_valid = isinstance(found, int) and 0 <= found <= INFINITY
    elif issubclass(kind, str):
        is_valid = isinstance(found, str)
    else:
        # a flag that is missing is not set, and what is not compared is left out
        return kind(
            **{
                each.name: _value_of(
                    hint, found.get(each.name) if hint is bool else found[each.name]
                )
                for each in fields(kind)
                if each.compare and (hint := _hints(kind)[each.name])
            }
        )
    if not is_valid:
        raise TypeError(found)
    return kind(found)


def remove(path: Path) -> None:
    """Remove a file or an empty directory."""
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        path.rmdir()


def scan(directory: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a directory by name; none where it can't be read, or is a link."""
    try:
        if directory.is_symlink():
            return []
        with os.scandir(directory) as found:
            return sorted(found, key=lambda each: each.name)
    except OSError:
        return []


def entries(directory: Path) -> list[Path]:
    """Return the paths of `scan`."""
    return [Path(each.path) for each in scan(directory)]


def unlink_link(path: Path) -> bool:
    """Remove a link in the place of a directory; return whether it was one."""
    if not path.is_symlink():
        return False
    path.unlink(missing_ok=True)
    return True


# The lock of all writers: one file, removed with the last record.

LOCK_WAIT_SEC = 120.0
LOCK_POLL_SEC = 0.02
_LOCK_TRIES = 10


def take_lock(root: Path, on_wait: Callable[[], None]) -> int:
    """Acquire the lock below a directory; the kernel releases it when the process exits.

    Raises:
        HostError: another process has held it for longer than `LOCK_WAIT_SEC`.
    """
    deadline, tries = time.monotonic() + LOCK_WAIT_SEC, 0
    while (handle := try_lock(root)) is None:
        if time.monotonic() > deadline:
            raise held_for(LOCK_WAIT_SEC, root)
        tries += 1
        if tries == _LOCK_TRIES:
            on_wait()
        time.sleep(LOCK_POLL_SEC)
    return handle


def held_for(seconds: float, root: Path) -> HostError:
    """Return the error for a lock that was not released in time."""
    return HostError(
        f"another podslice process has held the lock for {seconds:.0f} s; to find it:"
        f" fuser -v {root}/lock"
    )


def try_lock(root: Path) -> int | None:
    """Acquire the lock; return None where another process holds it.

    Raises:
        HostError: its file cannot be opened, or the file system has no locks.
    """
    path = root / "lock"
    handle = _open_lock(path)
    try:
        # held by another process, or removed by one that held it
        with writing(root), contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was removed or replaced before excludes no other process.
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def release_lock(root: Path, handle: int, *, is_needed: bool) -> None:
    """Release the lock, and remove its file unless it is still needed."""
    if not is_needed:
        # nothing is applied, so nothing remains; a process that waits for this file tries again
        with contextlib.suppress(OSError):
            (root / "lock").unlink()
            root.rmdir()
    os.close(handle)


def _open_lock(path: Path) -> int:
    while True:
        with writing(path.parent):
            try:
                path.parent.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    path.parent.mkdir()
                return open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:
                continue  # another process removed the directory with its lock
            except PermissionError as error:
                message = f"permission denied: the record directory {path.parent}"
                raise HostError(f"{message}; run as root, or use --user") from error
            except NotRegularError as error:
                raise HostError(f"{path} {error}; remove it") from error
