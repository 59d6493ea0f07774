"""Directories instead of volumes, where mounting is not permitted."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from podslice.store.atomic import entries, unlink_link


def discard(volumes: Path) -> tuple[str, ...]:
    """Remove the directories of a pod's volumes; return those that could not be removed.

    A directory that is a mount or contains one is kept.
    """
    pod = volumes.parent
    paths = [] if pod.is_symlink() else entries(volumes)
    left = tuple(str(path) for path in paths if not _remove(path))
    remove_empty(pod)
    return left


def remove_empty(directory: Path) -> None:
    """Remove the directories of a pod that are empty and not mounts; of a link, only the link."""
    volumes = directory / "volumes"
    with contextlib.suppress(OSError):
        if unlink_link(directory):
            return
        unlink_link(volumes)
    for path in (*entries(volumes), volumes, directory):
        with contextlib.suppress(OSError):
            path.rmdir()


def _remove(path: Path) -> bool:
    """Remove a directory with its content unless it contains a mount; return whether it did."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        elif any(os.path.ismount(directory) for directory, _, _ in os.walk(path)):
            return False
        else:
            shutil.rmtree(path)
    except (OSError, RecursionError):
        return False
    return True
