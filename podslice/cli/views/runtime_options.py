"""Options that make podman, docker, systemd and OCI runtimes start containers in a pod."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.naming import CONTAINER_LABEL, POD_LABEL, SCOPE_PREFIX
from podslice.model.properties import (
    ALLOWED_CPUS,
    ALLOWED_MEMORY_NODES,
    CPU_QUOTA,
    CPU_QUOTA_PERIOD,
    MEMORY_LOW,
    MEMORY_MAX,
    MEMORY_SWAP_MAX,
    OOM_SCORE_ADJ,
    PROPERTIES,
    QUOTA_PERIOD_USEC,
    RuntimeOption,
)
from podslice.model.unit import INFINITY, SYSTEM, Manager


class Form(StrEnum):
    """The program that the options are for."""

    NAME = "name"
    PODMAN = "podman"
    PODMAN_POD = "podman-pod"
    DOCKER = "docker"
    COMPOSE = "compose"
    SYSTEMD = "systemd"
    QUADLET = "quadlet"
    OCI = "oci"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The pod that a container is started in; with `container`, as that one and with its limits."""

    pod: PodDecision
    container: ContainerDecision | None = None
    manager: Manager = SYSTEM
    exists: bool = True
    """Whether the slice exists."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels by which `status` finds a container that is outside its pod."""
        labels = {POD_LABEL: self.pod.pod.key}
        return {**labels, CONTAINER_LABEL: self.container.name} if self.container else labels

    @cached_property
    def properties(self) -> Mapping[str, int | str]:
        """The container's properties by name."""
        properties = self.container.properties if self.container else ()
        return {each.name: each.value for each in properties if each.value != INFINITY}

    @cached_property
    def limits(self) -> Mapping[str, int]:
        """Those of the properties that are numbers."""
        return {name: value for name, value in self.properties.items() if isinstance(value, int)}

    @property
    def quota(self) -> tuple[int, int] | None:
        """Quota and period in µs, as runtimes take them.

        Runtimes convert both to systemd's quota per second, rounded up to whole percents; rounding
        down here yields the same value.

        Source: opencontainers/cgroups, systemd/common.go, addCPUQuota; crun 1.21,
        src/libcrun/cgroup-systemd.c, append_resources.
        """
        per_sec_usec = self.limits.get(CPU_QUOTA)
        if per_sec_usec is None:
            return None
        period_usec = self.limits.get(CPU_QUOTA_PERIOD, QUOTA_PERIOD_USEC)
        return per_sec_usec * period_usec // 1_000_000, period_usec


def podman_options(parent: Parent) -> list[str]:
    """Return options of `podman run` and `podman create`, also for members of podman pods.

    A podman pod does not accept a slice with a dash in its name: podman looks for the pod's control
    group directly below the root, and fails to create it. So the slice is set on each member.

    Source: podman 5.4, libpod/util_linux.go, assembleSystemdCgroupName.
    """
    options = docker_options(parent)
    for row in PROPERTIES.values():
        is_option = row.name == MEMORY_SWAP_MAX and MEMORY_MAX in parent.limits
        if row.runtime.is_file and row.name in parent.limits and not is_option:
            options.append(f"--cgroup-conf={row.kernel_file}={parent.limits[row.name]}")
    return options


def podman_pod_options(parent: Parent) -> list[str]:
    """Return options of `podman pod create`: a label, by which members are found."""
    return ["--label", f"{POD_LABEL}={parent.pod.pod.key}"]


def docker_options(parent: Parent) -> list[str]:
    """Return options of `docker run` and `docker create`, which podman shares."""
    options = [f"--cgroup-parent={parent.pod.slice}"]
    for name, text in parent.labels.items():
        options += ["--label", f"{name}={text}"]
    options += [f"{option.docker}={value}" for option, value in _limits(parent)]
    return options


def _limits(parent: Parent) -> Iterator[tuple[RuntimeOption, int | str]]:
    """Yield the limits as options of docker and their values.

    Only limits that result in the same unit property; docker has no option for CPUWeight, MemoryMin
    and MemoryHigh, and none for MemorySwapMax without MemoryMax: its swap includes the memory. Swap
    is unlimited explicitly, as runtimes would otherwise limit it.

    Source: opencontainers/cgroups, utils.go, ConvertMemorySwapToCgroupV2Value.
    """
    found: dict[str, int | str] = {}
    if quota := parent.quota:
        found[CPU_QUOTA_PERIOD], found[CPU_QUOTA] = quota[1], quota[0]
    if MEMORY_MAX in parent.limits:
        memory, swap = parent.limits[MEMORY_MAX], parent.limits.get(MEMORY_SWAP_MAX)
        found[MEMORY_MAX] = memory
        found[MEMORY_SWAP_MAX] = -1 if swap is None else memory + swap
    score = {OOM_SCORE_ADJ: parent.container.oom_score_adj} if parent.container else {}
    stated = {**parent.properties, **score}
    others = (MEMORY_LOW, ALLOWED_CPUS, OOM_SCORE_ADJ, ALLOWED_MEMORY_NODES)
    found |= {name: stated[name] for name in others if name in stated}
    for name, value in found.items():
        yield PROPERTIES[name].runtime, value


def _compose(parent: Parent) -> Iterator[str]:
    """Yield keys of a service in a compose file."""
    yield f"cgroup_parent: {json.dumps(parent.pod.slice)}"
    yield "labels:"
    for name, text in parent.labels.items():
        yield f"  {name}: {json.dumps(text)}"
    for option, value in _limits(parent):
        if option.compose:
            yield f"{option.compose}: {json.dumps(value)}"


def _systemd(parent: Parent) -> Iterator[str]:
    """Yield a drop-in for a service, with comments on how it is written, and for a command."""
    flag = parent.manager.flag
    named = f" -c {parent.container.name}" if parent.container else ""
    yield f"# for a service: podslice adopt{flag} {parent.pod.pod.key}{named} NAME.service"
    yield f"# for a command: {systemd_run(parent)} COMMAND"
    yield from drop_in(parent)


def appliers(manager: Manager) -> tuple[str, ...]:
    """Return the services that make the slices of pods at boot, first the one to start for that."""
    at_boot = () if manager.is_user else ("podslice-apply.service",)
    return (*at_boot, "podslice-agent.service")


def drop_in(parent: Parent) -> Iterator[str]:
    """Yield the drop-in of a service that is to start in the pod, once its slice has its limits."""
    before = appliers(parent.manager)
    mounts = () if parent.manager.is_user else (each.unit for each in parent.pod.volumes)
    yield "[Unit]"
    yield f"Wants={before[0]}"
    yield f"After={' '.join((*before, *mounts))}"
    yield ""
    yield "[Service]"
    yield f"Slice={parent.pod.slice}"
    yield from _service_properties(parent)


def systemd_run(parent: Parent) -> str:
    """Return the start of the command that starts another one in the pod."""
    options = "".join(f" --property={shlex.quote(each)}" for each in _service_properties(parent))
    return f"systemd-run{parent.manager.flag} --slice={parent.pod.slice}{options}"


def _service_properties(parent: Parent) -> list[str]:
    properties = _unit_properties(parent)
    if parent.container:
        properties.append(f"OOMScoreAdjust={parent.container.oom_score_adj}")
    return properties


def _quadlet(parent: Parent) -> Iterator[str]:
    """Yield sections of a .container file.

    Podman runs it with --cgroups=split, below the control group of its service; so the service must
    be in the slice. podman then refuses a --cgroup-parent.

    Source: podman 5.4, pkg/systemd/quadlet/quadlet.go, ConvertContainer; libpod/
    container_validate.go.
    """
    yield "[Container]"
    for name, text in parent.labels.items():
        yield f"Label={name}={text}"
    if parent.container:
        yield f"PodmanArgs=--oom-score-adj={parent.container.oom_score_adj}"
    yield ""
    yield "[Service]"
    yield f"Slice={parent.pod.slice}"
    yield from _unit_properties(parent)


def _unit_properties(parent: Parent) -> list[str]:
    return [
        f"{PROPERTIES[name].key}={text}"
        for name, value in parent.properties.items()
        for text in PROPERTIES[name].texts(value)
    ]


def _oci(parent: Parent) -> Iterator[str]:
    """Yield the required part of config.json for runc or crun with --systemd-cgroup.

    Their scope gets the name and the properties of the container's own scope, and replaces it.
    Properties are annotations, since resources would result in others: with a quota, crun also sets
    the period. CPUs are a resource, which both convert to AllowedCPUs, as NUMA nodes to
    AllowedMemoryNodes. Without a container there is no scope.

    Source: runc, docs/systemd.md, "Auxiliary properties"; crun 1.21,
    src/libcrun/cgroup-systemd.c, SYSTEMD_PROPERTY_PREFIX.
    """
    if parent.container is None:
        return
    name = parent.container.scope.removeprefix(f"{SCOPE_PREFIX}-").removesuffix(".scope")
    grace_usec = parent.pod.pod.grace_period_sec * 1_000_000
    properties = {
        **{of: f"uint64 {value}" for of, value in parent.limits.items()},
        "CollectMode": "'inactive-or-failed'",
        "TimeoutStopUSec": f"uint64 {grace_usec}",
    }
    places = {"cpus": ALLOWED_CPUS, "mems": ALLOWED_MEMORY_NODES}
    stated = parent.properties
    cpu = {name: stated[place] for name, place in places.items() if place in stated}
    resources = {"resources": {"cpu": cpu}} if cpu else {}
    config = {
        "process": {"oomScoreAdj": parent.container.oom_score_adj},
        "annotations": {f"org.systemd.property.{of}": text for of, text in properties.items()},
        "linux": {"cgroupsPath": f"{parent.pod.slice}:{SCOPE_PREFIX}:{name}", **resources},
    }
    yield json.dumps(config, indent=2)


FORMATTERS: Mapping[Form, Callable[[Parent], Iterable[str]]] = {
    Form.NAME: lambda parent: [parent.pod.slice],
    Form.PODMAN: lambda parent: [shlex.join(podman_options(parent))],
    Form.PODMAN_POD: lambda parent: [shlex.join(podman_pod_options(parent))],
    Form.DOCKER: lambda parent: [shlex.join(docker_options(parent))],
    Form.COMPOSE: _compose,
    Form.SYSTEMD: _systemd,
    Form.QUADLET: _quadlet,
    Form.OCI: _oci,
}
"""Yield the lines for each form but JSON."""
