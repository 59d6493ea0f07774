"""A description of the measured machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from podslice import __version__
from tests.lab.cgroups import host_layout
from tests.lab.paths import source_dir


def describe() -> dict[str, object]:
    """Return processor, memory, kernel, Python and the version of podslice, as plain values."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "processors": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "control_groups": f"version {host_layout().version}",
        "python": platform.python_version(),
        "podslice": f"{__version__} ({_revision()})",
    }


def to_text(machine: dict[str, object]) -> str:
    """Return one line for each value."""
    return "".join(f"{name.replace('_', ' '):15} {value}\n" for name, value in machine.items())


def _processor() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _revision() -> str:
    """Return the commit of the sources; with a plus if there are uncommitted changes."""
    argv = ("git", "-C", str(source_dir()), "describe", "--always", "--dirty=+", "--abbrev=8")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "no git here"
    return done.stdout.strip() or "no repository"
