# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Files that exist completely or not at all."""

from __future__ import annotations

import errno
import os
import stat
import tempfile

from .podslice import Failure

MANIFEST_SUFFIXES = (".json", ".yaml", ".yml")
"""Suffixes of manifests in a directory."""
BYTES_MAX = 16 * 2**20
"""Bytes of a file that is compared; podslice itself reads fewer."""
_CHUNK = 2**18


def read_text(path: str, *, follow: bool = False) -> str | None:
    """Return the text of a file; None if it does not exist.

    Members of a group may write to the directory of manifests, and this may run as root. So only
    regular files are read, without blocking, and links only where that is requested.

    Raises:
        Failure: it cannot be read, or is not a file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Failure(f"{path} is a symbolic link: remove it, or use its target") from error
        raise Failure(f"{path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Failure(f"{path} is not a regular file")
        return _read(descriptor, path).decode("utf-8", "surrogateescape")
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: str) -> bytes:
    """Return the content of an open file, which may grow meanwhile.

    Raises:
        Failure: it is larger than the limit.
    """
    chunks = []
    left = BYTES_MAX
    while chunk := os.read(descriptor, _CHUNK):
        left -= len(chunk)
        if left < 0:
            raise Failure(
                f"{path} is larger than {BYTES_MAX // 2**20} MiB, and is not compared: podslice"
                " reads no such file. Remove it, or use another name"
            )
        chunks.append(chunk)
    return b"".join(chunks)


def write_text(path: str, text: str, *, mode: int | None = None) -> None:
    """Replace or create a file, whose directory is created if necessary.

    Without a mode, the file is what its directory requires: its default ACL or the umask apply,
    and a directory that other users may not read gets files that they may not read. A directory
    with the setgid bit passes on its group.

    Raises:
        Failure: it cannot be written.
    """
    directory = os.path.dirname(path)
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        if mode is None:
            mode = mode_of_files(os.stat(directory).st_mode)
        descriptor, new = tempfile.mkstemp(dir=directory, prefix=f".{os.path.basename(path)}.")
        try:
            with open(
                descriptor, "w", encoding="utf-8", errors="surrogateescape", newline=""
            ) as file:
                file.write(text)
                file.flush()
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise
    except OSError as error:
        raise Failure(
            f"{path} cannot be written: {error.strerror}; this requires 'become: true'"
        ) from error


def mode_of_files(directory_mode: int) -> int:
    """Return the mode of new files in a directory: 0644, or 0640 where others may not read it."""
    return 0o644 if directory_mode & stat.S_IROTH else 0o640


def remove(path: str) -> None:
    """Remove a file, if it exists.

    Raises:
        Failure: it cannot be removed.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Failure(
            f"{path} cannot be removed: {error.strerror}; this requires 'become: true'"
        ) from error


def list_manifests(directory: str) -> list[str]:
    """Return the paths of the manifests in a directory, in the order of their names.

    As podslice does with a directory, it leaves out what is not a file, and links of other users.

    Raises:
        Failure: the directory cannot be read.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Failure(f"{directory}: {error.strerror}; this requires 'become: true'") from error
    paths = (os.path.join(directory, name) for name in sorted(names))
    return [path for path in paths if is_manifest(path)]


def is_manifest(path: str) -> bool:
    """Return whether podslice reads a file of a directory as a manifest."""
    name = os.path.basename(path)
    if not name.endswith(MANIFEST_SUFFIXES) or name.startswith("."):
        return False
    try:
        itself, target = os.lstat(path), os.stat(path)
    except OSError:
        return False
    is_link = stat.S_ISLNK(itself.st_mode)
    is_followed = itself.st_uid in (0, os.geteuid(), target.st_uid)
    return stat.S_ISREG(target.st_mode) and (is_followed or not is_link)
