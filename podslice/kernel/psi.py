"""Notifications by the kernel that processes wait for memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from podslice.kernel.priority_events import Exceptional

TRIGGERS = (b"some 35000 500000\0", b"some 140000 2000000\0")
"""Some process has waited for 7 % of half a second, the shortest time that the kernel accepts.

The kernel checks ten times in that time, and notifies once. Without CAP_SYS_RESOURCE the shortest
time is 2 s.

Source: Linux, Documentation/accounting/psi.rst, "Monitoring for pressure thresholds".
"""


class MemoryAlarm:
    """Calls back in the running loop while memory is short."""

    def __init__(self, on_pressure: Callable[[], None], root: Path = Path("/")) -> None:
        """Set the trigger.

        Raises:
            OSError: the kernel has no pressure files, or permission is denied.
        """
        path = root / "proc/pressure/memory"
        self._trigger = Exceptional(path, os.O_RDWR, on_pressure, _set)

    def close(self) -> None:
        """Stop the notifications."""
        self._trigger.close()


def _set(trigger: int) -> None:
    """Set the quick trigger, or the slow one without the privilege for it."""
    quick, slow = TRIGGERS
    try:
        os.write(trigger, quick)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.write(trigger, slow)
