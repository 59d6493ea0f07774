"""Links in directories that others than the reader may write to.

The agent reads, as root, a directory that members of podslice-admin write to. A link of theirs to a
file that only root may read would put pieces of that file into messages that they may see. The same
holds for every other link on the way: a link of root to a file of a user leads wherever the user
then makes it lead.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from podslice.files import Path, follow_links, keep_links

_NAMES_MAX = 400
"""Names on the way that are looked up. The kernel follows 40 links, but they may be long.

Source: Linux, include/linux/namei.h, MAXSYMLINKS.
"""


def locate_entitled(path: Path) -> int:
    """Locate what is at the path of a directory's file; follow links whose owners are entitled to it.

    These are root, the reader, and the owner of the file that the links lead to. The kernel follows
    the links by its own rules. Then the links are followed one by one, and have to lead to the same
    file, so that it does not matter when one is replaced.

    Raises:
        OSError: there is no such file, or there are too many links.
        ValueError: there is a link that is not followed.
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
    """Check that each link on the way belongs to someone who is entitled to the target."""
    owners, reached = list[int](), None
    # a link may be replaced meanwhile, or be one of /proc that only the kernel can follow
    with suppress(FileNotFoundError, NotADirectoryError):
        owners, reached = _walk(path)
    if reached is None or not os.path.samestat(reached, target):
        raise ValueError("is a link that leads to a file in a way that cannot be checked")
    for owner in owners:
        if owner not in (0, os.geteuid(), target.st_uid):
            raise ValueError(
                f"is a link of user {owner} to a file of another user, and is not followed;"
                " copy the file"
            )


def _walk(path: Path) -> tuple[list[int], os.stat_result | None]:
    """Follow the links from the last name of a path on; return their owners, and what is reached.

    Names are opened one by one, so a link in the place of a directory is seen as well.
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
    """Open the next name, which is the last in the list; return the place to go on from.

    A link adds its owner, and the names in its target.
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
