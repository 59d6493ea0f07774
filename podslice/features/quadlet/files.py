"""Files of quadlets on disk: in the directories of podman's generator, of systemd and of podslice.

podslice's directory has the data of pods: files of ConfigMaps and Secrets, and of secret variables.
There every name is opened in its directory, which is open already, and no link is followed: neither a
write, nor a comparison, nor a removal reaches a file outside. Only the directory of podslice's own
files may be reached through links.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from podslice.errors import HostError, InputError, Problem
from podslice.features.quadlet.result import (
    ARCHIVE_SUFFIX,
    OWN_SUFFIXES,
    PRIVATE_MODE,
    Directory,
    File,
    Quadlets,
    is_data,
)
from podslice.features.quadlet.transition import (
    ABSENT,
    SERVICE_SUFFIXES,
    PresentPod,
    is_unit,
    stale_files,
    targets_of,
)
from podslice.kernel.files import NotRegularError, describe_kind, read_present, read_with_status
from podslice.model.naming import DATA, SCOPE_PREFIX, data_directory, pod_of_data
from podslice.model.unit import GENERATED, Manager
from podslice.store.files import replace_file

NAME_BYTES_MAX = 255
"""Source: Linux, include/uapi/linux/limits.h, NAME_MAX."""
_BYTES_MAX = 64 * 2**20
"""More than a manifest can have."""
NEW = "..podslice-new"
"""The name of a file while it is written: no file of a volume begins with two dots."""
_FOLLOWING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DIRECTORY = _FOLLOWING | os.O_NOFOLLOW
_LOCATED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_A_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP})


class PresentData(NamedTuple):
    """What exists in the directory of a pod's data."""

    exists: bool
    files: dict[str, bytes]
    """The contents of the regular files, by their paths as in `File`."""
    access: dict[str, tuple[int, int]]
    """Their modes and groups."""
    problems: tuple[Problem, ...]
    """What is neither a regular file nor a directory."""


class VolumeData:
    """The data of all pods; paths are as in `File`."""

    def __init__(self, top: Path | None) -> None:
        """`top` is the directory of podslice's own files; with None there is no data."""
        self._is_absent = top is None
        self._top = top or Path()

    def pods(self) -> list[str]:
        """Return the pods with a directory, `namespace/name`; none for a user who may not read it.

        Raises:
            OSError: it cannot be read for another reason.
        """
        try:
            with self._open(DATA) as directory, os.scandir(directory) as entries:
                return sorted(pod_of_data(each.name) for each in entries)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.EACCES, *_NOT_A_DIRECTORY}:
                return []
            raise

    def read(self, pod: str) -> PresentData:
        """Return the data of a pod; nothing for a user who may not read it, as `podslice plan` may.

        Raises:
            OSError: it cannot be read for another reason.
        """
        top = data_directory(pod)
        files: dict[str, bytes] = {}
        access: dict[str, tuple[int, int]] = {}
        problems: list[Problem] = []
        left, exists = [top], True
        while left:
            path = left.pop()
            try:
                with self._open(path) as directory, os.scandir(directory) as entries:
                    for entry in sorted(entries, key=attrgetter("name")):
                        below = f"{path}/{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            left.append(below)
                            continue
                        try:
                            files[below], status = read_with_status(
                                entry.name,
                                limit_bytes=_BYTES_MAX,
                                locate=partial(os.open, flags=_LOCATED, dir_fd=directory),
                            )
                            access[below] = stat.S_IMODE(status.st_mode), status.st_gid
                        except NotRegularError as error:
                            problems.append(_problem(self._top / below, str(error)))
            except (FileNotFoundError, PermissionError):
                exists = exists and path != top
            except OSError as error:
                if error.errno not in _NOT_A_DIRECTORY:
                    raise
                place = Path(error.filename)
                exists = exists and place != self._top / DATA
                kind = describe_kind(place.lstat().st_mode)
                problems.append(_problem(place, f"is {kind}, not a directory"))
        return PresentData(exists, files, access, tuple(problems))

    def make(self, directory: Directory) -> None:
        """Create a directory, and replace a file of an earlier manifest.

        Raises:
            OSError: it cannot be created.
        """
        self._top.mkdir(parents=True, exist_ok=True)
        parent, _, name = directory.path.rpartition("/")
        with suppress(FileExistsError):
            (self._top / DATA).mkdir(PRIVATE_MODE)
        with self._open(parent) as above:
            with suppress(FileNotFoundError):
                if stat.S_ISREG(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=above)
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE_MODE, dir_fd=above)
        with self._open(directory.path) as made:
            os.fchmod(made, directory.mode)

    def write(self, file: File) -> None:
        """Write a file, whole or not at all, and replace a directory of an earlier manifest.

        Raises:
            OSError: it cannot be written.
        """
        parent, _, name = file.path.rpartition("/")
        with self._open(parent) as directory:
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    shutil.rmtree(name, dir_fd=directory)
            replace_file(name, file.content, new=NEW, mode=file.mode, directory=directory)
            if file.gid is not None:
                os.chown(name, -1, file.gid, dir_fd=directory, follow_symlinks=False)

    def remove(self, path: str, kept: Collection[str] = ()) -> None:
        """Remove a file, and the directories that are empty then and not `kept`; or all of a pod.

        Raises:
            OSError: it cannot be removed.
        """
        parent, _, name = path.rpartition("/")
        with suppress(FileNotFoundError, NotADirectoryError), self._open(parent) as directory:
            if parent == DATA:
                _remove_all(name, directory)
                return
            with suppress(IsADirectoryError):  # the present manifest has one of this name
                os.unlink(name, dir_fd=directory)
        while parent != DATA and parent not in kept:
            above, _, name = parent.rpartition("/")
            try:
                with self._open(above) as directory:
                    os.rmdir(name, dir_fd=directory)
            except OSError:  # something else is in it
                break
            parent = above

    @contextmanager
    def _open(self, path: str) -> Iterator[int]:
        """Open a directory, one name after the other; an error has the whole path of its place."""
        if self._is_absent:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        place = self._top
        descriptor = os.open(place, _FOLLOWING)
        try:
            for name in path.split("/"):
                place /= name
                below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(place)) from error
        finally:
            os.close(descriptor)


def _remove_all(name: str, directory: int) -> None:
    """Remove a directory with all that is in it; a link itself."""
    if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        shutil.rmtree(name, dir_fd=directory)
    else:
        os.unlink(name, dir_fd=directory)


def _problem(path: Path, message: str) -> Problem:
    hint = "podslice did not create it: move it elsewhere, or remove it"
    return Problem(where=str(path), message=message, hint=hint)


_UNIT_BYTES_MAX = 2**20
_OWNER = re.compile(rb"^Description=.*\b[Pp]od (\S+)$", re.MULTILINE)
_SUFFIXES = frozenset({*SERVICE_SUFFIXES, *OWN_SUFFIXES})
_OWN_UNITS = f"{SCOPE_PREFIX}-*"


class Directories(NamedTuple):
    """Where the files of quadlets are."""

    generator: Path
    """Of podman's generator."""
    units: Path
    """Of systemd, for units that podman's generator does not make."""
    own: Path | None = None
    """Of podslice's own files, with the data that units refer to; None if that is in archives."""

    @property
    def data(self) -> VolumeData:
        """Return the data of pods."""
        return VolumeData(self.own)

    def is_data(self, path: Path) -> bool:
        """Return whether a path is that of data of pods."""
        return self.own is not None and path.is_relative_to(self.own)


def installed(manager: Manager) -> Directories:
    """Return the directories that a service manager and podman's generator read."""
    return Directories(
        generator=Path(manager.generator_directory),
        units=Path(manager.unit_directory),
        own=Path(manager.own_state_directory),
    )


class WrittenQuadlets(NamedTuple):
    """The paths of files that were written, and of those that pods no longer have."""

    written: list[str]
    removed: list[str]
    problems: list[Problem]
    """Why the files of some pods were not written."""


def write_quadlets(pods: Sequence[Quadlets], directories: Directories) -> WrittenQuadlets:
    """Write the files of pods, and remove those that an earlier manifest of the same pod had.

    Nothing is written of a pod whose files have obstacles; the other pods are written.

    Raises:
        InputError: a unit exists that podslice did not write, or two pods have the same file;
            nothing was written.
        HostError: a directory cannot be written.
    """
    obstacles = find_obstacles(pods, directories)
    pods = [each for each in pods if each.pod not in obstacles]
    present = read_installed(directories)
    stale = sorted(path for pod in pods for path in stale_files(pod, present.get(pod.pod, ABSENT)))
    with _host_errors(directories):
        for pod in pods:
            for each in pod.directories:
                directories.data.make(each)
            for file in pod.files:
                write_file(file, directories)
        kept = {each.path for pod in pods for each in pod.directories}
        for name in stale:
            remove_file(name, directories, kept)
    return WrittenQuadlets(
        written=[str(place(each.path, directories)) for pod in pods for each in pod.files],
        removed=[str(place(name, directories)) for name in stale],
        problems=list(chain.from_iterable(obstacles.values())),
    )


@contextmanager
def _host_errors(directories: Directories) -> Iterator[None]:
    """Raise a HostError, which names the path, for an error of a file."""
    try:
        yield
    except OSError as error:
        where = error.filename or directories.generator
        raise HostError(f"{where}: {error.strerror}") from error


def place(name: str, directories: Directories) -> Path:
    """Return the path of a file from its path in `File`: systemd's own are services and timers."""
    if is_data(name) and directories.own is not None:
        return directories.own / name
    is_own = name.endswith(OWN_SUFFIXES)
    return (directories.units if is_own else directories.generator) / name


def find_obstacles(
    pods: Sequence[Quadlets], directories: Directories, taken: Collection[str] = ()
) -> dict[str, Sequence[Problem]]:
    """Check that the files of all pods can be written; return why some pods' files cannot.

    Pods without such an obstacle have no entry. `taken` are the files of other pods.

    Raises:
        InputError: a unit exists that podslice did not write, or two pods have the same file.
        HostError: a directory cannot be read.
    """
    if problems := [*_doubles(pods, taken), *_foreign(pods, directories)]:
        raise InputError(problems)
    found: dict[str, Sequence[Problem]] = {}
    for pod in pods:
        problems = list(_unusable(pod, directories))
        if pod.directories:
            with _host_errors(directories):
                problems += directories.data.read(pod.pod).problems
        if problems:
            found[pod.pod] = problems
    return found


def _unusable(pod: Quadlets, directories: Directories) -> Iterator[Problem]:
    for file in pod.files:
        path = place(file.path, directories)
        for name in file.path.split("/"):
            if name in ("", ".", "..") or "\0" in name:
                hint = "rename the container or the volume"
                yield Problem(where=str(path), message="is not the path of a file", hint=hint)
            elif len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
                message = f"a name in it is longer than {NAME_BYTES_MAX} bytes"
                hint = "shorten the name of the pod, or that of its container or volume"
                yield Problem(where=str(path), message=message, hint=hint)
        if path.name.endswith(ARCHIVE_SUFFIX) and (path.is_symlink() or path.exists()):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode):
                message = f"is {describe_kind(mode)}, not a regular file"
                yield Problem(where=str(path), message=message, hint="remove it")


def read_installed(directories: Directories) -> dict[str, PresentPod]:
    """Return the files of all pods, without states, by pod, `namespace/name`.

    Links among the data, and what is not a regular file, are left out.

    Raises:
        HostError: a file cannot be read.
    """
    units: dict[str, dict[str, bytes]] = {}
    with _host_errors(directories):
        for path in _list_units(directories):
            if owner := read_owner(path):
                found = units.setdefault(owner, {})
                archive = path.with_name(f"{path.stem}{ARCHIVE_SUFFIX}")
                for each in (path, archive) if path.suffix == ".pod" else (path,):
                    content = read_present(each, limit_bytes=_UNIT_BYTES_MAX)
                    if content is not None:
                        found[each.name] = content
        keys = {*units, *directories.data.pods()}
        data = {key: directories.data.read(key) for key in sorted(keys)}
    return {
        key: PresentPod(units.get(key, {}) | each.files, {}, each.access, has_data=each.exists)
        for key, each in data.items()
    }


def write_file(file: File, directories: Directories) -> None:
    """Write one file, whole or not at all."""
    if is_data(file.path):
        directories.data.write(file)
        return
    path = place(file.path, directories)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(OWN_SUFFIXES):
        _enable(path, targets_of(file.text), directories)
    try:
        replace_file(path, file.content, new=path.with_name(NEW), mode=file.mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def remove_file(name: str, directories: Directories, kept: Collection[str] = ()) -> None:
    """Remove one file, or all data of a pod.

    Directories of data that are empty then are removed, too, without those that are `kept`.
    """
    if is_data(name):
        directories.data.remove(name, kept)
        return
    path = place(name, directories)
    if name.endswith(OWN_SUFFIXES):
        _enable(path, (), directories)
    if name.endswith(".timer") and directories.own is not None:
        # the time of its last run, from which a new timer would make up a run
        for above in (directories.own.parent, directories.own.parent.parent / "share"):
            (above / "systemd/timers" / f"stamp-{name}").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _enable(path: Path, targets: Collection[str], directories: Directories) -> None:
    """Link a unit of systemd in the targets that want it, as `systemctl enable` does, and no others."""
    if directories.own is None:
        return
    for link in directories.units.glob(f"*.wants/{path.name}"):
        if link.parent.name.removesuffix(".wants") not in targets:
            link.unlink(missing_ok=True)
    for target in targets:
        link = directories.units / f"{target}.wants" / path.name
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(path)


def _list_units(directories: Directories) -> list[Path]:
    """Return the units that may be of pods, in order."""
    places = (directories.generator.glob("*"), directories.units.glob(_OWN_UNITS))
    return [each for each in sorted(chain.from_iterable(places)) if each.suffix in _SUFFIXES]


def _doubles(pods: Iterable[Quadlets], taken: Collection[str]) -> Iterator[Problem]:
    seen = set(taken)
    for each in chain.from_iterable(pod.files for pod in pods):
        if each.path in seen:
            message = "two pods would write this file"
            yield Problem(where=each.path, message=message, hint="rename one of the pods")
        seen.add(each.path)


def _foreign(pods: Iterable[Quadlets], directories: Directories) -> Iterator[Problem]:
    """Yield a problem for each unit that exists and is not of the same pod."""
    for pod in pods:
        for each in (file for file in pod.files if is_unit(file.path)):
            path = place(each.path, directories)
            owner = read_owner(path)
            if owner not in (None, pod.pod):
                known = f"of pod {owner}" if owner else "not generated by podslice"
                message = f"the file exists and is {known}"
                yield Problem(where=str(path), message=message, hint="remove it, or rename the pod")


def read_owner(path: Path) -> str | None:
    """Return the pod of a unit; None if the file does not exist, empty if it is not podslice's."""
    try:
        content = read_present(path, limit_bytes=_UNIT_BYTES_MAX)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error
    if content is None:
        return None
    found = _OWNER.search(content) if content.startswith(GENERATED.encode()) else None
    return found[1].decode() if found else ""


def pods_with_quadlets(keys: Iterable[str] | None, manager: Manager) -> frozenset[str]:
    """Return the pods that run from quadlets this user may read: of these keys, or all with None."""
    found = set()
    for path in Path(manager.generator_directory).glob("*.pod"):
        with suppress(HostError):
            found.add(read_owner(path))
    owners = frozenset(filter(None, found))
    return owners if keys is None else owners.intersection(keys)


def may_have_quadlets(manager: Manager) -> bool:
    """Return whether a pod may have files for podman's generator, or data.

    The services of podslice in a sandbox have access to neither.
    """
    if any(Path(manager.generator_directory).glob("*.pod")):
        return True
    with suppress(OSError):
        return any(Path(manager.own_state_directory, DATA).iterdir())
    return False
