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
from podslice.policy.eviction import PodUsage, SignalObservation


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

    def pods_availability() -> Availability:
        used = cgroups.working_set_bytes(pods_group) if pods_group else None
        # the enforced limit, not Allocatable, which already excludes the threshold
        return _below(allocation.enforced[MEMORY] // 1000, used)

    def tier_availability(group: str) -> Availability:
        return _below(cgroups.memory_limit_bytes(group), cgroups.working_set_bytes(group))

    readers: dict[str, Callable[[], Availability]] = {
        "memory.available": lambda: memory_availability(read_meminfo(root)),
        "allocatableMemory.available": pods_availability,
        "nodefs.available": lambda: nodefs_availability(root),
        "nodefs.inodesFree": lambda: inodes_availability(root),
        "pid.available": lambda: pids_availability(root),
    }
    for signal, group in (tier_groups or {}).items():
        readers[signal] = partial(tier_availability, group)
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


def _below(limit: int | None, used: int | None) -> Availability:
    """Return the memory left below a limit.

    Raises:
        LookupError: there is no limit, or the usage is not known.
    """
    if limit is None or used is None:
        raise LookupError
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
