"""`spec.volumes` of a pod → the volumes in memory; the others are checked for their names only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podslice.inputs.fields import EMPTY_DIR, VOLUME, nearest
from podslice.inputs.manifest.names import check_label
from podslice.inputs.manifest.problems import Notes
from podslice.inputs.manifest.schema import EmptyDirFields, VolumeFields
from podslice.inputs.scalars import shown
from podslice.model.pod import MemoryVolume

_MEMORY = "Memory"
_HUGEPAGES = "HugePages"
"""`HugePages`, or `HugePages-2Mi` and the like."""


def read_volumes(
    entries: Sequence[VolumeFields | None], raw: Sequence[Any], notes: Notes, path: str
) -> tuple[MemoryVolume, ...]:
    """Read the volumes of a pod.

    Source: Kubernetes, pkg/apis/core/validation/validation.go, ValidateVolumes.
    """
    volumes = []
    first: dict[str, str] = {}
    for index, entry in enumerate(entries):
        where = f"{path}[{index}]"
        if entry is None:
            if raw[index] is None:
                notes.error(where, "has to be a mapping, is empty")
            continue
        notes.slips(VOLUME, raw[index], where)
        name = _read_name(entry, raw[index], notes, where)
        if name and first.setdefault(name, where) != where:
            message = f"the name {shown(name)} is the one of {first[name]} already"
            notes.error(f"{where}.name", message, "give it another")
        if entry.empty_dir is not None:
            notes.slips(EMPTY_DIR, raw[index]["emptyDir"], f"{where}.emptyDir")
            in_memory = _is_in_memory(entry.empty_dir, notes, f"{where}.emptyDir")
            size = _read_size(entry.empty_dir, raw[index]["emptyDir"], notes, where)
            if name and in_memory:
                volumes.append(MemoryVolume(name=name, size_bytes=size, where=where))
    return tuple(volumes)


def _read_name(entry: VolumeFields, raw: Mapping[str, Any], notes: Notes, path: str) -> str | None:
    """Its name, where it is a possible one: it becomes part of a path."""
    if entry.name is None:
        if raw.get("name") is None:
            notes.error(f"{path}.name", "a volume needs a name")
        return None
    mistake = check_label(entry.name, "volume")
    notes.mistake(f"{path}.name", mistake)
    return None if mistake else entry.name


def _is_in_memory(entry: EmptyDirFields, notes: Notes, path: str) -> bool:
    """Whether it is a file system in memory; a medium that nobody knows is an error.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, SetUpAt, "unknown storage medium".
    """
    medium = entry.medium or ""
    if medium.partition("-")[0] == _HUGEPAGES:
        message = "volumes of huge pages are not made here, so it was passed over"
        notes.warn(f"{path}.medium", message, "mount a hugetlbfs of your own")
    elif medium not in ("", _MEMORY):
        right = nearest(medium, {_MEMORY: None, _HUGEPAGES: None})
        hint = f"write {right}" if right else "write Memory, or leave it out for a disk"
        notes.error(f"{path}.medium", f"{shown(medium)} is no medium that there is", hint)
    return medium == _MEMORY


def _read_size(
    entry: EmptyDirFields, raw: Mapping[str, Any], notes: Notes, path: str
) -> int | None:
    """Its size in whole bytes, rounded up."""
    milli = entry.size_limit
    if milli is None:
        return None
    if milli % 1000:
        at, text = f"{path}.emptyDir.sizeLimit", str(raw["sizeLimit"])
        hint = f"write {text[:-1]}Mi if that is meant" if text.endswith("m") else ""
        notes.warn(at, f"{shown(text)} is no whole number of bytes", hint)
    return -(-milli // 1000)
