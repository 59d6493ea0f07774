"""The result of the generator: files with their modes, and what it has to say about them."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass, field
from typing import NamedTuple

from podslice.errors import Problem
from podslice.model.naming import DATA
from podslice.model.unit import SYSTEM, Manager, UnitName

PODMAN = "/usr/bin/podman"
SECRET_MODE = 0o600
UNIT_MODE = 0o644
OWN_SECTION = "X-Podslice"
"""A section that systemd and podman's generator ignore. Source: systemd.unit(5), "Description"."""
KEPT = "KeptByAgent"
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
    is_secret: bool = False
    """Whether the value of a Secret is in it."""
    is_unit: bool = False
    """Whether it is a unit of systemd itself, which belongs into systemd's directory."""

    @property
    def text(self) -> str:
        """Return the content as text."""
        return self.content.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
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
                member.size = len(entry.content)
                archive.addfile(member, io.BytesIO(entry.content))
            else:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
    return buffer.getvalue()
