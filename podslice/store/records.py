"""Records of applied pods, read again only after a change."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from podslice.errors import FORMAT_ERRORS
from podslice.inputs.manifest.load import format_manifest, parse_manifest
from podslice.model.node_state import Eviction
from podslice.model.pod import NO_PROGRESS, InitProgress, Pod
from podslice.store.atomic import Stamp, failed, parse_json, stamp

VERSION = 1


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


class Record(NamedTuple):
    """The record of one pod."""

    pod: Pod
    digest: str
    cgroup_root: str
    progress: InitProgress
    source: str | None


class RecordReader:
    """Reads records, and caches them until they change."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Stamp, Record | None]] = {}
        self.expected: Mapping[str, Pod] = {}
        """Pods by uid; a record with the manifest of one of them is not parsed."""

    def read(self, files: Iterable[os.DirEntry[str]]) -> Mapping[str, Record | None]:
        """Return the record of each existing file by its path; None where it is not valid.

        Raises:
            HostError: a file can't be read.
        """
        found: dict[str, tuple[Stamp, Record | None]] = {}
        for file in files:
            read = self._read_file(file)
            if read is not None:
                found[file.path] = read
        self._read = found
        return self.known()

    def known(self) -> Mapping[str, Record | None]:
        """Return what was read last, with what was written since."""
        return {path: record for path, (_, record) in list(self._read.items())}

    def remember(self, path: Path, pod: Pod, record: Mapping[str, Any]) -> None:
        """Cache a record that was just written, as `format_record` formats it.

        Raises:
            OSError: it was removed.
        """
        known = _record_of(pod, record, record["manifest"])
        self._read[str(path)] = stamp(path.stat()), known

    def _read_file(self, file: os.DirEntry[str]) -> tuple[Stamp, Record | None] | None:
        try:
            now = stamp(file.stat(follow_symlinks=False))
            known = self._read.get(file.path)
            if known and known[0] == now:
                return known
            path = Path(file.path)
            return now, parse(path, self.expected.get(path.stem))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failed(error, Path(file.path)) from error


def parse(path: Path, expected: Pod | None = None) -> Record | None:
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


def _record_of(pod: Pod, record: Mapping[str, Any], manifest: Mapping[str, Any]) -> Record:
    """Return a record; `manifest` is the one that the pod is formatted as."""
    source, cgroup_root = record.get("source"), record.get("cgroup_root", "/")
    if not isinstance(cgroup_root, str):
        raise TypeError(cgroup_root)
    stated, progress = record.get("progress"), NO_PROGRESS
    if stated:
        done = frozenset(map(str, stated.get("done", ())))
        progress = InitProgress(done=done, over=stated.get("over") is True)
    return Record(
        pod=pod,
        digest=_digest(manifest),
        cgroup_root=cgroup_root,
        progress=progress,
        source=source if isinstance(source, str) else None,
    )


def format_record(pod: Pod, *, cgroup_root: str, source: str | None) -> dict[str, Any]:
    """Format the record of a pod as JSON."""
    record = {"version": VERSION, "cgroup_root": cgroup_root, "manifest": format_manifest(pod)}
    return record if source is None else {**record, "source": source}


def digest(pod: Pod) -> str:
    """Return the digest of a pod's manifest, independent of its spelling."""
    return _digest(format_manifest(pod))


def _digest(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
