"""Workloads: the fields of pods on which their resources do not depend.

`model.pod.Pod` has the others. Policy needs none of these; `quadlet` turns them into units. Default
values are those of Kubernetes.

Source: Kubernetes v1.36, staging/src/k8s.io/api/core/v1/types.go and
pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeGuard

from podslice.model.pod import ContainerKind

SECCOMP_ROOT = "/var/lib/kubelet/seccomp"
"""Where a profile of type Localhost is, as for `podman kube play`.

Source: podman-kube-play(1), --seccomp-profile-root; Kubernetes, "Seccomp and Kubernetes".
"""


class Pull(StrEnum):
    """When an image is pulled: `imagePullPolicy`."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class Restart(StrEnum):
    """When containers are started again: `restartPolicy` of the container, or else of the pod."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class Protocol(StrEnum):
    """The protocol of a port."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable; `$(NAME)` in its value is not expanded yet."""

    name: str
    value: str = field(repr=False)
    is_literal: bool = False
    """Whether the value comes from a ConfigMap, a Secret or the pod: it is not expanded."""
    is_secret: bool = False


class Port(NamedTuple):
    """One port of a container."""

    container_port: int
    name: str = ""
    host_port: int | None = None
    host_ip: str = ""
    protocol: Protocol = Protocol.TCP


class VolumeMount(NamedTuple):
    """A volume in a container."""

    volume: str
    path: str
    read_only: bool = False
    sub_path: str = ""
    propagation: str = "None"
    """`None`, `HostToContainer` or `Bidirectional`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDir:
    """A directory that is as old as the pod: on disk, or in memory (a unit of podslice)."""

    name: str
    in_memory: bool = False
    limit_bytes: int | None = None
    """The size on disk at which the pod is evicted; None without a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPath:
    """A path of the host."""

    name: str
    path: str
    type: str = ""
    """`""`, `DirectoryOrCreate`, `Directory`, `FileOrCreate`, `File`, `Socket`, `CharDevice` or
    `BlockDevice`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A volume that outlives the pod: `persistentVolumeClaim`."""

    name: str
    claim: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of a ConfigMap or Secret."""

    path: str
    """Relative to the volume."""
    content: bytes = field(repr=False)
    mode: int = 0o644
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """A volume with the files of ConfigMaps and Secrets."""

    name: str
    files: tuple[DataFile, ...]


Volume = EmptyDir | HostPath | Claim | DataFiles


def is_in_memory(volume: Volume) -> bool:
    """Return whether a volume is an empty directory in memory."""
    return isinstance(volume, EmptyDir) and volume.in_memory


def is_podmans(volume: Volume | None) -> TypeGuard[Claim | EmptyDir]:
    """Return whether podman holds a volume."""
    return isinstance(volume, Claim | EmptyDir) and not is_in_memory(volume)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exec:
    """A command in the container."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpGet:
    """A request over HTTP; it succeeds with a status from 200 to 399."""

    port: int
    path: str = "/"
    scheme: str = "HTTP"
    host: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSocket:
    """A connection over TCP."""

    port: int
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grpc:
    """A request of gRPC's health protocol; it succeeds if the service is SERVING."""

    port: int
    service: str = ""
    """The server's own health if it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleep:
    """A pause: an action of a lifecycle only."""

    seconds: int


Action = Exec | HttpGet | TcpSocket | Grpc


class ProbeKind(StrEnum):
    """What a probe finds out."""

    STARTUP = "startup"
    LIVENESS = "liveness"
    READINESS = "readiness"


class Probe(NamedTuple):
    """One probe of a container, with its times."""

    action: Action
    initial_delay_sec: int = 0
    period_sec: int = 10
    timeout_sec: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Security(NamedTuple):
    """The security context of a container, with the pod's where it states nothing."""

    user: int | None = None
    group: int | None = None
    is_image_checked: bool = False
    """Whether the user of the image must not be root: `runAsNonRoot` without `runAsUser`."""
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    read_only_root: bool = False
    is_privileged: bool = False
    no_new_privileges: bool = False
    unmasked: bool = False
    """Whether the paths in /proc are visible: `procMount: Unmasked`."""
    seccomp: str | None = None
    """`unconfined`, or the path of a profile; None for that of the runtime."""
    apparmor: str | None = None
    """`unconfined`, or the name of a profile; None for that of the runtime."""
    selinux: Mapping[str, str] = {}
    """The stated parts of the SELinux context, such as `level`; the runtime chooses missing parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerWorkload:
    """The workload of one container."""

    name: str
    kind: ContainerKind
    image: str
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All fields of the manifest by their names there: one that is not converted is only here."""
    environment: tuple[Variable, ...] = ()
    """In the order in which they are defined; a later one of the same name is valid."""
    pull: Pull = Pull.IF_NOT_PRESENT
    ports: tuple[Port, ...] = ()
    mounts: tuple[VolumeMount, ...] = ()
    probes: Mapping[ProbeKind, Probe] = field(default_factory=dict)
    post_start: Exec | Sleep | None = None
    pre_stop: Exec | Sleep | None = None
    stop_signal: str = ""
    security: Security = field(default_factory=Security)
    restart: Restart = Restart.ALWAYS


class Dns(NamedTuple):
    """The resolver of a pod, in addition to the host's if `servers` is empty."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    """Names with their values, which may be empty."""


class PodNetwork(NamedTuple):
    """What a pod has in the network of its namespace."""

    aliases: tuple[str, ...] = ()
    published: tuple[Port, ...] = ()
    """Ports of the host that Services publish."""


class Job(NamedTuple):
    """How often and how long the pod of a Job or CronJob runs."""

    digest: str
    """What identifies the work: with another one, a Job that has ended runs again."""
    backoff_limit: int
    """How often it is tried again."""
    deadline_sec: int | None = None
    is_suspended: bool = False
    events: tuple[str, ...] | None = None
    """The schedule of a CronJob, as events of systemd's calendar; None for a Job."""
    policy: str = ""
    """`concurrencyPolicy`; empty if it is not stated."""
    is_made_up: bool = False
    """Whether a run that was missed starts later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorkload:
    """The workload of one pod."""

    containers: tuple[ContainerWorkload, ...]
    """Init containers and sidecars first, in the order in which they start."""
    volumes: tuple[Volume, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All fields of the manifest by their names there: one that is not converted is only here."""
    restart: Restart = Restart.ALWAYS
    job: Job | None = None
    dns: Dns = field(default_factory=Dns)
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Name → address: `hostAliases`."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[int, ...] = ()
    """`supplementalGroups` and `fsGroup`, of every container."""
    fs_group: int | None = None
    """The group of the volumes."""
    network: PodNetwork | None = None
    """None outside of the network of its namespace."""
