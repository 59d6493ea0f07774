"""The pods that have been applied: one record each below /run, and the lock of all writers.

Systemd holds the slices; what it can't hold is the manifest, which the sums of the tiers need.
Records end with the boot, as transient units do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podslice.errors import HostError
from podslice.model.pod import InitProgress, Pod

VERSION = 1
LOCK_WAIT_SEC = 120.0
_LOCK_POLL_SEC = 0.02
_LOCK_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What the records say."""

    pods: tuple[Pod, ...] = ()
    """By key."""
    broken: tuple[str, ...] = ()
    """Files that hold no record."""
    progress: Mapping[str, InitProgress] = field(default_factory=dict)
    """How far the init containers have come, by the pod's uid, where they have come anywhere."""


class Store:
    """Records below one directory, `/run/podslice` for the system's manager.

    All pods of a host lie below one control group; each record says which, so that nobody loses
    sight of pods by stating another one.
    """

    def __init__(self, root: Path, *, cgroup_root: str = "/") -> None:
        self.root = root
        self._cgroup_root = cgroup_root
        self._pods = root / "pods"

    def load(self) -> Records:
        """Everything that is recorded, and the names of files that hold no record.

        Raises:
            HostError: the records can't be read, or are of pods below another `cgroup_root`.
        """
        paths = sorted(self._paths())
        if not paths:
            return Records()
        # pydantic takes a third of the start-up time; with nothing applied it is not needed
        from podslice.inputs.manifests import parse_manifest  # noqa: PLC0415

        pods, broken = [], []
        progress: dict[str, InitProgress] = {}
        for path in paths:
            try:
                record = json.loads(path.read_bytes())
                pod = parse_manifest(record["manifest"], where=f"record of {path.stem}")
                below = record.get("cgroup_root", "/")
                come = _read_progress(record)
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
            if come != InitProgress():
                progress[pod.uid] = come
        by_key = tuple(sorted(pods, key=lambda pod: pod.key))
        return Records(pods=by_key, broken=tuple(broken), progress=progress)

    def save(self, pod: Pod) -> None:
        """Write the record of a pod, whole or not at all; how far it has come is kept.

        Raises:
            HostError: the directory can't be written.
        """
        from podslice.inputs.manifests import format_manifest  # noqa: PLC0415

        record: dict[str, Any] = {
            "version": VERSION,
            "cgroup_root": self._cgroup_root,
            "manifest": format_manifest(pod),
        }
        with self._writing():
            self._pods.mkdir(parents=True, exist_ok=True)
            before = self._read(pod.uid)
            if "progress" in before:
                record["progress"] = before["progress"]
            if record != before:
                self._write(pod.uid, record)

    def save_progress(self, uid: str, progress: InitProgress) -> None:
        """Write how far the init containers of a recorded pod have come.

        Raises:
            HostError: the pod has no record, or it can't be written.
        """
        with self._writing():
            record = self._read(uid)
            if not record:
                raise HostError(f"{self._record(uid)}: there is no record of the pod")
            written = {"done": sorted(progress.done), "over": progress.over}
            if record.get("progress") != written:
                self._write(uid, {**record, "progress": written})

    def _record(self, uid: str) -> Path:
        return self._pods / f"{uid}.json"

    def _read(self, uid: str) -> dict[str, Any]:
        """A record as it is written; nothing where there is none, or none that can be read."""
        try:
            record = json.loads(self._record(uid).read_bytes())
        except (FileNotFoundError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}

    def _write(self, uid: str, record: dict[str, Any]) -> None:
        path = self._record(uid)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(record, indent=1))
        new.replace(path)

    def remove(self, uid: str) -> None:
        """Remove the record of a pod; none is no error."""
        with self._writing():
            self._record(uid).unlink(missing_ok=True)

    def discard(self, path: str) -> None:
        """Remove a file that holds no record, as `load` named it."""
        with self._writing():
            Path(path).unlink(missing_ok=True)

    def volume_path(self, uid: str, name: str) -> Path:
        """Where a pod's volume in memory is."""
        return self._volumes(uid) / name

    def make_volume(self, uid: str, name: str) -> Path:
        """Make a plain directory in the place of a volume, for who may not mount.

        Raises:
            HostError: it can't be made.
        """
        path = self.volume_path(uid, name)
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        return path

    def discard_volumes(self, uid: str) -> tuple[str, ...]:
        """Remove the directories of a pod's volumes; returns what could not be removed.

        Nothing goes that is a mount, or has one in it.
        """
        volumes = self._volumes(uid)
        left = [str(path) for path in _entries(volumes) if not _remove(path)]
        _remove_empty(volumes.parent)
        return tuple(left)

    def _volumes(self, uid: str) -> Path:
        return self._pods / uid / "volumes"

    def tidy(self) -> None:
        """Remove what writing left behind, and without any record the directory of records."""
        for path in _entries(self._pods):
            if path.suffix == ".new":
                path.unlink(missing_ok=True)
            elif path.is_dir() and not self._record(path.name).exists():
                _remove_empty(path)
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
        # not by glob(): to that a hidden directory is an empty one
        try:
            return [path for path in self._pods.iterdir() if path.suffix == ".json"]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
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


def _read_progress(record: Mapping[str, Any]) -> InitProgress:
    stated = record.get("progress") or {}
    return InitProgress(
        done=frozenset(map(str, stated.get("done", ()))), over=stated.get("over") is True
    )


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> bool:
    """Remove a directory with what is in it, or leave it where there is a mount."""
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


def _remove_empty(directory: Path) -> None:
    """Remove the directories of a pod as far as nothing is in them, nor mounted on them."""
    volumes = directory / "volumes"
    for path in (*_entries(volumes), volumes, directory):
        with contextlib.suppress(OSError):
            path.rmdir()


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
