"""The names of the root, the tiers, the pods, their containers and volumes, and their descriptions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from podslice.model.pod import Pod, Qos
from podslice.model.unit import UnitName, mount_name, slice_name

_DEFAULT_NAMESPACE = "default"
_DEFAULT_CONTAINER = "main"
_LABEL_MAX = 63
"""Source: RFC 1123."""
ROOT_COMPONENT = "kubepods"
SCOPE_PREFIX = "podslice"
JOB_PREFIX = f"{SCOPE_PREFIX}-job-"
"""The begin of the services and timers of Jobs and CronJobs."""
OVERHEAD = "overhead"
"""The name of a pod's helpers, as if they were one of its containers."""
VOLUMES_ROOT = "/run/podslice/pods"
"""The directory of volumes in memory, which the system manager shares with the records."""
DATA = "volumes"
"""The directory of all pods' data, below that of podslice's own files.

No generator reads it: systemd and podman's generator take the names of files below their own
directories as those of units and drop-ins, and a manifest states the names of files in volumes.
"""
POD_LABEL = "io.podslice.pod"
"""The label of podman's and docker's containers with their pod, `namespace/name`."""
CONTAINER_LABEL = "io.podslice.container"
"""The label with the container of the pod."""
KUBE_RESERVED_SLICE = UnitName("podruntime.slice")
"""The slice of container runtimes and podslice, unless kube-reserved-cgroup names another one."""
SANDBOX_SLICE = UnitName("podsandbox.slice")
"""The slice of podman's own containers of pods, which hold their namespaces."""
SYSTEM_RESERVED_SLICE = UnitName("system.slice")
"""The slice of system daemons, unless system-reserved-cgroup names another one."""
USER_SLICE = UnitName("user.slice")
"""The slice of the sessions and service managers of users."""
HOST_SLICES = (SYSTEM_RESERVED_SLICE, USER_SLICE)
"""The slices of the host that `exclusive-for` keeps off the CPUs of pods."""
TIERS = {Qos.BURSTABLE: "burstable", Qos.BESTEFFORT: "besteffort"}
"""The tiers with a slice of their own; Guaranteed pods are children of the root."""


class Tree(NamedTuple):
    """The names of the units below one root.

    Source: Kubelet pod level resource management, "QoS level cgroups"; Node Allocatable Resources,
    "Recommended Cgroups Setup"; names of slices as Kubernetes' systemd driver makes them.
    """

    cgroup_root: str = "/"

    @property
    def _components(self) -> tuple[str, ...]:
        return (*cgroup_components(self.cgroup_root), ROOT_COMPONENT)

    @property
    def root(self) -> UnitName:
        """Return `kubepods.slice`, or the same below another slice."""
        return slice_name(self._components)

    def tier(self, qos: Qos) -> UnitName:
        """Return the slice that contains the pods of a class; for Guaranteed the root."""
        tier = TIERS.get(qos)
        return slice_name((*self._components, tier)) if tier else self.root

    def pod(self, uid: str, qos: Qos) -> UnitName:
        """Return the slice of a pod."""
        stem = self.tier(qos).removesuffix(".slice")
        return UnitName(f"{stem}-{_pod_component(uid)}.slice")

    def all_of(self, uid: str) -> tuple[UnitName, ...]:
        """Return the slices that the pod has in any class."""
        return tuple(self.pod(uid, qos) for qos in Qos)

    def elsewhere(self, uid: str, qos: Qos) -> tuple[UnitName, ...]:
        """Return the slices that the pod would have in the other classes."""
        return tuple(self.pod(uid, other) for other in Qos if other is not qos)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return globs for every unit that may be podslice's."""
        stem = self.root.removesuffix(".slice")
        return (
            self.root,
            f"{stem}-*.slice",
            f"{SCOPE_PREFIX}-pod*.scope",
            f"{SCOPE_PREFIX}-pod*.service",
            f"{mount_name(VOLUMES_ROOT).removesuffix('.mount')}-*.mount",
        )


def scope_name(uid: str, container: str) -> UnitName:
    """Return the scope of one container of a pod."""
    return UnitName(f"{SCOPE_PREFIX}-{_pod_component(uid)}-{container}.scope")


def volume_path(uid: str, volume: str) -> str:
    """Return the mount point of a pod's volume in memory."""
    return f"{VOLUMES_ROOT}/{uid}/volumes/{volume}"


def podman_pod(key: str) -> str:
    """Return the name of podman's pod for `namespace/name`: files and services begin with it.

    Pods and containers of podman have their names in one space. No name of Kubernetes has an
    underscore: `NAME`, `NAMESPACE__NAME` and, of a container, `POD_CONTAINER` are never equal.
    """
    namespace, _, name = key.partition("/")
    return name if namespace == _DEFAULT_NAMESPACE else f"{namespace}__{name}"


def podman_part(pod: str, name: str) -> str:
    """Return the name of a container or volume in podman's pod, with which its file begins."""
    return f"{pod}_{name}"


def podman_network(namespace: str) -> str:
    """Return the name of podman's network for the pods of a namespace."""
    return f"{SCOPE_PREFIX}-{namespace}"


def is_reserved(key: str) -> bool:
    """Return whether the service of podman's pod could have the name of another unit of podslice."""
    return podman_pod(key).startswith((f"{SCOPE_PREFIX}-pod", JOB_PREFIX))


def data_directory(pod: str) -> str:
    """Return the directory of the data of a pod, `namespace/name`; its path is below that of podslice's own files."""
    return f"{DATA}/{pod.replace('/', '_')}"


def pod_of_data(name: str) -> str:
    """Return the pod of a directory in that of all pods' data: a namespace has no `_`."""
    return name.replace("_", "/", 1)


def podman_service(key: str) -> UnitName:
    """Return the service that podman's generator makes of a pod's quadlet.

    Source: podman-systemd.unit(5), "Pod units [Pod]".
    """
    return UnitName(f"{podman_pod(key)}-pod.service")


def service_name(scope: UnitName) -> UnitName:
    """Return the service with a scope's name: the unit of a container that systemd has started."""
    return UnitName(f"{scope.removesuffix('.scope')}.service")


def scope_of_service(name: UnitName) -> UnitName:
    """Return the scope with a service's name; other units are returned as they are."""
    stem = name.removesuffix(".service")
    return name if stem == name else UnitName(f"{stem}.scope")


def unescape(stem: str) -> str:
    r"""Return a unit's name without systemd's escapes: `dev\x2dx` → `dev-x`."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), stem)


def container_of(service: str) -> str:
    r"""Return the container that a service is: `foo@bar\x2dx.service` → `foo-bar-x`."""
    stem = unescape(service.removesuffix(".service")).lower()[:_LABEL_MAX]
    return re.sub(r"[^a-z0-9]", "-", stem).strip("-") or _DEFAULT_CONTAINER


@lru_cache(maxsize=16)  # every name of a slice begins with those of the root
def cgroup_components(path: str) -> tuple[str, ...]:
    """Return the components of an absolute control group, as the driver or the kernel writes it.

    `/custom/pods`, `/custom.slice/custom-pods.slice` → `("custom", "pods")`.

    Source: Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go, ParseSystemdToCgroupName.
    """
    last = path.rstrip("/").rpartition("/")[2]
    # Of slices in each other the name of the last one has the components of all.
    if last.endswith(".slice"):
        parts = last.removesuffix(".slice").split("-")
        return tuple(part.replace("_", "-") for part in parts)
    return tuple(part for part in path.split("/") if part)


def slice_of_cgroup(path: str) -> UnitName:
    """Return the slice of an absolute control group; see `cgroup_components`."""
    return slice_name(cgroup_components(path))


def kube_reserved_slice(cgroup: str) -> UnitName:
    """Return the slice of kube-reserved: that of the option's control group, or the usual one."""
    return slice_of_cgroup(cgroup) if cgroup else KUBE_RESERVED_SLICE


def system_reserved_slice(cgroup: str) -> UnitName:
    """Return the slice of system-reserved: that of the option's control group, or the usual one."""
    return slice_of_cgroup(cgroup) if cgroup else SYSTEM_RESERVED_SLICE


def _pod_component(uid: str) -> str:
    return "pod" + uid.replace("-", "_")


_NUMBER = re.compile(r"([0-9]+)")


NaturalKey = tuple[tuple[str | int, ...], str]


def natural_key(name: str) -> NaturalKey:
    """Return the key by which names are sorted: `shop-6` precedes `shop-54`.

    Names that differ only in leading zeros have a fixed order, too.
    """
    # texts and numbers alternate, so that only equal types are compared
    parts = enumerate(_NUMBER.split(name))
    return tuple(int(part) if index % 2 else part for index, part in parts), name


_POD = re.compile(r"Pod ([a-z0-9-]+/[a-z0-9.-]+) \((\w+)\)")
_PART = re.compile(r"(Container|Volume) ([a-z0-9.-]+) of pod ([a-z0-9-]+/[a-z0-9.-]+)")


class Description(NamedTuple):
    """A pod's slice with its class, or one container or volume of a pod.

    `systemctl status` shows the description of a unit, and podslice recovers a pod whose record is
    lost from it, so a change of the format needs a reader of the old one.
    """

    pod: str
    """`namespace/name`."""
    qos: Qos | None = None
    container: str | None = None
    volume: str | None = None


def describe_pod(pod: Pod, qos: Qos) -> str:
    """Return the description of a pod's slice: `Pod default/web (Burstable)`."""
    return f"Pod {pod.key} ({qos})"


def describe_container(pod: Pod, container: str) -> str:
    """Return the description of a container's scope or service: `Container app of pod default/web`."""
    return f"Container {container} of pod {pod.key}"


def describe_volume(pod: Pod, volume: str) -> str:
    """Return the description of a volume's mount: `Volume cache of pod default/web`."""
    return f"Volume {volume} of pod {pod.key}"


def parse_description(text: str) -> Description | None:
    """Return what a description names; None for any other text."""
    part = _PART.fullmatch(text)
    if part and part[1] == "Container":
        return Description(pod=part[3], container=part[2])
    if part:
        return Description(pod=part[3], volume=part[2])
    pod = _POD.fullmatch(text)
    if pod is None or pod[2] not in tuple(Qos):
        return None
    return Description(pod=pod[1], qos=Qos(pod[2]))
