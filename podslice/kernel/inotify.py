"""Notifications by the kernel that a file or a directory has changed.

Python's library has no inotify, and no package fits: watchfiles has a thread in Rust that wakes up
every 50 ms, the others are unmaintained or not in the distributions. Three calls of the C library
are enough.

Source: inotify(7).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
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
