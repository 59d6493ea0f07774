"""Reads of regular files only, without blocking; the caller decides which links are followed.

A pipe blocks, opening a device may have side effects, and neither needs to end. So a file is located
first, with a descriptor that only refers to it, and opened through that descriptor once it is known
to be regular: it cannot be replaced in between.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

Path = str | os.PathLike[str]
Locate = Callable[[Path], int]
"""Returns an `O_PATH` descriptor of the file at a path, or of the link if it does not follow links."""

_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 2**18
_KINDS = {
    stat.S_IFREG: "a regular file",
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularError(ValueError):
    """A file that is not regular, or is too large."""


class TooLargeError(NotRegularError):
    """A file is larger than the limit."""

    def __init__(self, limit_bytes: int) -> None:
        """Create the error for a limit."""
        super().__init__(f"is larger than {limit_bytes // 1024:,} KiB")


def keep_links(path: Path) -> int:
    """Locate the file at a path; a link is located itself, and so rejected."""
    return os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)


def follow_links(path: Path) -> int:
    """Locate the file at a path; follow links as `open` does."""
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def open_regular(
    path: Path,
    flags: int,
    mode: int = 0o777,
    *,
    locate: Locate = keep_links,
    allow_pipe: bool = False,
) -> int:
    """Open a regular file, or a pipe if that is allowed, and return the descriptor.

    Raises:
        OSError: it cannot be opened; the error names the path.
        NotRegularError: it is not a regular file.
    """
    try:
        located = locate(path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        return _create(path, flags, mode)
    try:
        _check(located, allow_pipe=allow_pipe)
        return os.open(f"/proc/self/fd/{located}", flags & ~os.O_CREAT | _FLAGS)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(located)


def read_regular(path: Path, *, limit_bytes: int, locate: Locate = keep_links) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read.
        NotRegularError: it is not a regular file, or is larger than the limit.
    """
    return read_with_status(path, limit_bytes=limit_bytes, locate=locate)[0]


def read_with_status(
    path: Path, *, limit_bytes: int, locate: Locate = keep_links
) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file, and its status before the read.

    Raises:
        OSError: it cannot be read.
        NotRegularError: it is not a regular file, or is larger than the limit.
    """
    descriptor = open_regular(path, os.O_RDONLY, locate=locate)
    try:
        status = os.fstat(descriptor)
        return read_opened(descriptor, limit_bytes=limit_bytes), status
    finally:
        os.close(descriptor)


def read_opened(descriptor: int, *, limit_bytes: int) -> bytes:
    """Return the content of an open regular file, which may grow meanwhile.

    Raises:
        OSError: it cannot be read.
        TooLargeError: it is larger than the limit.
    """
    if os.fstat(descriptor).st_size > limit_bytes:
        raise TooLargeError(limit_bytes)
    chunks: list[bytes] = []
    left = limit_bytes
    while chunk := os.read(descriptor, _CHUNK):
        # The size above may be out of date, and is 0 for files that the kernel generates.
        left -= len(chunk)
        if left < 0:
            raise TooLargeError(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def _create(path: Path, flags: int, mode: int) -> int:
    """Create a file, or open the regular file that another process created meanwhile."""
    descriptor = os.open(path, flags | _FLAGS | os.O_NOFOLLOW, mode)
    try:
        _check(descriptor, allow_pipe=False)
    except NotRegularError:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, *, allow_pipe: bool) -> None:
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG and not (allow_pipe and kind == stat.S_IFIFO):
        raise NotRegularError(f"is {describe_kind(kind)}, not a regular file")


def describe_kind(mode: int) -> str:
    """Return what a file with this mode is: `a link`."""
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown type")


def read_present(path: Path, *, limit_bytes: int) -> bytes | None:
    """Return the content of a file; None if it does not exist, empty if it is none that can be read.

    Raises:
        OSError: it cannot be read for another reason than its permissions.
    """
    try:
        return read_regular(path, limit_bytes=limit_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (PermissionError, NotRegularError):
        return b""
