"""Links in directories that others than the reader may write to.

The agent reads, as root, a directory that members of podslice-admin write to. A link of theirs to a
file that only root may read would put pieces of that file into messages that they may see.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def open_beside(path: str, flags: int) -> int:
    """Open a file of a directory; follow a link only if its owner is entitled to what it leads to.

    That is root, the reader, and the owner of the file that the link leads to. Nothing can take the
    place of the link in between: it is opened itself, and read by its descriptor.

    Raises:
        OSError: the file can't be opened.
        ValueError: it is a link that is not followed.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _follow(link, Path(path).parent, flags)
    finally:
        os.close(link)


def _follow(link: int, directory: Path, flags: int) -> int:
    """Open what a link leads to, once it is known whose it is: opening a device has effects."""
    owner = os.fstat(link).st_uid
    target = os.open(directory / os.readlink("", dir_fd=link), os.O_PATH | os.O_CLOEXEC)
    try:
        if owner in (0, os.geteuid(), os.fstat(target).st_uid):
            return os.open(f"/proc/self/fd/{target}", flags)
    finally:
        os.close(target)
    raise ValueError(
        f"is a link of user {owner} to a file of another user, and is not followed; copy the file"
    )
