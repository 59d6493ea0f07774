"""The kernel's word that processes wait for memory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
from collections.abc import Callable
from pathlib import Path

TRIGGERS = (b"some 35000 500000\0", b"some 140000 2000000\0")
"""Some process has waited for 7 % of half a second, the shortest time that may be asked for.

The kernel looks ten times in that time, and tells once. Who lacks CAP_SYS_RESOURCE may only ask for
2 s.

Source: Linux, Documentation/accounting/psi.rst, "Monitoring for pressure thresholds".
"""


class MemoryAlarm:
    """Calls back while memory is short, from the running loop."""

    def __init__(self, on_pressure: Callable[[], None], root: Path = Path("/")) -> None:
        """Set the trigger.

        Raises:
            OSError: a kernel without pressures, or no right to be told.
        """
        self._on_pressure = on_pressure
        path = root / "proc/pressure/memory"
        with contextlib.ExitStack() as stack:
            trigger = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, trigger)
            _set(trigger)
            # asyncio can't wait for EPOLLPRI, but for another epoll that does
            self._epoll = stack.enter_context(select.epoll())
            self._epoll.register(trigger, select.EPOLLPRI)
            self._opened = stack.pop_all()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll, self._on_readable)

    def close(self) -> None:
        """Be told no more."""
        self._loop.remove_reader(self._epoll)
        self._opened.close()

    def _on_readable(self) -> None:
        # the outer epoll has fetched the event already, so that this one has nothing to say
        self._epoll.poll(0)
        self._on_pressure()


def _set(trigger: int) -> None:
    """Ask to be told quickly, or as quickly as may be."""
    quick, slow = TRIGGERS
    try:
        os.write(trigger, quick)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.write(trigger, slow)
