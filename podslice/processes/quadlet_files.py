"""Files of quadlets on disk: in the directories of podman's generator and of systemd."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from podslice.dataclass import dataclass
from podslice.errors import HostError, InputError, Problem
from podslice.files import read_present, read_regular
from podslice.model.manager import Manager
from podslice.model.naming import SCOPE_PREFIX
from podslice.model.unit import GENERATED
from podslice.quadlet.result import File, Quadlets

_BYTES_MAX = 2**20
_OWNER = re.compile(rb"^Description=.*\b[Pp]od (\S+)$", re.MULTILINE)
_NEW = ".podslice-new"
_SUFFIXES = frozenset({".pod", ".container", ".volume", ".service"})
_OWN_UNITS = f"{SCOPE_PREFIX}-*.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Directories:
    """Where the files of quadlets are."""

    generator: Path
    """Of podman's generator, with the files that its units refer to."""
    units: Path
    """Of systemd, for units that podman's generator does not make."""


def installed(manager: Manager) -> Directories:
    """Return the directories that a service manager and podman's generator read.

    Source: systemd.unit(5), "Unit File Load Path".
    """
    kind = "user" if manager.is_user else "system"
    return Directories(
        generator=Path(manager.generator_directory),
        units=Path(manager.config_directory, "systemd", kind),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenQuadlets:
    """The paths of files that were written, and of those that pods no longer have."""

    written: list[str]
    removed: list[str]


def write_quadlets(pods: Iterable[Quadlets], directories: Directories) -> WrittenQuadlets:
    """Write the files of pods, and remove those that an earlier manifest of the same pod had.

    Raises:
        InputError: a unit exists that podslice did not write, or two pods have the same file;
            nothing was written.
        HostError: a directory cannot be written.
    """
    pods = tuple(pods)
    check_quadlets(pods, directories)
    present = read_installed(directories)
    wanted = {each.path for pod in pods for each in pod.files}
    stale = sorted(name for pod in pods for name in present.get(pod.pod, ()) if name not in wanted)
    try:
        for pod in pods:
            _write_pod(pod, directories)
        for name in stale:
            remove_file(name, directories)
    except OSError as error:
        where = error.filename or directories.generator
        raise HostError(f"{where}: {error.strerror}") from error
    return WrittenQuadlets(
        written=[str(path_of(each, directories)) for pod in pods for each in pod.files],
        removed=[str(place(name, directories)) for name in stale],
    )


def path_of(file: File, directories: Directories) -> Path:
    """Return where a file belongs."""
    return place(file.path, directories)


def place(name: str, directories: Directories) -> Path:
    """Return the path of a file from its path in `File`: only systemd's own units are services."""
    is_unit = name.endswith(".service") and "/" not in name
    return (directories.units if is_unit else directories.generator) / name


def check_quadlets(pods: Iterable[Quadlets], directories: Directories) -> None:
    """Check that all files can be written.

    Raises:
        InputError: a unit exists that podslice did not write, or two pods have the same file.
        HostError: a directory cannot be read.
    """
    pods = tuple(pods)
    files = [each for pod in pods for each in pod.files]
    if problems := [*_doubles(files), *_foreign(pods, directories)]:
        raise InputError(problems)


def read_installed(directories: Directories) -> dict[str, dict[str, bytes]]:
    """Return the contents of all pods' files by pod, `namespace/name`, and path as in `File`.

    Raises:
        HostError: a file cannot be read.
    """
    found: dict[str, dict[str, bytes]] = {}
    for path in _list_units(directories):
        owner = _read_owner(path)
        if not owner:
            continue
        files = found.setdefault(owner, {})
        data = directories.generator / f"{path.stem}.data"
        for each in (path, *(_list_files(data) if path.suffix == ".pod" else ())):
            name = path.name if each is path else str(each.relative_to(directories.generator))
            try:
                files[name] = read_regular(each, limit_bytes=_BYTES_MAX)
            except OSError as error:
                raise HostError(f"{each}: {error.strerror}") from error
    return found


def make_directories(pod: Quadlets, directories: Directories) -> None:
    """Create the directories of a pod's data."""
    for each in pod.directories:
        path = directories.generator / each.path
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(each.mode)


def write_file(file: File, directories: Directories) -> None:
    """Write one file, whole or not at all."""
    path = path_of(file, directories)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, file)


def remove_file(name: str, directories: Directories) -> None:
    """Remove one file, and the directories of data that are empty then."""
    path = place(name, directories)
    path.unlink(missing_ok=True)
    for parent in path.parents:
        if parent in {directories.generator, directories.units}:
            break
        with suppress(OSError):  # something else is in it
            parent.rmdir()


def _write_pod(pod: Quadlets, directories: Directories) -> None:
    make_directories(pod, directories)
    for file in pod.files:
        write_file(file, directories)


def _replace(path: Path, file: File) -> None:
    """Write a file whole or not at all; other users cannot read it before it has its mode."""
    new = path.with_name(f".{path.name}{_NEW}")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(new, flags, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        os.fchmod(descriptor, file.mode)
        stream.write(file.content)
    new.replace(path)


def _list_units(directories: Directories) -> list[Path]:
    """Return the units that may be of pods, in order."""
    places = (directories.generator.glob("*"), directories.units.glob(_OWN_UNITS))
    return [each for each in sorted(chain.from_iterable(places)) if each.suffix in _SUFFIXES]


def _list_files(top: Path) -> list[Path]:
    return sorted(each for each in top.rglob("*") if not each.is_dir())


def _doubles(files: Iterable[File]) -> Iterator[Problem]:
    seen: set[str] = set()
    for each in files:
        if each.path in seen:
            message = "two pods would write this file"
            yield Problem(where=each.path, message=message, hint="rename one of the pods")
        seen.add(each.path)


def _foreign(pods: Iterable[Quadlets], directories: Directories) -> Iterator[Problem]:
    """Yield a problem for each unit that exists and is not of the same pod."""
    for pod in pods:
        for each in filter(_is_named, pod.files):
            path = path_of(each, directories)
            owner = _read_owner(path)
            if owner not in (None, pod.pod):
                known = f"of pod {owner}" if owner else "not generated by podslice"
                message = f"the file exists and is {known}"
                yield Problem(where=str(path), message=message, hint="remove it, or rename the pod")


def _is_named(file: File) -> bool:
    """Return whether a file names its pod, as units do; others are in a directory of the pod."""
    return file.content.startswith(GENERATED.encode())


def _read_owner(path: Path) -> str | None:
    """Return the pod of a unit; None if the file does not exist, empty if it is not podslice's."""
    try:
        content = read_present(path, limit_bytes=_BYTES_MAX)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error
    if content is None:
        return None
    found = _OWNER.search(content) if content.startswith(GENERATED.encode()) else None
    return found[1].decode() if found else ""
