"""The directories of the lab: images in a cache, one directory per running machine."""

import os
import platform
import sys
from pathlib import Path

from tests.lab.machine import LabError


def cache_dir() -> Path:
    """Return the directory of everything the lab builds: $PODSLICE_LAB, or ~/.cache/podslice-lab."""
    named = os.environ.get("PODSLICE_LAB")
    return Path(named).absolute() if named else Path.home() / ".cache" / "podslice-lab"


def run_dir() -> Path:
    """Return the directory with one subdirectory per running machine."""
    return cache_dir() / "run"


def source_dir() -> Path:
    """Return the root of the source tree that this file belongs to."""
    return Path(__file__).resolve().parents[2]


def why_unavailable() -> str | None:
    """Return why no machine can be created on this host; None if it can."""
    if not sys.platform.startswith("linux"):
        return "the lab needs Linux"
    if os.geteuid() != 0:
        return "the lab needs root, to make namespaces and images"
    if platform.machine() != "x86_64":
        return f"the lab's images are for x86_64, this host is {platform.machine()}"
    return None


def require_host() -> None:
    """Raise LabError if no machine can be created."""
    if reason := why_unavailable():
        raise LabError(reason)
