"""Where the lab keeps its files: images in a cache, one directory per running machine."""

import os
import platform
import sys
from pathlib import Path

from tests.lab.machine import LabError


def cache_dir() -> Path:
    """Directory of everything the lab builds: $PODSLICE_LAB, else ~/.cache/podslice-lab."""
    named = os.environ.get("PODSLICE_LAB")
    return Path(named).absolute() if named else Path.home() / ".cache" / "podslice-lab"


def run_dir() -> Path:
    """Directory with one subdirectory per running machine."""
    return cache_dir() / "run"


def source_dir() -> Path:
    """Root of the source tree this file belongs to."""
    return Path(__file__).resolve().parents[2]


def why_unavailable() -> str | None:
    """Say in words why no machine can be made on this host; None when one can."""
    if not sys.platform.startswith("linux"):
        return "the lab needs Linux"
    if os.geteuid() != 0:
        return "the lab needs root, to make namespaces and images"
    if platform.machine() != "x86_64":
        return f"the lab's images are for x86_64, this host is {platform.machine()}"
    return None


def require_host() -> None:
    """Raise LabError where no machine can be made."""
    if reason := why_unavailable():
        raise LabError(reason)
