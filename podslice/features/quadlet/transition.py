"""The steps from the files and services that exist of a pod to those that its quadlets state."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from podslice.features.quadlet.result import (
    KEPT,
    OWN_SECTION,
    OWN_SUFFIXES,
    Directory,
    File,
    Quadlets,
    is_data,
)
from podslice.model.event import Kind
from podslice.model.naming import JOB_PREFIX, POD_LABEL, data_directory
from podslice.model.properties import PROPERTIES
from podslice.model.unit import UnitName
from podslice.plan import Action, PodStep

REMOVED = "the pod is removed"
CHANGED = "its files change"
LEFT_OUT = "the pod no longer has it"

SERVICE_SUFFIXES = {".pod": "-pod", ".container": "", ".volume": "-volume", ".network": "-network"}
"""Suffix of a file that podman's generator reads → that of its service.

Source: podman-systemd.unit(5), "ServiceName=".
"""
_REQUIRED = (".network", ".volume")
"""Files whose services start with those that require them, and do not restart."""
_DOWN = frozenset({"inactive", "failed"})
_OOM_SCORE = "PodmanArgs=--oom-score-adj="


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadletStep(PodStep):
    """A step on a service, a file or a volume of podman; `name` of a file is its path as in `File`."""

    section: ClassVar[str] = "quadlets"
    file: File | None = None
    """The file to write, or that of the service to start."""
    directories: tuple[Directory, ...] = field(default=(), compare=False)
    """The directories of the pod's data, which exist once files are written."""
    is_killed: bool = False
    """Whether the service to stop is killed at the end of the grace period.

    The service of the pod itself is not: only podman runs in it then, to remove the pod.
    """

    @property
    def event(self) -> tuple[Kind, str] | None:
        """The start of a container."""
        is_container = self.file is not None and self.file.path.endswith(".container")
        if self.action is not Action.START or not is_container:
            return None
        return Kind.CONTAINER_STARTED, f"started {self.name} of pod {self.pod}"


class PresentPod(NamedTuple):
    """What exists of a pod."""

    files: Mapping[str, bytes]
    """The contents of its files, by their paths as in `File`."""
    states: Mapping[UnitName, str]
    """The active states of its services; those that are not loaded may be left out."""
    access: Mapping[str, tuple[int, int]] = {}
    """The modes and groups of its data, by path."""
    has_data: bool = False
    """Whether it has a directory of data."""

    @property
    def services(self) -> dict[str, UnitName]:
        """Return the services that its files make, by path."""
        return {path: service_of(path, text) for path, text in _units(self.files).items()}

    @property
    def has_network(self) -> bool:
        """Return whether it is in the network of its namespace."""
        return any(path.endswith(".network") for path in self.files)

    @property
    def is_kept(self) -> bool:
        """Return whether the agent keeps the pod."""
        return any(_value(text, KEPT) == "yes" for text in _units(self.files).values())

    def has(self, file: File) -> bool:
        """Return whether a file exists with the desired content, mode and group."""
        mode, gid = self.access.get(file.path, (file.mode, file.gid))
        is_accessible = mode == file.mode and file.gid in (None, gid)
        return is_accessible and self.files.get(file.path) == file.content

    def is_up(self, service: UnitName) -> bool:
        """Return whether a service is active, or is about to be."""
        return self.states.get(service, "inactive") not in _DOWN

    def is_failed(self, service: UnitName) -> bool:
        """Return whether a service has failed."""
        return self.states.get(service) == "failed"


ABSENT = PresentPod(files={}, states={})
"""A pod of which nothing exists."""


def is_unit(path: str) -> bool:
    """Return whether a file makes a service; other files are the data of containers."""
    return not is_data(path) and path.endswith((*SERVICE_SUFFIXES, *OWN_SUFFIXES))


def service_of(path: str, text: str) -> UnitName:
    """Return the service that systemd has for a file."""
    stem, dot, suffix = path.rpartition(".")
    if dot + suffix in OWN_SUFFIXES:
        return UnitName(path)
    stated = _value(text, "ServiceName")
    return UnitName(f"{stated or stem + SERVICE_SUFFIXES[dot + suffix]}.service")


def steps_to_keep(pod: Quadlets, present: PresentPod) -> tuple[QuadletStep, ...]:
    """Return the steps after which the services of a pod run as its quadlets state.

    A service restarts if more of its file has changed than limits, which apply at once. The whole
    pod restarts with its own file, or that of an init container. What has ended as its restart
    policy allows is not started again while the pod is up.
    """
    wanted = {each.path: each for each in pod.files}
    texts = _units({path: each.content for path, each in wanted.items()})
    touched = _touched(pod, present, texts)
    stale = stale_files(pod, present)
    steps = []
    for path, service in sorted(present.services.items(), key=_rank_of_stop):
        if path in stale and (present.is_up(service) or present.is_failed(service)):
            steps.append(_stop(pod.pod, path, service, LEFT_OUT))
        elif path in touched and present.is_up(service):
            steps.append(_stop(pod.pod, path, service, CHANGED))
    steps += (
        QuadletStep(
            action=Action.WRITE,
            pod=pod.pod,
            name=file.path,
            file=file,
            directories=pod.directories,
        )
        for file in pod.files
        if not present.has(file)
    )
    steps += (replace(_remove(pod.pod, path), directories=pod.directories) for path in stale)
    gone = {path: present.files[path] for path in stale if not is_data(path)}
    steps += _remove_volumes(pod.pod, gone)
    for path, text in texts.items():
        if not path.endswith(_REQUIRED) and _starts(path, text, pod, present, touched):
            service = service_of(path, text)
            step = QuadletStep(action=Action.START, pod=pod.pod, name=service, file=wanted[path])
            steps.append(step)
    return tuple(steps)


def stale_files(pod: Quadlets, present: PresentPod) -> list[str]:
    """Return the files that a pod no longer has; of a pod without data, the directory of all data."""
    stale = sorted(present.files.keys() - {pod.mark, *(each.path for each in pod.files)})
    if present.has_data and not pod.directories and pod.mark not in present.files:
        stale = [*(path for path in stale if not is_data(path)), pod.data]
    return stale


def steps_to_remove(pod: str, present: PresentPod) -> tuple[QuadletStep, ...]:
    """Return the steps that stop the services of a pod, and remove its files and empty directories.

    The file of the pod is the last one, so that an interrupted removal can be repeated.
    """
    units = sorted(path for path in present.files if not is_data(path))
    stops = (
        _stop(pod, path, service, REMOVED)
        for path, service in sorted(present.services.items(), key=_rank_of_stop)
        if present.is_up(service) or present.is_failed(service)
    )
    return (
        *stops,
        *([_remove(pod, data_directory(pod))] if present.has_data else []),
        *(_remove(pod, path) for path in sorted(units, key=lambda each: each.endswith(".pod"))),
        *_remove_volumes(pod, present.files),
    )


def _rank_of_stop(entry: tuple[str, UnitName]) -> int:
    """Return the turn of a service: what starts others stops first, then the service of the pod."""
    path = entry[0]
    starts = (path.endswith(".timer"), path.startswith(JOB_PREFIX), path.endswith(".pod"))
    return starts.index(True) if True in starts else len(starts)


def _stop(pod: str, path: str, service: UnitName, why: str) -> QuadletStep:
    is_killed = not path.endswith((".pod", ".timer", *_REQUIRED))
    return QuadletStep(action=Action.STOP, pod=pod, name=service, why=why, is_killed=is_killed)


def _remove(pod: str, path: str) -> QuadletStep:
    return QuadletStep(action=Action.REMOVE, pod=pod, name=path)


def _remove_volumes(pod: str, files: Mapping[str, bytes]) -> Iterator[QuadletStep]:
    """Yield the removal of empty directories, which have a label; claims outlive the pod."""
    for path, text in sorted(_units(files).items()):
        if path.endswith(".volume") and f"\nLabel={POD_LABEL}=" in text:
            name = _value(text, "VolumeName")
            yield QuadletStep(action=Action.REMOVE_VOLUME, pod=pod, name=name)


def steps_to_remove_networks(
    before: Mapping[str, Mapping[str, bytes]], after: Mapping[str, Mapping[str, bytes]]
) -> Iterator[QuadletStep]:
    """Yield the removal of networks that no pod has any longer, from the files of pods."""
    left = {name for files in after.values() for name in _networks(files)}
    gone = {name: pod for pod, files in before.items() for name in _networks(files)}
    for name in sorted(gone.keys() - left):
        yield QuadletStep(action=Action.REMOVE_NETWORK, pod=gone[name], name=name)


def _networks(files: Mapping[str, bytes]) -> Iterator[str]:
    for path, text in _units(files).items():
        if path.endswith(".network"):
            yield _value(text, "NetworkName")


def _touched(pod: Quadlets, present: PresentPod, texts: Mapping[str, str]) -> Collection[str]:
    """Return the units whose services restart; volumes do not."""
    before = _units(present.files)
    touched = {
        path
        for path, text in texts.items()
        if not path.endswith(_REQUIRED) and _lasting(text) != _lasting(before.get(path, ""))
    }
    changed = [
        f"/{each.path}"
        for each in pod.files
        if is_data(each.path) and present.files.get(each.path) != each.content
    ]
    touched |= {
        path
        for path, text in texts.items()
        if _value(text, "EnvironmentFile").strip('"').endswith(tuple(changed))
    }
    is_init = {path for path in touched if _value(texts[path], "Type") == "oneshot"}
    is_whole = any(path.endswith(".pod") for path in touched) or (pod.mark and touched)
    if is_init or is_whole:
        return {path for path in texts if not path.endswith(_REQUIRED)}
    return touched


def _starts(
    path: str, text: str, pod: Quadlets, present: PresentPod, touched: Collection[str]
) -> bool:
    """Return whether podslice starts a service; systemd starts probers with their containers."""
    service = service_of(path, text)
    if pod.mark:
        # the job starts the pod; what has ended does not run again
        is_due = path.endswith(".timer") or pod.mark not in present.files
        is_started = is_due and bool(targets_of(text))
        return is_started and (path in touched or not present.is_up(service))
    if path.endswith(".service"):
        return path in touched and present.is_up(service)
    if path in touched or not present.is_up(pod.service):
        return True
    restart = _value(text, "Restart")
    if present.is_failed(service):
        return restart != "no"
    return restart == "always" and not present.is_up(service)


def _units(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the texts of the units among files."""
    return {path: each.decode(errors="replace") for path, each in files.items() if is_unit(path)}


def _value(text: str, key: str) -> str:
    """Return the first value of a key in a unit; empty if there is none."""
    found = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def targets_of(text: str) -> list[str]:
    """Return the targets that want a unit."""
    return re.findall(r"^WantedBy=(.+)$", text, re.MULTILINE)


def _lasting(text: str) -> list[str]:
    """Return the lines of a unit without limits, which apply to a service that runs, and comments."""
    applied = {row.key for row in PROPERTIES.values() if row.managed} | {KEPT}
    return [
        line
        for line in text.split("\n")
        if line
        and line.partition("=")[0] not in applied
        and not line.startswith(("#", _OOM_SCORE, f"[{OWN_SECTION}]"))
    ]
