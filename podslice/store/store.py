"""Everything below one directory: records, marks, the agent's published state and the lock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from podslice.errors import HostError
from podslice.model.container_exit import ContainerHistory
from podslice.model.desired import ReservedValues
from podslice.model.node_state import AgentState, Eviction, ManualChange
from podslice.model.pod import NO_PROGRESS, InitProgress, Pod
from podslice.store import histories, lock, marks
from podslice.store.atomic import (
    Stamp,
    directory_stamp,
    entries,
    failed,
    read_json,
    remove,
    scan,
    unlink_link,
    write_json,
    writing,
)
from podslice.store.records import VERSION, Record, RecordReader, Records, digest, format_record


class Store:
    """Records below one directory, `/run/podslice` for the system's manager.

    All pods of a host are below one control group, which each record states, so that another
    `cgroup-root` is refused instead of losing pods.
    """

    def __init__(self, root: Path, *, cgroup_root: str = "/") -> None:
        self.root = root
        self._cgroup_root = cgroup_root
        self._pods = root / "pods"
        self.marks = root / "evicted"
        """The directory of marks of evicted pods; it exists while there is one."""
        self._containers = root / "containers"
        self._agent = root / "agent.json"
        self._options = root / "configuration.json"
        self.reserved_path = root / "reserved.json"
        """The record of values outside the root; it exists while there is one."""
        self.manual_changes = ManualChanges(root / "changes")
        self._reader = RecordReader()
        """The last records without marks and invalid files, and what followed from them."""
        self._is_held = False
        self._is_current = False
        """Whether all changes of records since the last reading are known: while the lock is held,
        only this store changes them."""
        self._changes = 0
        """The number of times that a reading under way may have missed something."""
        self._scanned: Stamp | None = None  # the stamp of the records' directory when it was read

    def expect(self, pods: Iterable[Pod]) -> None:
        """Have the next reading not parse records of equal pods, which a manifest is read from."""
        self._reader.expected = {pod.uid: pod for pod in pods}

    def load(self) -> Records:
        """Return all records and marks, and the names of files that are not valid.

        A record that has not changed since this store read it last is not read again.

        Raises:
            HostError: the records can't be read, or are of pods below another `cgroup_root`.
        """
        found = self._find_records()
        marked = {file.path: self._mark(Path(file.path)) for file in _files(self.marks)}
        return self._combine(found, marked)

    def _find_records(self) -> Mapping[str, Record | None]:
        """Read the records; while the lock is held, once; and only if one was written or removed."""
        now = None if self._is_current else directory_stamp(self._pods)
        if self._is_current or (now is not None and now == self._scanned):
            return self._reader.known()
        before, self._scanned = self._changes, None
        found = self._reader.read(_files(self._pods))
        if self._changes == before:
            self._is_current, self._scanned = self._is_held, now
        return found

    def verify(self) -> None:
        """Have the next reading find records that were edited in place, too."""
        self._scanned = None

    def _note_change(self) -> None:
        """Have the next call read the records again."""
        self._is_current = False
        self._changes += 1

    def _combine(
        self, found: Mapping[str, Record | None], marked: Mapping[str, Eviction | None]
    ) -> Records:
        records = sorted(filter(None, found.values()), key=lambda record: record.pod.key)
        for record in records:
            if (below := record.cgroup_root) != self._cgroup_root:
                raise HostError(
                    f"pod {record.pod.key} was applied below {below!r}, not {self._cgroup_root!r};"
                    f" use --cgroup-root {below}, or first delete all pods with it"
                )
        evicted = sorted(filter(None, marked.values()), key=lambda mark: mark.pod)
        return Records(
            pods=tuple(record.pod for record in records),
            broken=tuple(
                path
                for path, held in {**found, **marked}.items()
                if held is None and os.path.lexists(path)
            ),
            progress={
                each.pod.uid: each.progress for each in records if each.progress != NO_PROGRESS
            },
            sources={each.pod.uid: each.source for each in records if each.source is not None},
            digests={each.pod.uid: each.digest for each in records},
            evicted=tuple(evicted),
        )

    @staticmethod
    def digest(pod: Pod) -> str:
        """Return the digest of a pod's manifest, independent of its spelling."""
        return digest(pod)

    def save(self, pod: Pod, source: str | None = None) -> None:
        """Write the record of a pod atomically; its progress is kept.

        Args:
            pod: which.
            source: its file in a manifest directory; None where it was applied by hand.

        Raises:
            HostError: the directory can't be written.
        """
        path = self._record(pod.uid)
        record = format_record(pod, cgroup_root=self._cgroup_root, source=source)
        with writing(self.root):
            before = read_json(path)
            if "progress" in before:
                record["progress"] = before["progress"]
            if record != before:
                is_current = self._is_current
                self._note_change()
                write_json(path, record)
                self._reader.remember(path, pod, record)
                self._is_current = is_current

    def save_progress(self, uid: str, progress: InitProgress) -> None:
        """Write the progress of the init containers of a recorded pod.

        Raises:
            HostError: the pod has no record, or it can't be written.
        """
        path = self._record(uid)
        with writing(self.root):
            record = read_json(path)
            if not record:
                raise HostError(f"{path}: the pod has no record")
            stated = {"done": sorted(progress.done), "over": progress.over}
            if record.get("progress") != stated:
                self._note_change()
                write_json(path, {**record, "progress": stated})

    def remove(self, uid: str) -> None:
        """Remove the record of a pod and the histories of its containers, if there are any."""
        self.discard(str(self._record(uid)))
        with writing(self.root):
            histories.discard(self._containers / uid)

    def discard(self, path: str) -> None:
        """Remove a file that is not valid, as named by `load`."""
        self._note_change()
        with writing(self.root):
            remove(Path(path))

    def _record(self, uid: str) -> Path:
        return self._pods / f"{uid}.json"

    def histories(self, uid: str) -> dict[str, ContainerHistory]:
        """Return the histories of a pod's containers by name."""
        return histories.read(self._containers / uid)

    def end_path(self, uid: str, container: str, started_usec: int) -> Path:
        """Return the file for the end of a container that is about to be started.

        Raises:
            HostError: its directory can't be created.
        """
        directory = self._containers / uid
        with writing(self.root):
            directory.mkdir(parents=True, exist_ok=True)
        return histories.end_path(directory, container, started_usec)

    def save_start(self, uid: str, container: str, started_usec: int) -> None:
        """Record the start of a container. The caller holds the lock.

        Raises:
            HostError: it can't be written.
        """
        with writing(self.root):
            histories.save_start(self._containers / uid, container, started_usec)

    def mark_evicted(self, mark: Eviction) -> None:
        """Mark a pod as evicted, so that it is not admitted.

        Raises:
            HostError: the mark can't be written.
        """
        with writing(self.root):
            write_json(self.marks / f"{mark.uid}.json", asdict(mark))

    def unmark(self, uid: str) -> None:
        """Remove the mark of an evicted pod, if there is one."""
        self.discard(str(self.marks / f"{uid}.json"))
        with suppress(OSError):
            self.marks.rmdir()

    def _mark(self, path: Path) -> Eviction | None:
        try:
            return marks.read(Eviction, read_json(path))
        except OSError as error:
            raise failed(error, path) from error

    def save_agent(self, state: AgentState) -> None:
        """Publish the state of an agent.

        Raises:
            HostError: it can't be written.
        """
        with writing(self.root):
            write_json(self._agent, asdict(state))

    def agent(self) -> AgentState | None:
        """Return the state that an agent published, whether it still runs or not."""
        with suppress(OSError):
            return marks.read(AgentState, read_json(self._agent))
        return None

    def drop_agent(self) -> None:
        """Remove the published state of an agent."""
        self.discard(str(self._agent))

    def save_reserved(self, reserved: ReservedValues) -> None:
        """Record the values that podslice set outside its root; without any, remove the file.

        Raises:
            HostError: it can't be written.
        """
        if not reserved:
            self.discard(str(self.reserved_path))
        elif reserved != self.reserved():
            with writing(self.root):
                write_json(self.reserved_path, asdict(reserved))

    def reserved(self) -> ReservedValues | None:
        """Return the recorded values outside the root; None where the file is damaged."""
        with suppress(OSError):
            if not os.path.lexists(self.reserved_path):
                return ReservedValues()
            return marks.read_reserved(read_json(self.reserved_path))
        return None

    def save_options(self, options: Mapping[str, object]) -> None:
        """Save the options of valid configuration files while there are pods.

        Raises:
            HostError: they can't be written.
        """
        content = {"version": VERSION, "options": dict(options)}
        with writing(self.root):
            if read_json(self._options) != content:
                write_json(self._options, content)

    def options(self) -> Mapping[str, object] | None:
        """Return the options of the configuration files when they were last valid."""
        with suppress(OSError):
            found = read_json(self._options).get("options")
            return found if isinstance(found, dict) else None
        return None

    def volume_path(self, uid: str, name: str) -> Path:
        """Return the path of a pod's volume in memory."""
        return self._volumes(uid) / name

    def make_volume(self, uid: str, name: str) -> Path:
        """Create a plain directory instead of a volume, where mounting is not permitted.

        Raises:
            HostError: it can't be created.
        """
        path = self.volume_path(uid, name)
        with writing(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700, exist_ok=True)
        return path

    def discard_volumes(self, uid: str) -> tuple[str, ...]:
        """Remove the directories of a pod's volumes; return those that could not be removed.

        A directory that is a mount or contains one is kept.
        """
        volumes = self._volumes(uid)
        pod = volumes.parent
        paths = [] if pod.is_symlink() else entries(volumes)
        left = tuple(str(path) for path in paths if not _remove(path))
        _remove_empty(pod)
        return left

    def _volumes(self, uid: str) -> Path:
        return self._pods / uid / "volumes"

    def tidy(self) -> None:
        """Remove remains of interrupted writes, and empty directories; follow no link."""
        for file in (*scan(self._pods), *scan(self.marks)):
            if file.name.endswith(".new"):
                with suppress(OSError):
                    Path(file.path).unlink()
            elif not (file.name.endswith(".json") or self._record(file.name).exists()):
                _remove_empty(Path(file.path))
        for directory in entries(self._containers):
            if not self._record(directory.name).exists():
                with suppress(OSError):
                    histories.discard(directory)
        for directory in (self._pods, self.marks, self._containers):
            with suppress(OSError):
                directory.rmdir()
        if not self._pods.exists():
            with suppress(OSError):
                self._options.unlink()

    @contextmanager
    def lock(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of all writers; the kernel releases it when the process exits.

        Raises:
            HostError: another process has held it for too long.
        """
        with self._held(lock.take(self.root, on_wait)):
            yield

    def try_lock(self) -> AbstractContextManager[None] | None:
        """Acquire the lock and return it; None where another process holds it.

        Raises:
            HostError: its file can't be created.
        """
        handle = lock.try_take(self.root)
        return None if handle is None else self._held(handle)

    @contextmanager
    def _held(self, handle: int) -> Iterator[None]:
        self._note_change()
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self._note_change()
            lock.release(
                self.root, handle, is_needed=self._pods.exists() or self.reserved_path.exists()
            )


def _files(directory: Path) -> list[os.DirEntry[str]]:
    """Return the files of records or marks by name; as entries, which is faster than as paths."""
    try:
        with os.scandir(directory) as found:
            files = (file for file in found if file.name.endswith(".json"))
            return sorted(files, key=lambda file: file.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise failed(error, directory) from error


class ManualChanges:
    """A file for each process of podslice."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, change: ManualChange) -> None:
        """Write the record of a change.

        Raises:
            HostError: it can't be written.
        """
        with writing(self.directory):
            write_json(self._path(change), asdict(change))

    def load(self) -> tuple[ManualChange, ...]:
        """Return the recorded changes; damaged records are removed."""
        found = []
        for path in entries(self.directory):
            if path.suffix != ".json":
                continue  # it is being written
            with suppress(OSError):
                change = marks.read(ManualChange, read_json(path))
                if change is None:
                    path.unlink(missing_ok=True)
                else:
                    found.append(change)
        return tuple(found)

    def drop(self, change: ManualChange) -> None:
        """Remove a record, if there is one.

        Raises:
            HostError: it can't be removed.
        """
        with writing(self.directory):
            remove(self._path(change))
        with suppress(OSError):
            self.directory.rmdir()

    def _path(self, change: ManualChange) -> Path:
        return self.directory / f"{change.pid}-{change.started_ticks}.json"


def _remove_empty(directory: Path) -> None:
    """Remove the directories of a pod that are empty and not mounts; of a link, only the link."""
    volumes = directory / "volumes"
    with suppress(OSError):
        if unlink_link(directory):
            return
        unlink_link(volumes)
    for path in (*entries(volumes), volumes, directory):
        with suppress(OSError):
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
