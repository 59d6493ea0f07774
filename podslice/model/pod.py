"""Pods as values: the fields of a Pod on which its resources depend."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from podslice.errors import Problem, Severity
from podslice.model.properties import StatedProperties
from podslice.model.resources import Amounts, Resources

UID_MAX = 128
"""Characters of a pod's uid. With it, and a container's name, a unit's name has at most 255 bytes."""
_UID = re.compile(r"[A-Za-z0-9.:-]+")
# the uid names a directory, beside the records, `<uid>.json`
_FILE_NAME = re.compile(r"\.+|.*\.(?:json|new)")


class ContainerKind(StrEnum):
    """When a container runs: with the pod, before it, or both."""

    APP = "container"
    INIT = "init"
    SIDECAR = "sidecar"
    """An init container with `restartPolicy: Always`."""
    OVERHEAD = "overhead"
    """The pod's helpers, which run beside its containers; never one of `Pod.containers`."""


class Qos(StrEnum):
    """Quality of service classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BESTEFFORT = "BestEffort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container of a pod."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    resources: Resources = field(default_factory=Resources)
    properties: StatedProperties = field(default_factory=dict)
    """Those that annotations state."""
    where: str = field(default="", compare=False)
    """Its path in the document: `spec.containers[1]`, `items[3].spec.template.spec.containers[0]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVolume:
    """One volume in memory: `emptyDir: {medium: Memory, sizeLimit: …}`."""

    name: str
    size_bytes: int | None = None
    """Its `sizeLimit`; None where none is stated."""
    where: str = field(default="", compare=False)
    """Its path in the document: `spec.volumes[0]`."""


DEFAULT_GRACE_SEC = 30
"""Source: Kubernetes, staging/src/k8s.io/api/core/v1/types.go, DefaultTerminationGracePeriodSeconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod, as its manifest states it; only namespace and uid are defaulted."""

    name: str
    uid: str
    namespace: str = "default"
    containers: tuple[Container, ...] = ()
    """Containers and, in their order, init containers and sidecars; see their kind."""
    resources: Resources = field(default_factory=Resources)
    """The pod level: `spec.resources`."""
    has_empty_level: bool = False
    """Whether the pod level is stated, without a request or a limit."""
    overhead: Amounts = field(default_factory=dict)
    priority: int = 0
    grace_period_sec: int = DEFAULT_GRACE_SEC
    """The time its processes have to exit: `terminationGracePeriodSeconds`."""
    volumes: tuple[MemoryVolume, ...] = ()
    """Its volumes in memory; podslice ignores other volumes."""
    properties: StatedProperties = field(default_factory=dict)
    """Those that annotations state."""
    where: str = field(default="", compare=False)
    """The location of the manifest: the file, with the document's number if there are several.

    The full address of anything in the pod is `f"{pod.where}: {path}"`.
    """
    spec_where: str = field(default="spec", compare=False)
    """The path of its spec in the document: `spec`, `items[3].spec.template.spec`."""
    problems: tuple[Problem, ...] = ()
    """Problems of the manifest; a pod with an error is never applied."""
    key: str = field(init=False, compare=False, repr=False)
    """`namespace/name`."""

    def __post_init__(self) -> None:
        """Set the key: it is used many times for each pod."""
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    def of_kind(self, *kinds: ContainerKind) -> tuple[Container, ...]:
        """Return the containers of some kinds, in their order."""
        return tuple(container for container in self.containers if container.kind in kinds)

    @property
    def is_valid(self) -> bool:
        """Return whether its manifest has no error."""
        return not any(problem.severity is Severity.ERROR for problem in self.problems)


class InitProgress(NamedTuple):
    """The progress of a pod's init containers since it was applied."""

    done: frozenset[str] = frozenset()
    """The init containers that have exited with 0."""
    over: bool = False
    """Whether the init phase is over: all were done once, or the operator has set it."""


NO_PROGRESS = InitProgress()


def is_uid(text: str | None) -> bool:
    """Return whether a text may be the uid of a pod: a part of a slice's name and of file names.

    A kubelet's uids are UUIDs, and hashes for static pods; a uid need not be either.
    """
    return (
        text is not None
        and len(text) <= UID_MAX
        and _UID.fullmatch(text) is not None
        and _FILE_NAME.fullmatch(text) is None
    )


def default_uid(namespace: str, name: str) -> str:
    """Return the uid of a pod whose manifest has none: the same name always gives the same uid.

    The uid is `NAME.NAMESPACE`, which is legible in the names of the pod's units. A namespace has no
    dot, so two pods never share a uid. Where `is_uid` refuses this, or a unit's name would be too
    long, the uid is the version 5 UUID of `NAMESPACE/NAME` in the URL namespace:
    `uuidgen --sha1 --namespace @url --name default/web`.
    """
    uid = f"{name}.{namespace}"
    # the mount unit of a volume in memory has the uid with each `-` as `\x2d`
    if is_uid(uid) and len(uid) + 3 * uid.count("-") <= UID_MAX:
        return uid
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}"))
