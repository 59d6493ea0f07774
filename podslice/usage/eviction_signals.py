"""Observe eviction signals, and the usage of each pod by which eviction ranks them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from podslice.kernel.cgroup import CgroupFs, Sample
from podslice.kernel.host import (
    Availability,
    inodes_availability,
    memory_availability,
    nodefs_availability,
    pids_availability,
    read_meminfo,
)
from podslice.model.node import Allocation
from podslice.model.resources import MEMORY
from podslice.policy.eviction.thresholds import PodUsage, SignalObservation


def observe_signals(
    root: Path,
    cgroups: CgroupFs,
    allocation: Allocation,
    pods_group: str,
    tier_groups: Mapping[str, str] | None = None,
) -> dict[str, SignalObservation]:
    """Observe the eviction signals; those that can't be observed are omitted.

    podslice has no images, so imagefs and containerfs are not observed.

    Args:
        root: the host.
        cgroups: its control groups.
        allocation: the memory that is allocated to pods.
        pods_group: the control group of all pods; empty where it does not exist.
        tier_groups: the control groups of tiers, by their signals.

    Source: Kubernetes, pkg/kubelet/eviction/helpers.go, makeSignalObservations; for tiers Linux,
    admin-guide/cgroup-v2.rst, memory.max.
    """
    readers: dict[str, Callable[[], Availability]] = {
        "memory.available": lambda: memory_availability(read_meminfo(root)),
        "allocatableMemory.available": lambda: _pods_availability(cgroups, allocation, pods_group),
        "nodefs.available": lambda: nodefs_availability(root),
        "nodefs.inodesFree": lambda: inodes_availability(root),
        "pid.available": lambda: pids_availability(root),
    }
    for signal, group in (tier_groups or {}).items():
        readers[signal] = partial(_tier_availability, cgroups, group)
    found = {}
    for signal, read in readers.items():
        with contextlib.suppress(OSError, ValueError, LookupError):
            left = read()
            # a file system without a fixed number of inodes does not run out of them
            if left.capacity:
                found[signal] = SignalObservation(
                    available=left.available * 1000, capacity=left.capacity * 1000
                )
    return found


def _pods_availability(cgroups: CgroupFs, allocation: Allocation, pods_group: str) -> Availability:
    """Return the memory left to the pods.

    The capacity is the enforced limit, not Allocatable, which already excludes the threshold.

    Raises:
        LookupError: their usage or their limit is not known.
    """
    used = cgroups.working_set_bytes(pods_group) if pods_group else None
    if used is None:
        raise LookupError(pods_group)
    capacity = allocation.enforced[MEMORY] // 1000
    return Availability(available=max(capacity - used, 0), capacity=capacity)


def _tier_availability(cgroups: CgroupFs, group: str) -> Availability:
    """Return the memory left to a tier of its limit.

    Raises:
        LookupError: its usage is not known, or it has no limit.
    """
    used, limit = cgroups.working_set_bytes(group), cgroups.memory_limit_bytes(group)
    if used is None or limit is None:
        raise LookupError(group)
    return Availability(available=max(limit - used, 0), capacity=limit)


def pod_usage(sample: Sample, nodefs_device: str) -> PodUsage:
    """Return the usage of a pod, as far as the kernel counts it.

    The owners of files on a disk are not known. The bytes that a pod has written since it was
    started stand in for its usage of storage and inodes, so that pods that write rank first.

    Args:
        sample: the sample of the pod's slice.
        nodefs_device: the disk (see `host.nodefs_device`); empty: all disks count.
    """
    written = sample.written_bytes
    bytes_ = written.get(nodefs_device, 0) if nodefs_device else sum(written.values())
    return PodUsage(
        memory=(sample.working_set_bytes or 0) * 1000,
        storage=bytes_ * 1000,
        inodes=bytes_ * 1000,
        pids=(sample.tasks or 0) * 1000,
    )
