"""What the generator takes and returns: a pod with the options of its host, and files with their modes."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.errors import Problem
from podslice.features.quadlet.workload import Claim, EmptyDir, PodWorkload
from podslice.inputs.manifest.fields import checked
from podslice.model.desired import ContainerDecision, PodDecision
from podslice.model.naming import (
    DATA,
    JOB_PREFIX,
    KUBE_RESERVED_SLICE,
    SCOPE_PREFIX,
    data_directory,
    podman_part,
    podman_pod,
    podman_service,
    service_name,
)
from podslice.model.unit import SYSTEM, Manager, UnitName

PODMAN = "/usr/bin/podman"
SECRET_MODE = 0o600
UNIT_MODE = 0o644
OWN_SECTION = "X-Podslice"
"""A section that systemd and podman's generator ignore. Source: systemd.unit(5), "Description"."""
KEPT = "KeptByAgent"
OWN_SUFFIXES = (".service", ".timer")
"""The suffixes of units that systemd itself reads."""
ARCHIVE_SUFFIX = ".volumes.tar"
"""The end of the name of an archive with the data of one pod."""
PRIVATE_MODE = 0o700
"""Of directories that hold all data of pods: they protect the files, which containers may all read."""
_NOT_IN_MOUNT = re.compile(r"[:\x00-\x1f\x7f]")
PODMAN_MIN = (5, 4)
"""The first version that mounts a part of a volume; 5.3 has the other keys of the units.

Source: podman, RELEASE_NOTES.md, 5.4.0 and 5.3.0.
"""


class Options(NamedTuple):
    """What the units are for."""

    manager: Manager = SYSTEM
    systemd_version: int = 257
    podman_version: tuple[int, int] = PODMAN_MIN
    has_init_phase: bool = True
    """Whether a pod's own limits apply only after its init containers: not with Kubernetes' rules."""
    is_kept: bool = False
    """Whether the agent keeps the pod, and removes it with its manifest."""
    program: str = "/usr/bin/podslice"
    """The path of podslice, which units call."""
    has_dns: bool = True
    """Whether podman finds aardvark-dns, without which its networks have no DNS."""

    @property
    def service_slices(self) -> tuple[str, ...]:
        """Return the slice of services beside a pod, which use resources of the node; none for a user."""
        return () if self.manager.is_user else (KUBE_RESERVED_SLICE,)

    @property
    def problem(self) -> Problem | None:
        """Return why podman cannot read the units; None if it can."""
        state = self.manager.own_state_directory
        if _NOT_IN_MOUNT.search(state):
            message = f"podman cannot mount files below {state!r}: the path has ':' or a control character"
            hint = "set XDG_STATE_HOME to another directory"
            return Problem(where="XDG_STATE_HOME", message=message, hint=hint)
        if self.podman_version >= PODMAN_MIN:
            return None
        version, first = (".".join(map(str, each)) for each in (self.podman_version, PODMAN_MIN))
        hint = f"install podman {first} or later: Debian 13 has 5.4"
        if self.podman_version < (4, 4):
            return Problem(
                where="podman", message=f"{version} has no generator of units", hint=hint
            )
        message = f"the generator of {version} cannot keep pods in their slices"
        return Problem(where="podman", message=message, hint=hint)


def is_data(path: str) -> bool:
    """Return whether a path in `File` is that of data, not of a unit."""
    return "/" in path


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file: a unit, or data of a pod."""

    path: str
    """The name of a unit; the path of data below the directory of podslice's own files."""
    content: bytes = field(repr=False)
    mode: int = UNIT_MODE
    gid: int | None = None
    """The group; None for the group of the writing user."""
    is_secret: bool = False
    """Whether the value of a Secret is in it."""

    @property
    def is_unit(self) -> bool:
        """Return whether the file is a unit of systemd itself, and belongs in systemd's directory."""
        return not is_data(self.path) and self.path.endswith(OWN_SUFFIXES)

    @property
    def text(self) -> str:
        """Return the content as text."""
        return self.content.decode()


class Directory(NamedTuple):
    """One directory of files that are not units."""

    path: str
    """The path below the directory of podslice's own files."""
    mode: int


class Quadlets(NamedTuple):
    """The units of one pod."""

    pod: str
    """`namespace/name`."""
    service: UnitName
    """The service that starts and stops the pod with all its containers."""
    files: tuple[File, ...]
    directories: tuple[Directory, ...] = ()
    """Parents first."""
    data: str = ""
    """The directory of all files that are not units, whether the pod has some or not; as in `File`."""
    mark: str = ""
    """The file with the result of a job, as in `File`; empty for a pod that is none."""
    notes: tuple[str, ...] = ()
    """What differs from Kubernetes, where no field of the manifest is lost."""


def with_archive(pod: Quadlets, top: str) -> Quadlets:
    """Return the pod with an archive instead of its data, to be extracted in the root directory.

    It is for a host to which the units are copied: beside units the data itself would have names that
    a generator reads as the names of units or drop-ins.

    Args:
        pod: the pod.
        top: the directory of podslice's own files on the host.
    """
    if not pod.directories:
        return pod
    data = [each for each in pod.files if is_data(each.path)]
    units = [each for each in pod.files if not is_data(each.path)]
    (unit,) = (each.path for each in units if each.path.endswith(".pod"))
    archive = File(
        path=f"{unit.removesuffix('.pod')}{ARCHIVE_SUFFIX}",
        content=_pack((Directory(path=DATA, mode=PRIVATE_MODE), *pod.directories, *data), top),
        mode=SECRET_MODE,
        is_secret=any(each.is_secret for each in data),
    )
    return pod._replace(files=(*units, archive), directories=())


def _pack(entries: tuple[Directory | File, ...], top: str) -> bytes:
    """Return a tar archive that depends on nothing else; root, or who extracts it, owns the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            member = tarfile.TarInfo(f"{top.lstrip('/')}/{entry.path}")
            member.mode = entry.mode
            if isinstance(entry, File):
                member.size, member.gid = len(entry.content), entry.gid or 0
                archive.addfile(member, io.BytesIO(entry.content))
            else:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
    return buffer.getvalue()


class PodSource(NamedTuple):
    """What the units of a pod are made from, and the names that follow from the pod's own."""

    decision: PodDecision
    workload: PodWorkload
    options: Options

    @property
    def key(self) -> str:
        """Return the pod, `namespace/name`."""
        return self.decision.pod.key

    @property
    def name(self) -> str:
        """Return the name of podman's pod, with which the names of files begin."""
        return podman_pod(self.key)

    @property
    def pod_file(self) -> str:
        """Return the file of the pod."""
        return f"{self.name}.pod"

    @property
    def network_file(self) -> str:
        """Return the file of the namespace's network: each pod of the namespace has such a file."""
        return f"{podman_part(self.name, 'network')}.network"

    @property
    def pod_service(self) -> UnitName:
        """Return the service of the pod.

        Where the pod has an overhead it is the unit of its helpers, since podman's own container
        is one of them; otherwise it has the name that podman's generator gives it.
        """
        overhead = self.decision.overhead
        return service_name(overhead.scope) if overhead else podman_service(self.key)

    @property
    def data(self) -> str:
        """Return the directory of the files that are not units."""
        return data_directory(self.key)

    def container(self, name: str) -> str:
        """Return podman's name of a container; that of its file begins with it."""
        return podman_part(self.name, name)

    def service(self, container: str) -> UnitName:
        """Return the service of a container: that which `status` finds as the container's own."""
        return service_name(self.decided(container).scope)

    def prober(self, container: str) -> UnitName:
        """Return the service that probes a container from outside."""
        return self._beside(container, "probe")

    def prober_commands(self, container: str) -> UnitName:
        """Return the service that runs commands of probes for the service that makes requests."""
        return self._beside(container, "commands")

    def _beside(self, container: str, what: str) -> UnitName:
        rest = self.service(container).removeprefix(f"{SCOPE_PREFIX}-")
        return UnitName(f"{SCOPE_PREFIX}-{what}-{rest}")

    @property
    def job_service(self) -> UnitName:
        """Return the service that runs the pod of a job."""
        return UnitName(f"{JOB_PREFIX}{self.name}.service")

    @property
    def limited_volumes(self) -> tuple[EmptyDir, ...]:
        """Return the empty directories on disk that have a limit."""
        found = (each for each in self.workload.volumes if isinstance(each, EmptyDir))
        return tuple(each for each in found if each.limit_bytes is not None)

    def size_watch(self, volume: str) -> UnitName:
        """Return the service that compares the size of a volume with its limit."""
        return UnitName(f"{SCOPE_PREFIX}-size-{podman_part(self.name, volume)}.service")

    @property
    def mark(self) -> str:
        """Return the file with the result of a job; empty for a pod that is none.

        No volume has it: its name has an underscore.
        """
        job = self.workload.job
        return f"{self.data}/job_{job.digest}" if job else ""

    def decided(self, container: str) -> ContainerDecision:
        """Return what policy has decided on a container."""
        return next(each for each in self.decision.containers if each.name == container)

    def volume_file(self, name: str) -> str:
        """Return the file of a volume that podman holds."""
        return f"{podman_part(self.name, name)}.volume"

    def volume(self, volume: Claim | EmptyDir) -> str:
        """Return podman's name of a volume.

        The name of an empty directory, which is removed with the pod, has an underscore and a capital,
        which no claim has.
        """
        if isinstance(volume, Claim):
            return checked("PersistentVolumeClaimVolumeSource.claimName", volume.claim)
        return f"emptyDir-{podman_part(self.name, volume.name)}"

    def environment(self, container: str) -> str:
        """Return the file with the secret variables of a container."""
        return f"{self.data}/{container}.env"


def stem(unit: UnitName) -> str:
    """Return a service's name as `ServiceName=` takes it, without suffix."""
    return unit.removesuffix(".service")
