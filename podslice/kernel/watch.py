"""Notifications by the kernel that a file or a directory has changed.

Python's library has no inotify, and no package fits: watchfiles has a thread in Rust that wakes up
every 50 ms, the others are unmaintained or not in the distributions. Three calls of the C library
are enough.

Source: inotify(7).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import select
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Source: Linux, include/uapi/linux/inotify.h
IN_MODIFY = 0x2
IN_ATTRIB = 0x4
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x1000000
IN_DONT_FOLLOW = 0x2000000
_IN_MASK_ADD = 0x20000000
_HEAD = struct.Struct("iIII")
_READ_BYTES = 2**16

OnEvent = Callable[[str, int], None]
"""Called with the name in the directory (empty: the watched file itself) and the event mask.

`IN_IGNORED`: it was removed, and its watch with it.
"""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True, eq=False)
class Watched:
    """One subscription to the events of a file or directory."""

    descriptor: int
    mask: int
    on_event: OnEvent
    is_wanted: bool = True


class Inotify:
    """An inotify instance whose events call back in the running loop.

    Equal events that wait to be read are reported once.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        """Open the instance; `on_lost` is called when events were lost.

        Raises:
            OSError: the user has too many instances (`fs.inotify.max_user_instances`).
        """
        self._handle = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._on_lost = on_lost
        self._watched: dict[int, list[Watched]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self, self._on_readable)

    def fileno(self) -> int:
        """Return the descriptor of the instance."""
        return self._handle

    def watch(self, path: str | Path, mask: int, on_event: OnEvent) -> Watched:
        """Report events of a file, or of a directory and its entries.

        A file may be watched several times.

        Raises:
            OSError: it does not exist, can't be read, or the user has too many watches
                (`fs.inotify.max_user_watches`).
        """
        # the kernel has one watch for each inode, whatever it is called
        # Without IN_MASK_ADD, the mask of a second caller would replace that of the first.
        added = ctypes.c_uint32(mask | _IN_MASK_ADD)
        number = _checked(_libc.inotify_add_watch(self._handle, os.fsencode(path), added))
        watched = Watched(number, mask & ~(IN_ONLYDIR | IN_DONT_FOLLOW), on_event)
        self._watched.setdefault(number, []).append(watched)
        return watched

    def unwatch(self, watched: Watched) -> None:
        """Stop reporting; do nothing if the watched file was removed."""
        watched.is_wanted = False
        others = self._watched.get(watched.descriptor, [])
        if watched in others:
            others.remove(watched)
            if not others:
                del self._watched[watched.descriptor]
                _libc.inotify_rm_watch(self._handle, watched.descriptor)

    def close(self) -> None:
        """Stop all watches, and close the instance."""
        self._loop.remove_reader(self)
        os.close(self._handle)
        self._watched.clear()

    def _on_readable(self) -> None:
        for number, mask, name in dict.fromkeys(_events(os.read(self._handle, _READ_BYTES))):
            if mask & IN_Q_OVERFLOW:
                self._on_lost()
            if mask & IN_IGNORED:
                receivers = self._watched.pop(number, [])
            else:
                receivers = [each for each in self._watched.get(number, ()) if each.mask & mask]
            for watched in receivers:
                # an earlier callback may have removed it
                if watched.is_wanted:
                    watched.on_event(name, mask)


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield the descriptor, mask and name of each event that was read."""
    offset = 0
    while offset < len(data):
        number, mask, _, length = _HEAD.unpack_from(data, offset)
        offset += _HEAD.size
        name = data[offset : offset + length].rstrip(b"\0")
        yield number, mask, os.fsdecode(name)
        offset += length


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


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


class Exceptional:
    """Calls back when the kernel reports an exceptional condition of a file, in the running loop.

    asyncio cannot wait for EPOLLPRI, but it can wait for another epoll instance that does.
    """

    def __init__(
        self,
        path: Path,
        flags: int,
        on_event: Callable[[], None],
        prepare: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Open the file.

        Args:
            path: the file.
            flags: whether to open it for reading, or for writing as well.
            on_event: called at each event.
            prepare: registers the events with the kernel. A pressure file reports nothing to a
                waiter that was added before.

        Raises:
            OSError: the file cannot be opened, or has no such conditions.
        """
        self._on_event = on_event
        with contextlib.ExitStack() as stack:
            descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            prepare(descriptor)
            self._epoll = stack.enter_context(select.epoll())
            self._epoll.register(descriptor, select.EPOLLPRI)
            self._opened = stack.pop_all()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll, self._on_readable)

    def close(self) -> None:
        """Stop waiting, and close the file."""
        self._loop.remove_reader(self._epoll)
        self._opened.close()

    def _on_readable(self) -> None:
        # the outer epoll has fetched the event already; this one has nothing more to report
        self._epoll.poll(0)
        self._on_event()


class MountAlarm(Exceptional):
    """Calls back when file systems were mounted or unmounted.

    Source: proc_pid_mounts(5): the file is marked as having a priority event.
    """

    def __init__(self, on_change: Callable[[], None], root: Path = Path("/")) -> None:
        """Open the list of mounts.

        Raises:
            OSError: it cannot be opened.
        """
        super().__init__(root / "proc/self/mountinfo", os.O_RDONLY, on_change)


TRIGGERS = (b"some 35000 500000\0", b"some 140000 2000000\0")
"""Some process has waited for 7 % of half a second, the shortest time that the kernel accepts.

The kernel checks ten times in that time, and notifies once. Without CAP_SYS_RESOURCE the shortest
time is 2 s.

Source: Linux, Documentation/accounting/psi.rst, "Monitoring for pressure thresholds".
"""


class MemoryAlarm(Exceptional):
    """Calls back in the running loop while memory is short."""

    def __init__(self, on_pressure: Callable[[], None], root: Path = Path("/")) -> None:
        """Set the trigger.

        Raises:
            OSError: the kernel has no pressure files, or permission is denied.
        """
        super().__init__(root / "proc/pressure/memory", os.O_RDWR, on_pressure, _set)


def _set(trigger: int) -> None:
    """Set the quick trigger, or the slow one without the privilege for it."""
    quick, slow = TRIGGERS
    try:
        os.write(trigger, quick)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.write(trigger, slow)
