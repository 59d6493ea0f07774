# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""Files that exist completely or not at all."""

from __future__ import annotations

import os
import stat
import tempfile

from .podslice import Failure

MANIFEST_SUFFIXES = (".json", ".yaml", ".yml")
"""Suffixes of manifests in a directory."""
_BYTES_MAX = 16 * 2**20


def read_text(path: str) -> str | None:
    """Return the text of a file; None if it does not exist.

    Raises:
        Failure: it cannot be read, or is not a file.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Failure(f"{path} is not a regular file")
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read(_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error


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
    is_named = name.endswith(MANIFEST_SUFFIXES) and not name.startswith(".")
    return is_named and not os.path.isdir(path)
