"""Files of the host: no path leaves its root through a link, and files of others are left alone.

Directories are opened one by one, each by its name in the one before, so that replacing one by a link
meanwhile has no effect. Links that stay below the root are followed, such as the links of a merged /usr.

Source: openat2(2), RESOLVE_BENEATH, for which Python has no function.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from podslice.cli import interrupts
from podslice.errors import HostError, InputError, invalid, printable
from podslice.kernel.files import NotRegularError, read_regular
from podslice.store.files import replace_file

_BYTES_MAX = 2**20
"""The limit of a file that is read; the files of `node init` are smaller."""
_ABSENT = (FileNotFoundError, NotADirectoryError)
_LINKS_MAX = 40
"""Source: Linux, include/linux/namei.h, MAXSYMLINKS."""


class FileTree:
    """The files below a root directory, named by their paths below it."""

    def __init__(self, root: Path) -> None:
        """Take a root directory.

        Raises:
            InputError: it does not exist.
        """
        if not root.is_dir():
            message = f"{printable(str(root))} is not a directory"
            raise invalid(message, where="--root")
        self.root = root
        self.is_host = root.samefile("/")
        """Whether nothing is outside of it."""

    def path(self, name: str) -> Path:
        """Return the path of a file for messages."""
        return self.root / name

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if it does not exist, and empty if it is a link.

        Raises:
            HostError: it cannot be read.
            InputError: a directory of its path is a link that leaves the root.
        """
        if self.link_target(name):
            return ""
        with suppress(*_ABSENT), self._errors(name), self._directory(name) as (directory, base):
            flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
            data = read_regular(
                base,
                limit_bytes=_BYTES_MAX,
                locate=lambda each: os.open(each, flags, dir_fd=directory),
            )
            return data.decode(errors="replace")
        return None

    def write(self, name: str, text: str) -> None:
        """Write a file atomically; make the directories above it.

        Raises:
            HostError: that is not possible.
            InputError: as `read`.
        """
        with (
            self._errors(name, is_new=True),
            self._directory(name, create=True) as (directory, base),
        ):
            replace_file(base, text.encode(), new=f".{base}.new", directory=directory)

    def remove(self, name: str) -> None:
        """Remove a file, and its drop-in directory if that is empty.

        Raises:
            HostError: that is not possible.
            InputError: as `read`.
        """
        with suppress(*_ABSENT), self._errors(name), self._directory(name) as (directory, base):
            os.unlink(base, dir_fd=directory)
        parent = str(Path(name).parent)
        if parent.endswith(".d"):
            with suppress(OSError), self._directory(parent) as (directory, base):
                os.rmdir(base, dir_fd=directory)

    def link_target(self, name: str) -> str | None:
        """Return the target of a link, and empty for another file; None if there is none.

        Raises:
            HostError: it cannot be determined.
            InputError: as `read`.
        """
        with suppress(*_ABSENT), self._errors(name), self._directory(name) as (directory, base):
            status = os.stat(base, dir_fd=directory, follow_symlinks=False)
            return os.readlink(base, dir_fd=directory) if stat.S_ISLNK(status.st_mode) else ""
        return None

    def names(self, name: str) -> list[str]:
        """Return the names in a directory; none if it does not exist.

        Raises:
            HostError: it cannot be read.
            InputError: as `read`.
        """
        with suppress(*_ABSENT), self._errors(name), self._directory(f"{name}/.") as (found, _):
            return sorted(path.name for path in Path(f"/proc/self/fd/{found}").iterdir())
        return []

    @contextmanager
    def _errors(self, name: str, *, is_new: bool = False) -> Iterator[None]:
        """Translate errors, except that an existing file does not exist."""
        path = printable(str(self.path(name)))
        try:
            yield
        except NotRegularError as error:
            raise HostError(f"{path} {error}") from error
        except OSError as error:
            if not is_new and isinstance(error, _ABSENT):
                raise
            hint = "; run as root" if isinstance(error, PermissionError) else ""
            raise HostError(f"{path}: {error.strerror}{hint}") from error

    @contextmanager
    def _directory(self, name: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the directory of a file, and yield its descriptor and the last component of the path.

        Raises:
            OSError: it cannot be opened.
            InputError: a directory is a link that leaves the root.
        """
        parent, base = os.path.split(name)
        opened: list[tuple[str, int]] = []
        """The names and descriptors of the directories from the root on."""
        try:
            opened.append(("", os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)))
            left = parent.split("/")[::-1]
            links: list[tuple[Path, str]] = []
            while left:
                component = left.pop()
                if component == "..":
                    self._leave(opened, links)
                elif component not in ("", "."):
                    opened.append((component, _open(opened[-1][1], component, create=create)))
                    left += self._follow(opened, links)
            yield opened[-1][1], base
        finally:
            for _, descriptor in opened:
                os.close(descriptor)

    def _leave(self, opened: list[tuple[str, int]], links: list[tuple[Path, str]]) -> None:
        """Return to the parent directory, as the last link states.

        Raises:
            InputError: it is outside of the root.
        """
        if len(opened) > 1:
            os.close(opened.pop()[1])
        elif not self.is_host:
            raise leaving(*links[-1], self.root)

    def _follow(self, opened: list[tuple[str, int]], links: list[tuple[Path, str]]) -> list[str]:
        """Close what was opened last if it is a link, and return the components of its target.

        Raises:
            InputError: its target is not below the root.
            OSError: it is neither a directory nor a link, or one of too many links.
        """
        descriptor = opened[-1][1]
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            return []
        if not stat.S_ISLNK(mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        target = os.readlink("", dir_fd=descriptor)
        links.append((self.path("/".join(name for name, _ in opened[1:])), target))
        if target.startswith("/") and not self.is_host:
            raise leaving(*links[-1], self.root)
        if len(links) > _LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        os.close(opened.pop()[1])
        while target.startswith("/") and len(opened) > 1:
            os.close(opened.pop()[1])
        return target.split("/")[::-1]


def leaving(link: Path, target: str, root: Path) -> InputError:
    """Return the error of a link that leaves the root."""
    hint = f"replace it by a file or a directory, or by a relative link that stays below {root}"
    message = f"is a link to {printable(target)}, which is not followed"
    return invalid(message, hint, where=printable(str(link)))


def _open(directory: int, name: str, *, create: bool) -> int:
    """Open a file or a link without reading it; make a directory if nothing has this name."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, flags, dir_fd=directory)


MARK = "# Written by podslice node init; podslice node reset removes it."


def mark(text: str) -> str:
    """Return the text of a file with its mark and its checksum."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{MARK}\n# {checksum}\n{text}"


def body(text: str) -> str:
    """Return the text of a file without its mark and its checksum."""
    return text.partition("\n")[2].partition("\n")[2]


class FileChange(NamedTuple):
    """A file with its present and its wanted text; None where it does not, or should not, exist."""

    tree: FileTree
    name: str
    """Its path below the root."""
    before: str | None
    """Empty for a link, which others have made."""
    wanted: str | None

    @property
    def path(self) -> Path:
        """The whole path."""
        return self.tree.path(self.name)

    @property
    def shown(self) -> str:
        """The whole path, for output."""
        return printable(str(self.path))

    @property
    def is_marked(self) -> bool:
        """Whether the file was written by `node init`."""
        return self.before is not None and self.before.startswith(MARK)

    @property
    def is_ours(self) -> bool:
        """Whether the file does not exist, or is unmodified since podslice wrote it."""
        return self.before is None or self.before == mark(body(self.before))

    @property
    def differs(self) -> bool:
        """Whether the content of the file is to change."""
        return self.before != self.wanted

    @property
    def is_change(self) -> bool:
        """Whether the file is written or removed: not if others have written or modified it."""
        return self.is_ours and self.differs

    @property
    def after(self) -> str | None:
        """The text after the change."""
        return self.wanted if self.is_change else self.before

    def execute(self) -> None:
        """Write or remove the file.

        Raises:
            HostError: that is not possible.
        """
        done = "removed" if self.wanted is None else "written"
        interrupts.begin(f"not all files may be {done}; to continue, run the same command again")
        if self.wanted is None:
            self.tree.remove(self.name)
        else:
            self.tree.write(self.name, self.wanted)
