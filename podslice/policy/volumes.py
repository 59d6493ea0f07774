"""Volumes in memory: their sizes, paths and mounts."""

from __future__ import annotations

from podslice.model.desired import VolumeDecision
from podslice.model.naming import volume_path
from podslice.model.pod import MemoryVolume, Pod
from podslice.model.properties import MEMORY_MAX
from podslice.model.quantity import format_bytes
from podslice.model.unit import PropertyValue, Value, limit_of, mount_name


def decide_volume(
    pod: Pod,
    volume: MemoryVolume,
    properties: tuple[PropertyValue, ...],
    allocatable_bytes: int | None,
) -> VolumeDecision:
    """Decide one volume; `properties` are those of the pod's slice.

    Its size is the least of its own limit, the pod's memory limit and the node's allocatable
    memory; zero counts as not stated.

    Raises:
        ValueError: the name of its unit would be invalid.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, calculateEmptyDirMemorySize.
    """
    path = volume_path(pod.uid, volume.name)
    limit = limit_of(properties, MEMORY_MAX)
    bounds = {
        "sizeLimit": volume.size_bytes,
        "the pod's memory limit": limit,
        "allocatable memory": allocatable_bytes,
    }
    stated = {name: size for name, size in bounds.items() if size}
    return VolumeDecision(
        name=volume.name,
        unit=mount_name(path),
        path=path,
        size_bytes=min(stated.values(), default=None),
        why=_why(stated),
    )


def _why(stated: dict[str, int]) -> str:
    """Describe the size: `the least of sizeLimit 64Mi and allocatable memory 8Gi`."""
    *others, last = [f"{name} {format_bytes(size)}" for name, size in stated.items()] or [
        "the kernel's default: half of the memory"
    ]
    return f"the least of {', '.join(others)} and {last}" if others else last


def unmounted(volume: VolumeDecision) -> VolumeDecision:
    """Return the volume as a plain directory, since a user manager can't mount."""
    path = f"$XDG_RUNTIME_DIR{volume.path.removeprefix('/run')}"
    why = "a plain directory without a size limit: a user manager can't mount"
    return volume._replace(path=path, size_bytes=None, why=why)


def mount_structure(volume: VolumeDecision) -> dict[str, Value]:
    """Return the properties with which the mount of a volume is started.

    Every process of the pod may write to it, as in Kubernetes, but only remove files of its own
    user, since other users of the host can reach the directory as well.

    Source: Kubernetes, pkg/volume/emptydir/empty_dir.go, setupTmpfs and stickyBitMode.
    """
    size = [] if volume.size_bytes is None else [f"size={volume.size_bytes}"]
    return {
        "What": "tmpfs",
        "Type": "tmpfs",
        "Options": ",".join(["mode=1777", "nosuid", "nodev", *size]),
        # a process with an open file in it does not prevent the pod from being deleted
        "LazyUnmount": True,
    }
