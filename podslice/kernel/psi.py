"""The kernel's word that processes wait for memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from podslice.kernel.priority_events import Exceptional

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
        path = root / "proc/pressure/memory"
        self._trigger = Exceptional(path, os.O_RDWR, on_pressure, _set)

    def close(self) -> None:
        """Be told no more."""
        self._trigger.close()


def _set(trigger: int) -> None:
    """Ask to be told quickly, or as quickly as may be."""
    quick, slow = TRIGGERS
    try:
        os.write(trigger, quick)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        os.write(trigger, slow)
