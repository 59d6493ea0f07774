"""The data of pods on disk: the files of ConfigMaps and Secrets, and those of secret variables.

Every name is opened in its directory, which is open already, and no link is followed: neither a
write, nor a comparison, nor a removal reaches a file outside. Only the directory of podslice's own
files may be reached through links.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from podslice.errors import Problem
from podslice.features.quadlet.result import PRIVATE_MODE, Directory, File
from podslice.kernel.files import NotRegularError, describe_kind, read_regular
from podslice.model.naming import DATA, data_directory, pod_of_data
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
                            files[below] = _read(entry.name, directory)
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
        return PresentData(exists=exists, files=files, problems=tuple(problems))

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


def _read(name: str, directory: int) -> bytes:
    locate = partial(os.open, flags=_LOCATED, dir_fd=directory)
    return read_regular(name, limit_bytes=_BYTES_MAX, locate=locate)
