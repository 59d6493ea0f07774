"""The directories of the lab: images in a cache, one directory per running machine; and their locks."""

import fcntl
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    if reason := why_unavailable():
        raise LabError(reason)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary; wait for other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
