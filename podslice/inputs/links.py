"""Symbolic links in directories that other users than the reader may write to.

The agent reads, as root, a directory that members of podslice-admin write to. A link of theirs to a
file that only root may read would put parts of that file into messages that they may read. The same
applies to every further link: a link of root to a file of a user leads wherever the user redirects
it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from podslice.files import Path, follow_links, keep_links

_NAMES_MAX = 400
"""Path components that are resolved. The kernel follows 40 links, but they may be long.

Source: Linux, include/linux/namei.h, MAXSYMLINKS.
"""


def locate_entitled(path: Path) -> int:
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


def _check(path: Path, target: os.stat_result) -> None:
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


def _walk(path: Path) -> tuple[list[int], os.stat_result | None]:
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
