"""Watch the directory at a path, also while it is created, replaced or removed."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from podslice.kernel.inotify import (
    IN_ATTRIB,
    IN_CREATE,
    IN_DELETE,
    IN_DELETE_SELF,
    IN_DONT_FOLLOW,
    IN_MOVE_SELF,
    IN_MOVED_FROM,
    IN_MOVED_TO,
    IN_ONLYDIR,
    Inotify,
    OnEvent,
    Watched,
)

# a change of permissions closes or opens what is below
_ITSELF = IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB
_ENTRY = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB

_LINKS_MAX = 40
"""Source: Linux, include/linux/namei.h, MAXSYMLINKS."""


class Following:
    """A watched path, at which a directory may be created, replaced, removed or made inaccessible.

    The directory is watched, and everything that may lead to another directory at the path:

    - each directory on the way, for being moved, removed, or given other permissions;
    - the directory that holds a symbolic link on the way, the last entry, the place where the way
      ends, or a directory that cannot be watched itself: for changes of that entry;
    - mounts, with `check`: inotify does not report them.
    """

    def __init__(self, inotify: Inotify, path: Path, mask: int, on_change: OnEvent) -> None:
        """Start watching.

        Args:
            inotify: reports the events.
            path: absolute.
            mask: the events in the directory that are of interest.
            on_change: as `OnEvent`; an empty name means that the path now leads to another
                directory, to an inaccessible one, or to none.
        """
        self._inotify = inotify
        self.path = path
        self._mask = mask
        self._on_change = on_change
        self._watched: list[Watched] = []
        self.error: OSError | None = None
        """Why the directory cannot be watched, although there is one."""
        self.renew()

    def close(self) -> None:
        """Stop watching."""
        self._unwatch(self._watched)
        self._watched = []

    def renew(self) -> None:
        """Watch what is at the path now. Call it after events were lost."""
        before, self._watched = self._watched, []
        self.error = None
        # before the walk: a mount during the walk makes a difference, and `check` finds it
        self._identity = _identity(self.path)
        self._walk()
        # add the new watches first, so that no event is missed
        self._unwatch(before)

    def check(self) -> None:
        """Resolve the path again if it leads to another directory. Call it when mounts changed."""
        if _identity(self.path) != self._identity:
            self._replace(0)

    def _walk(self) -> None:
        """Watch each step of the way, as the kernel resolves the path."""
        here = Path(self.path.anchor)
        self._reach(here, is_last=False)
        ahead, links = _steps(self.path), 0
        while ahead:
            passed = self._pass(here / ahead.pop(), is_last=not ahead)
            if passed is None:
                return
            here, more = passed
            links += bool(more)
            if links > _LINKS_MAX:
                self.error = OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                return
            ahead += more

    def _pass(self, entry: Path, *, is_last: bool) -> tuple[Path, list[str]] | None:
        """Watch one step; return where it leads to with the steps of a link, or None: nowhere."""
        if entry.name == os.pardir:
            return entry.parent.parent, [os.curdir]
        if not is_last and self._reach(entry, is_last=False):
            return entry, []
        # watch before reading the entry, so that no change is missed
        self._await(entry)
        if (target := _target(entry)) is not None:
            return Path(target.anchor or entry.parent), _steps(target)
        # it may be unreadable but searchable, such as the parent of all homes
        is_passable = self._reach(entry, is_last=is_last) or isinstance(self.error, PermissionError)
        return (entry, []) if is_passable else None

    def _reach(self, directory: Path, *, is_last: bool) -> bool:
        """Watch a directory on the way, or the last one; return whether it is watched."""
        mask = self._mask if is_last else 0

        def on_event(name: str, event: int) -> None:
            if not name:
                self._replace(event)
            elif event & mask:  # entries above are of interest to `_await` only
                self._on_change(name, event)

        self.error = None
        try:
            self._add(directory, mask | _ITSELF | IN_DONT_FOLLOW, on_event)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            self.error = error
            return False
        return True

    def _await(self, entry: Path) -> None:
        """Watch for changes of an entry; where its directory cannot be read, nothing reports them."""

        def on_event(name: str, mask: int) -> None:
            if name == entry.name:
                self._replace(mask)

        with contextlib.suppress(OSError):
            self._add(entry.parent, _ENTRY | IN_DONT_FOLLOW, on_event)

    def _add(self, path: Path, mask: int, on_event: OnEvent) -> None:
        self._watched.append(self._inotify.watch(path, mask | IN_ONLYDIR, on_event))

    def _unwatch(self, watched: list[Watched]) -> None:
        for each in watched:
            self._inotify.unwatch(each)

    def _replace(self, mask: int) -> None:
        self.renew()
        self._on_change("", mask)


def _steps(path: Path) -> list[str]:
    """Return the parts of a path, without the root, the last one first."""
    return list(reversed(path.relative_to(path.anchor).parts)) or [os.curdir]


def _target(entry: Path) -> Path | None:
    """Return where a symbolic link leads to; None if it is not one, or inaccessible."""
    try:
        return entry.readlink()
    except OSError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies the directory at a path; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
