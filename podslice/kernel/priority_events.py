"""Wait for exceptional conditions (EPOLLPRI), by which the kernel reports changes of some files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
from collections.abc import Callable
from pathlib import Path


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
