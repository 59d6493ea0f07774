"""The lock of all writers: one file, removed with the last record."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from podslice.errors import HostError
from podslice.kernel.files import NotRegularError, open_regular
from podslice.store.atomic import writing

WAIT_SEC = 120.0
POLL_SEC = 0.02
TRIES = 10


def take(root: Path, on_wait: Callable[[], None]) -> int:
    """Acquire the lock below a directory; the kernel releases it when the process exits.

    Raises:
        HostError: another process has held it for longer than `WAIT_SEC`.
    """
    deadline, is_waiting = time.monotonic() + WAIT_SEC, False
    while (handle := try_take(root, tries=TRIES)) is None:
        if time.monotonic() > deadline:
            raise held_for(WAIT_SEC, root)
        if not is_waiting:
            on_wait()
        is_waiting = True
    return handle


def held_for(seconds: float, root: Path) -> HostError:
    """Return the error for a lock that was not released in time."""
    return HostError(
        f"another podslice process has held the lock for {seconds:.0f} s; to find it:"
        f" fuser -v {root}/lock"
    )


def try_take(root: Path, *, tries: int = 1) -> int | None:
    """Acquire the lock; return None where another process holds it at every try."""
    path = root / "lock"
    for attempt in range(tries):
        if attempt:
            time.sleep(POLL_SEC)
        handle = _open(path)
        try:
            # held by another process, or removed by one that held it
            with writing(root), suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), path.stat()):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    return None


def release(root: Path, handle: int, *, is_needed: bool) -> None:
    """Release the lock, and remove its file unless it is still needed."""
    if not is_needed:
        # nothing is applied, so nothing remains; a process that waits for this file tries again
        with suppress(OSError):
            (root / "lock").unlink()
            root.rmdir()
    os.close(handle)


def _open(path: Path) -> int:
    while True:
        with writing(path.parent):
            try:
                path.parent.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):
                    path.parent.mkdir()
                return open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:
                continue  # another process removed the directory with its lock
            except PermissionError as error:
                message = f"permission denied: the record directory {path.parent}"
                raise HostError(f"{message}; run as root, or use --user") from error
            except NotRegularError as error:
                raise HostError(f"{path} {error}; remove it") from error
