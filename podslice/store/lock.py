"""The lock of all writers: one file, which goes when nothing else is left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from podslice.errors import HostError
from podslice.files import NotRegularError, open_regular
from podslice.store.atomic import writing

WAIT_SEC = 120.0
_POLL_SEC = 0.02
_TRIES = 10


def take(root: Path, on_wait: Callable[[], None]) -> int:
    """Hold the lock below a directory; it ends with the process, however that ends.

    Raises:
        HostError: another process holds it for longer than `WAIT_SEC`.
    """
    deadline = time.monotonic() + WAIT_SEC
    while (handle := try_take(root, tries=_TRIES)) is None:
        if time.monotonic() > deadline:
            raise held_for(WAIT_SEC, root)
        on_wait()
        on_wait = _silently
    return handle


def held_for(seconds: float, root: Path) -> HostError:
    """What to tell who has waited for so long."""
    return HostError(
        f"another podslice has held the lock for {seconds:.0f} s; see who runs it:"
        f" fuser -v {root}/lock"
    )


def try_take(root: Path, *, tries: int = 1) -> int | None:
    """Hold the lock, or None where another process keeps it for so many tries."""
    path = root / "lock"
    for attempt in range(tries):
        if attempt:
            time.sleep(_POLL_SEC)
        handle = _open(path)
        try:
            with writing(root):
                if _is_locked(handle) and _is_file(handle, path):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
    return None


def give_back(root: Path, handle: int, *, is_needed: bool) -> None:
    """Let go of the lock, and of its file, unless something is there that others may change."""
    if not is_needed:
        # nothing is applied, so nothing shall stay; who waits for this file tries anew
        with contextlib.suppress(OSError):
            (root / "lock").unlink()
            root.rmdir()
    os.close(handle)


def _open(path: Path) -> int:
    while True:
        with writing(path.parent):
            path.parent.parent.mkdir(parents=True, exist_ok=True)
            try:
                with contextlib.suppress(FileExistsError):
                    path.parent.mkdir()
                return open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:
                continue  # the directory went away with another's lock
            except NotRegularError as error:
                raise HostError(f"{path} {error}; remove it") from error


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(handle: int, path: Path) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _silently() -> None:
    """The second time nobody needs to be told."""
