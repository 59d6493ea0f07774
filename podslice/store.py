"""The pods that have been applied: one record each below /run, and the lock of all writers.

Systemd holds the slices; what it can't hold is the manifest, which the sums of the tiers need.
Records end with the boot, as transient units do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from podslice.errors import HostError
from podslice.model.pod import Pod

VERSION = 1
LOCK_WAIT_SEC = 120.0
_LOCK_POLL_SEC = 0.02
_LOCK_TRIES = 10


class Store:
    """Records below one directory, `/run/podslice` for the system's manager.

    All pods of a host lie below one control group; each record says which, so that nobody loses
    sight of pods by stating another one.
    """

    def __init__(self, root: Path, *, cgroup_root: str = "/") -> None:
        self.root = root
        self._cgroup_root = cgroup_root
        self._pods = root / "pods"

    def load(self) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
        """The recorded pods by key, and the names of files that hold none.

        Raises:
            HostError: the records can't be read, or are of pods below another `cgroup_root`.
        """
        paths = sorted(self._paths())
        if not paths:
            return (), ()
        # pydantic takes a third of the start-up time; with nothing applied it is not needed
        from podslice.inputs.manifests import parse_manifest  # noqa: PLC0415

        pods, broken = [], []
        for path in paths:
            try:
                record = json.loads(path.read_bytes())
                pod = parse_manifest(record["manifest"], where=f"record of {path.stem}")
                below = record.get("cgroup_root", "/")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _failed(error, path) from error
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                broken.append(str(path))
                continue
            if below != self._cgroup_root:
                raise HostError(
                    f"pod {pod.key} was applied below {below!r}, not {self._cgroup_root!r}; keep"
                    f" to --cgroup-root {below}, or delete all pods with it first"
                )
            pods.append(pod)
        return tuple(sorted(pods, key=lambda pod: pod.key)), tuple(broken)

    def save(self, pod: Pod) -> None:
        """Write the record of a pod, whole or not at all.

        Raises:
            HostError: the directory can't be written.
        """
        from podslice.inputs.manifests import format_manifest  # noqa: PLC0415

        record = {
            "version": VERSION,
            "cgroup_root": self._cgroup_root,
            "manifest": format_manifest(pod),
        }
        text = json.dumps(record, indent=1)
        path = self._pods / f"{pod.uid}.json"
        new = path.with_suffix(".new")
        with self._writing():
            self._pods.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                if path.read_text() == text:
                    return
            new.write_text(text)
            new.replace(path)

    def remove(self, uid: str) -> None:
        """Remove the record of a pod; none is no error."""
        with self._writing():
            (self._pods / f"{uid}.json").unlink(missing_ok=True)

    def discard(self, path: str) -> None:
        """Remove a file that holds no record, as `load` named it."""
        with self._writing():
            Path(path).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what writing left behind, and without any record the directory of records."""
        for path in self._pods.glob("*.new") if self._pods.is_dir() else ():
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._pods.rmdir()

    @contextlib.contextmanager
    def lock(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of all writers; it ends with the process, however that ends.

        Raises:
            HostError: another process holds it for longer than `LOCK_WAIT_SEC`.
        """
        path = self.root / "lock"
        handle = self._take_lock(path, on_wait)
        try:
            yield
        finally:
            if not self._pods.exists():
                # nothing is applied, so nothing shall stay; who waits for this file tries anew
                with contextlib.suppress(OSError):
                    path.unlink()
                    self.root.rmdir()
            os.close(handle)

    def _take_lock(self, path: Path, on_wait: Callable[[], None]) -> int:
        deadline = time.monotonic() + LOCK_WAIT_SEC
        while True:
            with self._writing():
                self.root.parent.mkdir(parents=True, exist_ok=True)
                try:
                    with contextlib.suppress(FileExistsError):
                        self.root.mkdir()
                    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                except FileNotFoundError:
                    continue  # the directory went away with another's lock
            try:
                if _flock(handle, deadline) and _is_file(handle, path):
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
            on_wait()
            on_wait = _silently

    def _paths(self) -> list[Path]:
        try:
            return list(self._pods.glob("*.json"))
        except PermissionError as error:
            raise _failed(error, self._pods) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _failed(error, self.root) from error


def _failed(error: OSError, path: Path) -> HostError:
    hint = "; run as root, or use --user" if isinstance(error, PermissionError) else ""
    return HostError(f"{error.filename or path}: {error.strerror}{hint}")


def _silently() -> None:
    """The second time nobody needs to be told."""


def _is_file(handle: int, path: Path) -> bool:
    """Whether the open file is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _flock(handle: int, deadline: float) -> bool:
    """Try for a moment to lock a file.

    Raises:
        HostError: it is past the deadline.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_POLL_SEC)
        else:
            return True
    if time.monotonic() > deadline:
        raise HostError(
            f"another podslice has held the lock for {LOCK_WAIT_SEC:.0f} s; see who runs it:"
            " fuser -v /run/podslice/lock"
        )
    return False
