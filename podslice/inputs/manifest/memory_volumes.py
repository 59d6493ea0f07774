"""`spec.volumes` of a pod → its volumes in memory. Of other volumes only the names are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podslice.errors import quote
from podslice.inputs.manifest.names import check_label
from podslice.inputs.manifest.problems import Problems
from podslice.inputs.manifest.schema import EmptyDirFields, VolumeFields
from podslice.inputs.readers import nearest
from podslice.model.pod import MemoryVolume

_MEMORY = "Memory"
_HUGEPAGES = "HugePages"
"""`HugePages`, or `HugePages-2Mi` and the like."""


def read_volumes(
    entries: Sequence[VolumeFields | None], raw: Sequence[Any], problems: Problems, path: str
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
                problems.error(where, "must be a mapping, not null")
            continue
        name = _read_name(entry, raw[index], problems, where)
        if name and first.setdefault(name, where) != where:
            message = f"the name {quote(name)} is already used by {first[name]}"
            problems.error(f"{where}.name", message, "choose another name")
        if entry.empty_dir is not None:
            in_memory = _is_in_memory(entry.empty_dir, problems, f"{where}.emptyDir")
            size = _read_size(entry.empty_dir, raw[index]["emptyDir"], problems, where)
            if name and in_memory:
                volumes.append(MemoryVolume(name=name, size_bytes=size, where=where))
    return tuple(volumes)


def _read_name(
    entry: VolumeFields, raw: Mapping[str, Any], problems: Problems, path: str
) -> str | None:
    """Return the volume's name if it is valid: it becomes part of a path."""
    if entry.name is None:
        if raw.get("name") is None:
            problems.error(f"{path}.name", "a volume needs a name")
        return None
    problem = check_label(entry.name, "volume")
    problems.add(f"{path}.name", problem)
    return None if problem else entry.name


def _is_in_memory(entry: EmptyDirFields, problems: Problems, path: str) -> bool:
    """Return whether it is a file system in memory; an unknown medium is an error.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, SetUpAt, "unknown storage medium".
    """
    medium = entry.medium or ""
    if medium.partition("-")[0] == _HUGEPAGES:
        message = "huge page volumes are not supported; the volume is ignored"
        problems.warn(f"{path}.medium", message, "mount a hugetlbfs yourself")
    elif medium not in ("", _MEMORY):
        right = nearest(medium, {_MEMORY: None, _HUGEPAGES: None})
        hint = f"write {right}" if right else "write Memory, or leave it out for a disk"
        problems.error(f"{path}.medium", f"unknown medium {quote(medium)}", hint)
    return medium == _MEMORY


def _read_size(
    entry: EmptyDirFields, raw: Mapping[str, Any], problems: Problems, path: str
) -> int | None:
    """Return the size in whole bytes, rounded up."""
    milli = entry.size_limit
    if milli is None:
        return None
    if milli % 1000:
        at, text = f"{path}.emptyDir.sizeLimit", str(raw["sizeLimit"])
        message = f"{quote(text)} is not a whole number of bytes"
        if text.endswith("m"):
            problems.error(at, message, f"write {text[:-1]}Mi for mebibytes")
            return None
        problems.warn(at, message)
    return -(-milli // 1000)
