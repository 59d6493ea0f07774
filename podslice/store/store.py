"""Records of applied pods and other state that outlives a process: files below /run.

systemd keeps the slices, but not the manifests, which the sums of the tiers require. Like transient
units, everything is lost at the next boot.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from podslice.errors import FORMAT_ERRORS, HostError
from podslice.inputs.manifest.load import format_manifest, parse_manifest
from podslice.model.desired import ReservedValues
from podslice.model.node_state import AgentState, Eviction, ManualChange
from podslice.model.pod import NO_PROGRESS, InitProgress, Pod
from podslice.model.properties import PROPERTIES
from podslice.store.files import (
    Stamp,
    ValueFile,
    directory_stamp,
    entries,
    failed,
    parse_json,
    read_json,
    read_value,
    release_lock,
    remove,
    scan,
    stamp,
    take_lock,
    try_lock,
    unlink_link,
    write_json,
    writing,
)
from podslice.store.histories import Histories

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The content of all records and marks."""

    pods: tuple[Pod, ...] = ()
    """By key."""
    broken: tuple[str, ...] = ()
    """Files that are not valid records."""
    progress: Mapping[str, InitProgress] = field(default_factory=dict)
    """The progress of init containers by the uids of their pods, where there is any."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The manifest files of pods by their uids, where an agent read them from a directory."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """The digests of the manifests, by the pods' uids."""
    evicted: tuple[Eviction, ...] = ()
    """The marks of evicted pods, by key."""


class _Record(NamedTuple):
    """The record of one pod."""

    pod: Pod
    digest: str
    cgroup_root: str
    progress: InitProgress
    source: str | None


class Store:
    """Records below one directory, `/run/podslice` for the system's manager.

    All pods of a host are below one control group, which each record states, so that another
    `cgroup-root` is refused instead of losing pods. What writes raises HostError if the file system
    refuses, as without permission or on a full disk.
    """

    def __init__(self, root: Path, *, cgroup_root: str = "/") -> None:
        self.root = root
        self._cgroup_root = cgroup_root
        self._pods = root / "pods"
        self.marks = root / "evicted"
        """The directory of marks of evicted pods; it exists while there is one."""
        self.histories = Histories(root / "containers")
        self.agent = ValueFile(root / "agent.json", AgentState)
        """The state that an agent has published, whether it still runs or not."""
        self._options = ValueFile(root / "configuration.json", dict[str, object])
        self.reserved_path = root / "reserved.json"
        """The record of values outside the root; it exists while there is one."""
        self._reserved = ValueFile(self.reserved_path, ReservedValues)
        self.manual_changes = ManualChanges(root / "changes")
        # the records as they were read or written last, by path; None for one that is not valid
        self._read: dict[str, tuple[Stamp, _Record | None]] = {}
        self._expected: Mapping[str, Pod] = {}
        self._scanned: Stamp | None = None  # the stamp of their directory before they were read

    def expect(self, pods: Iterable[Pod]) -> None:
        """Have records with the manifests of these pods not be parsed."""
        self._expected = {pod.uid: pod for pod in pods}

    def load(self) -> Records:
        """Return all records and marks, and the names of files that are not valid.

        A record that has not changed since this store read it last is not read again.

        Raises:
            HostError: the records can't be read, or are of pods below another `cgroup_root`.
        """
        if (now := directory_stamp(self._pods)) is None or now != self._scanned:
            read = {file.path: self._read_record(file) for file in _files(self._pods)}
            # another thread may save a record meanwhile, which is then read again
            self._read = {path: found for path, found in read.items() if found is not None}
            # The stamp is from before the reading: a change meanwhile results in another reading.
            self._scanned = now
        found = {path: record for path, (_, record) in self._read.items()}
        marked = {file.path: _read_mark(Path(file.path)) for file in _files(self.marks)}
        records = sorted(filter(None, found.values()), key=lambda record: record.pod.key)
        for record in records:
            if (below := record.cgroup_root) != self._cgroup_root:
                raise HostError(
                    f"pod {record.pod.key} was applied below {below!r}, not {self._cgroup_root!r};"
                    f" use --set cgroup-root={below}, or first delete all pods with it"
                )
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
            evicted=tuple(sorted(filter(None, marked.values()), key=lambda mark: mark.pod)),
        )

    def verify(self) -> None:
        """Have the next reading find records that were edited in place, too."""
        self._scanned = None

    def _read_record(self, file: os.DirEntry[str]) -> tuple[Stamp, _Record | None] | None:
        """Return a record with its stamp; None if it does not exist."""
        try:
            now = stamp(file.stat(follow_symlinks=False))
            known = self._read.get(file.path)
            if known and known[0] == now:
                return known
            path = Path(file.path)
            return now, _parse(path, self._expected.get(path.stem))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failed(error, Path(file.path)) from error

    @staticmethod
    def digest(pod: Pod) -> str:
        """Return the digest of a pod's manifest, independent of its spelling."""
        return _digest(format_manifest(pod))

    def save(self, pod: Pod, source: str | None = None) -> None:
        """Write the record of a pod atomically; its progress is kept.

        Args:
            pod: which.
            source: its file in a manifest directory; None where it was applied by hand.
        """
        path, manifest = self._record(pod.uid), format_manifest(pod)
        record = {"version": _VERSION, "cgroup_root": self._cgroup_root, "manifest": manifest}
        if source is not None:
            record["source"] = source
        with writing(self.root):
            before = read_json(path)
            if "progress" in before:
                record["progress"] = before["progress"]
            if record != before:
                write_json(path, record)
                self._read[str(path)] = stamp(path.stat()), _record_of(pod, record, manifest)

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
                write_json(path, {**record, "progress": stated})

    def remove(self, uid: str) -> None:
        """Remove the record of a pod and the histories of its containers, if there are any."""
        # The record first: after an interruption `tidy` removes histories without one.
        self.discard(str(self._record(uid)))
        self.histories.discard(uid)

    def discard(self, path: str) -> None:
        """Remove a file that is not valid, as named by `load`."""
        with writing(self.root):
            remove(Path(path))

    def _record(self, uid: str) -> Path:
        return self._pods / f"{uid}.json"

    def mark_evicted(self, mark: Eviction) -> None:
        """Mark a pod as evicted, so that it is not admitted."""
        with writing(self.root):
            write_json(self.marks / f"{mark.uid}.json", mark)

    def unmark(self, uid: str) -> None:
        """Remove the mark of an evicted pod, if there is one."""
        self.discard(str(self.marks / f"{uid}.json"))
        with suppress(OSError):
            self.marks.rmdir()

    def save_reserved(self, reserved: ReservedValues) -> None:
        """Record the values that podslice set outside its root; without any, remove the file."""
        self._reserved.save(reserved)

    def reserved(self) -> ReservedValues | None:
        """Return the recorded values outside the root; None where the file is damaged."""
        if not os.path.lexists(self.reserved_path):
            return ReservedValues()
        found = self._reserved.read()
        values = found.units.values() if found else ()
        is_valid = all(
            each.keys() <= PROPERTIES.keys() and all(value.ours for value in each.values())
            for each in values
        )
        return found if is_valid else None

    def save_options(self, options: Mapping[str, object]) -> None:
        """Save the options of valid configuration files while there are pods."""
        self._options.save({"version": _VERSION, "options": dict(options)})

    def options(self) -> Mapping[str, object] | None:
        """Return the options of the configuration files when they were last valid."""
        found = (self._options.read() or {}).get("options")
        return found if isinstance(found, dict) else None

    def volume_path(self, uid: str, name: str) -> Path:
        """Return the path of a pod's volume in memory."""
        return self._volumes(uid) / name

    def make_volume(self, uid: str, name: str) -> Path:
        """Create a plain directory instead of a volume, where mounting is not permitted."""
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
        # A link in the place of the directory must not lead to files elsewhere.
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
            # What is neither are the directories of pods, with their volumes.
            elif not (file.name.endswith(".json") or self._record(file.name).exists()):
                _remove_empty(Path(file.path))
        for directory in entries(self.histories.root):
            if not self._record(directory.name).exists():
                with suppress(HostError):
                    self.histories.discard(directory.name)
        for directory in (self._pods, self.marks, self.histories.root):
            with suppress(OSError):
                directory.rmdir()
        if not self._pods.exists():
            with suppress(OSError):
                self._options.path.unlink()

    @contextmanager
    def lock(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the lock of all writers; the kernel releases it when the process exits.

        Raises:
            HostError: another process has held it for too long.
        """
        with self._held(take_lock(self.root, on_wait)):
            yield

    def try_lock(self) -> AbstractContextManager[None] | None:
        """Acquire the lock and return it; None where another process holds it."""
        handle = try_lock(self.root)
        return None if handle is None else self._held(handle)

    @contextmanager
    def _held(self, handle: int) -> Iterator[None]:
        try:
            yield
        finally:
            is_needed = self._pods.exists() or self.reserved_path.exists()
            release_lock(self.root, handle, is_needed=is_needed)


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
    """A file for each process of podslice. What writes raises HostError if the file system refuses."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, change: ManualChange) -> None:
        """Write the record of a change."""
        with writing(self.directory):
            write_json(self._path(change), change)

    def load(self) -> tuple[ManualChange, ...]:
        """Return the recorded changes; damaged records are removed."""
        found = []
        for path in entries(self.directory):
            if path.suffix != ".json":
                continue  # it is being written
            with suppress(OSError):
                change = read_value(ManualChange, path)
                if change is None:
                    path.unlink(missing_ok=True)
                else:
                    found.append(change)
        return tuple(found)

    def drop(self, change: ManualChange) -> None:
        """Remove a record, if there is one."""
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
        # Removing the tree would remove the content of what is mounted in it.
        elif any(os.path.ismount(directory) for directory, _, _ in os.walk(path)):
            return False
        else:
            shutil.rmtree(path)
    except (OSError, RecursionError):
        return False
    return True


def _read_mark(path: Path) -> Eviction | None:
    """Return the mark of an evicted pod; None where it is damaged.

    Raises:
        HostError: it can't be read.
    """
    try:
        return read_value(Eviction, path)
    except OSError as error:
        raise failed(error, path) from error


def _parse(path: Path, expected: Pod | None) -> _Record | None:
    """Parse a record; return None where the file is not valid.

    With the manifest of the expected pod it has an equal pod, in a fifth of the time.

    Raises:
        OSError: it can't be read.
    """
    try:
        record, where = parse_json(path), f"record of {path.stem}"
        # problems of a manifest are found again, at their places in the record
        if expected is not None and not expected.problems:
            manifest = format_manifest(expected)
            if record["manifest"] == manifest:
                same = replace(expected, where=where, spec_where="spec")
                return _record_of(same, record, manifest)
        pod = parse_manifest(record["manifest"], where=where)
        return _record_of(pod, record, format_manifest(pod))
    except FORMAT_ERRORS:
        return None


def _record_of(pod: Pod, record: Mapping[str, Any], manifest: Mapping[str, Any]) -> _Record:
    """Return a record; `manifest` is the one that the pod is formatted as."""
    source, cgroup_root = record.get("source"), record.get("cgroup_root", "/")
    if not isinstance(cgroup_root, str):
        raise TypeError(cgroup_root)
    stated, progress = record.get("progress"), NO_PROGRESS
    if stated:
        done = frozenset(map(str, stated.get("done", ())))
        progress = InitProgress(done=done, over=stated.get("over") is True)
    return _Record(
        pod=pod,
        digest=_digest(manifest),
        cgroup_root=cgroup_root,
        progress=progress,
        source=source if isinstance(source, str) else None,
    )


def _digest(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
