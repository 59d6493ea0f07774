"""The usage of the node, its slices, pods and containers, for `top`, metrics, the summary and eviction."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from podslice.errors import HostError
from podslice.kernel.cgroup import PRESSURES, CgroupFs, Pressure, Sample, parse_pressure
from podslice.kernel.host import (
    Availability,
    inodes_availability,
    memory_availability,
    nodefs_availability,
    pids_availability,
    read_meminfo,
)
from podslice.kernel.text import read_text, split_lines, split_words
from podslice.model.config import Config
from podslice.model.desired import PodDecision, VolumeDecision
from podslice.model.naming import TIERS, Tree, kube_reserved_slice, system_reserved_slice
from podslice.model.node import Allocation
from podslice.model.resources import MEMORY
from podslice.model.unit import Observed, UnitName, control_group_of
from podslice.policy.eviction import PodUsage, SignalObservation
from podslice.usage.location import PodService


class ContainerStats(NamedTuple):
    """A container with processes."""

    name: str
    unit: UnitName
    sample: Sample


class FileSystem(NamedTuple):
    """The space and the inodes of a file system."""

    capacity_bytes: int
    available_bytes: int
    used_bytes: int
    inodes: int
    inodes_free: int


class PodStats(NamedTuple):
    """An applied pod."""

    decision: PodDecision
    sample: Sample
    started_usec: int
    """The start of its slice since the epoch; 0 where it was not observed."""
    containers: tuple[ContainerStats, ...] = ()
    volumes: Mapping[str, FileSystem] = MappingProxyType({})
    """Volumes in memory, by name."""


class GroupStats(NamedTuple):
    """A slice outside the pods: the root, a tier or a reserved slice."""

    name: str
    """`pods` (the root), `burstable`, `besteffort`, `kubelet` (the agent), `runtime`
    (kube-reserved), `misc` (system-reserved): the kubelet's names where it has them.
    """
    unit: UnitName
    sample: Sample


class NodeStats(NamedTuple):
    """The node, at one time."""

    time_usec: int
    """Since the epoch."""
    uptime_usec: int
    """Since the boot; rates are computed from it."""
    boot_time_usec: int
    """Since the epoch."""
    sample: Sample
    """Of everything on the host."""
    memory: Availability
    """As in the eviction signal memory.available."""
    file_system: FileSystem
    pids_max: int
    pids: int
    groups: tuple[GroupStats, ...] = ()
    pods: tuple[PodStats, ...] = ()
    """By key."""


def read_stats(  # noqa: PLR0913 - what is measured, and where it is
    decisions: Iterable[PodDecision],
    observed: Observed,
    config: Config,
    *,
    cgroups: CgroupFs,
    root: Path = Path("/"),
    agent_group: str = "",
    services: Sequence[PodService] = (),
) -> NodeStats:
    """Read the present usage; pods and containers without control groups are omitted.

    Args:
        decisions: the applied pods (`Assessment.desired.pods`).
        observed: the units, for their control groups (`Assessment.observed`).
        config: the names of the root and the reserved slices.
        cgroups: the control groups of the host.
        root: the root directory of the host.
        agent_group: the control group of the agent; empty where it does not run.
        services: the adopted services of the pods.

    Raises:
        HostError: /proc can't be read or parsed.
    """
    try:
        meminfo = read_meminfo(root)
        memory, pids = memory_availability(meminfo), pids_availability(root)
        space, inodes = nodefs_availability(root), inodes_availability(root)
        tasks = pids.capacity - pids.available
        node = NodeStats(
            time_usec=time.time_ns() // 1000,
            uptime_usec=time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
            boot_time_usec=int(_fields(root / "proc/stat")["btime"]) * 1_000_000,
            sample=_host_sample(cgroups, root, meminfo, tasks=tasks),
            memory=memory,
            file_system=FileSystem(
                capacity_bytes=space.capacity,
                available_bytes=space.available,
                used_bytes=space.capacity - space.available,
                inodes=inodes.capacity,
                inodes_free=inodes.available,
            ),
            pids_max=pids.capacity,
            pids=tasks,
        )
    except (OSError, ValueError, LookupError) as error:
        raise HostError(f"the usage of this host can't be read: {error}") from error
    groups = tuple(_groups(observed, config, cgroups, agent_group))
    pods = (_pod(each, observed, cgroups, services) for each in decisions)
    there = sorted((pod for pod in pods if pod), key=lambda pod: pod.decision.pod.key)
    return node._replace(groups=groups, pods=tuple(there))


def _fields(path: Path) -> dict[str, str]:
    """Read a file whose lines begin with a name and a value."""
    lines = (split_words(line) for line in split_lines(read_text(path)))
    return {words[0]: words[1] for words in lines if len(words) > 1}


def _host_sample(
    cgroups: CgroupFs, root: Path, meminfo: Mapping[str, int], *, tasks: int
) -> Sample:
    """Sample the root group, and from /proc what control groups do not count for the host.

    Source: opencontainers/cgroups, fs2/memory.go, rootStatsFromMeminfo; proc_vmstat(5).
    """
    memory = memory_availability(meminfo)
    counts = _fields(root / "proc/vmstat")
    kills = counts.get("oom_kill")  # since Linux 4.13
    pressure: dict[str, Pressure] = {}
    for name in PRESSURES:
        with suppress(OSError):  # the kernel does not measure it
            pressure[name] = parse_pressure(read_text(root / "proc/pressure" / name))
    return replace(
        cgroups.sample("/"),
        memory_bytes=meminfo["MemTotal"] - meminfo["MemFree"],
        working_set_bytes=memory.capacity - memory.available,
        rss_bytes=meminfo["AnonPages"],
        swap_bytes=meminfo["SwapTotal"] - meminfo["SwapFree"],
        page_faults=int(counts["pgfault"]),
        major_page_faults=int(counts["pgmajfault"]),
        tasks=tasks,
        oom_kills=None if kills is None else int(kills),
        pressure=pressure,
    )


def _groups(
    observed: Observed, config: Config, cgroups: CgroupFs, agent_group: str
) -> Iterator[GroupStats]:
    tree = Tree(cgroup_root=config.cgroup_root)
    slices = {
        "pods": tree.root,
        **{TIERS[qos]: tree.tier(qos) for qos in TIERS},
        "kubelet": UnitName(PurePosixPath(agent_group).name),
        "runtime": kube_reserved_slice(config.kube_reserved_cgroup),
        "misc": system_reserved_slice(config.system_reserved_cgroup),
    }
    for name, unit in slices.items():
        if name == "kubelet":
            group = agent_group
        elif unit in observed.units:
            group = observed.units[unit].control_group
        else:
            # a user's manager has no slices outside its own
            group = "" if observed.caps.manager.is_user else control_group_of(unit)
        if group and cgroups.exists(group):
            yield GroupStats(name=name, unit=unit, sample=cgroups.sample(group))


def _pod(
    decision: PodDecision, observed: Observed, cgroups: CgroupFs, services: Iterable[PodService]
) -> PodStats | None:
    slice_ = observed.units.get(decision.slice)
    if slice_ is None or not slice_.control_group or not cgroups.exists(slice_.control_group):
        return None
    units = [
        (container.name, observed.units[name])
        for container in decision.scopes
        for name in container.units
        if name in observed.units
    ]
    units += [
        (each.container, each.unit)
        for each in services
        if each.pod == decision.pod.key
        # A service that runs elsewhere until its next start is not a part of the pod's usage.
        and each.unit.control_group.startswith(f"{slice_.control_group}/")
    ]
    return PodStats(
        decision=decision,
        sample=cgroups.sample(slice_.control_group),
        started_usec=slice_.started_usec,
        containers=tuple(
            ContainerStats(name=name, unit=unit.name, sample=cgroups.sample(unit.control_group))
            for name, unit in units
            if unit.control_group and cgroups.exists(unit.control_group)
        ),
        volumes=dict(_volumes(decision.volumes, observed)),
    )


def _volumes(
    volumes: Iterable[VolumeDecision], observed: Observed
) -> Iterator[tuple[str, FileSystem]]:
    for volume in volumes:
        if volume.unit not in observed.units or not os.path.ismount(volume.path):
            continue
        with suppress(OSError):
            stat = os.statvfs(volume.path)
            yield (
                volume.name,
                FileSystem(
                    capacity_bytes=stat.f_blocks * stat.f_frsize,
                    available_bytes=stat.f_bavail * stat.f_frsize,
                    used_bytes=(stat.f_blocks - stat.f_bfree) * stat.f_frsize,
                    inodes=stat.f_files,
                    inodes_free=stat.f_ffree,
                ),
            )


# Eviction.


def observe_signals(
    root: Path,
    cgroups: CgroupFs,
    allocation: Allocation,
    pods_group: str,
    tier_groups: Mapping[str, str] = MappingProxyType({}),
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

    def below(limit: int | None, group: str) -> Availability:
        """Return the memory left below a limit; raise `LookupError` where it is not known."""
        used = cgroups.working_set_bytes(group) if group else None
        if limit is None or used is None:
            raise LookupError
        return Availability(available=max(limit - used, 0), capacity=limit)

    def tier_availability(group: str) -> Availability:
        return below(cgroups.memory_limit_bytes(group), group)

    readers: dict[str, Callable[[], Availability]] = {
        "memory.available": lambda: memory_availability(read_meminfo(root)),
        # the enforced limit, not Allocatable, which already excludes the threshold
        "allocatableMemory.available": lambda: below(
            allocation.enforced[MEMORY] // 1000, pods_group
        ),
        "nodefs.available": lambda: nodefs_availability(root),
        "nodefs.inodesFree": lambda: inodes_availability(root),
        "pid.available": lambda: pids_availability(root),
    }
    for signal, group in tier_groups.items():
        readers[signal] = partial(tier_availability, group)
    found = {}
    for signal, read in readers.items():
        with suppress(OSError, ValueError, LookupError):
            left = read()
            # a file system without a fixed number of inodes does not run out of them
            if left.capacity:
                found[signal] = SignalObservation(
                    available=left.available * 1000, capacity=left.capacity * 1000
                )
    return found


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
