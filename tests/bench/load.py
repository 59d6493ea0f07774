"""The use of the machine by processes other than the measured ones.

A round is disturbed when more than a tenth of one processor is used by processes that are not
descendants of this one, by interrupts, or by other machines on the same hardware (steal).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")
DISTURBED_SHARE = 0.1
"""As a part of one processor."""
GRANULE_SEC = 0.1
"""Less than this is below the resolution of the kernel's clock."""
PROC = Path("/proc")
# of the line `cpu` in /proc/stat: user nice system idle iowait irq softirq steal guest guest_nice;
# user includes guest. Source: proc_stat(5)
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)


@dataclass(slots=True)
class Load:
    """The load during a measurement; complete when it is over."""

    wall_sec: float = 0.0
    foreign_sec: float = 0.0
    """Processor time of other processes."""
    is_disturbed: bool = field(default=False)


@contextmanager
def watch_load() -> Iterator[Load]:
    """Measure whether the machine was busy with other processes meanwhile."""
    load = Load()
    start, busy, own = time.monotonic(), busy_sec(), own_sec()
    yield load
    load.wall_sec = time.monotonic() - start
    load.foreign_sec = max((busy_sec() - busy) - (own_sec() - own), 0.0)
    load.is_disturbed = load.foreign_sec > GRANULE_SEC + DISTURBED_SHARE * load.wall_sec


def busy_sec(proc: Path = PROC) -> float:
    """Return the processor time that was not idle, of all processors, since the boot."""
    fields = (proc / "stat").read_text().splitlines()[0].split()[1:]
    return sum(int(fields[index]) for index in BUSY_FIELDS if index < len(fields)) / TICKS_PER_SEC


def own_sec(proc: Path = PROC, top: int | None = None) -> float:
    """Return the processor time of a process and of all its descendants."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            # the name in parentheses may contain anything; ppid is the second field behind it, and
            # utime, stime, cutime and cstime the 12th to 15th. Source: proc_pid_stat(5)
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    top = os.getpid() if top is None else top
    return sum(ticks[pid] for pid in ticks if _is_below(pid, top, parents)) / TICKS_PER_SEC


def _is_below(pid: int, top: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        if pid == top:
            return True
        pid = parents[pid]
    return False
