"""Reads of regular files only, without blocking; a link at the end of a path is one on request.

A pipe blocks, a device may act when it is opened, and neither has to end. Nothing that podslice or
systemd writes is one of these, nor a link; the configuration of other programs may be a link.
"""

from __future__ import annotations

import os
import stat

_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularError(ValueError):
    """Something else than a regular file, or one that is too large."""


def open_regular(
    path: str | os.PathLike[str], flags: int, mode: int = 0o777, *, follow: bool = False
) -> int:
    """Open a regular file, or with `follow` also a link to one, and return its descriptor.

    Raises:
        OSError: it cannot be opened.
        NotRegularError: it is something else.
    """
    if not flags & os.O_CREAT or os.path.lexists(path):
        # before it is opened, which does something to a device
        _check(os.stat(path) if follow else os.lstat(path))  # noqa: PTH116 - no Path is made
    descriptor = os.open(path, flags | _FLAGS | (0 if follow else os.O_NOFOLLOW), mode)
    try:
        _check(os.fstat(descriptor))
    except NotRegularError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], *, limit_bytes: int, follow: bool = False) -> bytes:
    """Return the content of a regular file, or with `follow` also of what a link leads to.

    Raises:
        OSError: it cannot be read.
        NotRegularError: it is something else, or larger than the limit.
    """
    with open(open_regular(path, os.O_RDONLY, follow=follow), "rb") as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise NotRegularError(f"is larger than {limit_bytes // 1024:,} KiB")
    return data


def _check(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise NotRegularError(f"is {kind}, not a file")
