"""The files of `podslice node init`.

The first line of each file marks it, and the second has the checksum of the rest, so that
`node reset` removes only unmodified files.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from podslice.cli import interrupts
from podslice.dataclass import dataclass
from podslice.errors import HostError
from podslice.files import NotRegularError, follow_links, read_regular

MARK = "# Written by podslice node init; podslice node reset removes it."
_BYTES_MAX = 2**20
"""A larger file was not written by `node init`."""


def mark(text: str) -> str:
    """Return the text of a file with its mark and its checksum."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{MARK}\n# {checksum}\n{text}"


def body(text: str) -> str:
    """Return the text of a file without its mark and its checksum."""
    return text.partition("\n")[2].partition("\n")[2]


def read(path: Path) -> str | None:
    """Return the text of a file; None if it does not exist.

    Raises:
        HostError: it cannot be read.
    """
    try:
        data = read_regular(path, limit_bytes=_BYTES_MAX, locate=follow_links)
        return data.decode(errors="replace")
    except FileNotFoundError:
        return None
    except NotRegularError as error:
        raise HostError(f"{path} {error}") from error
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file as it is and as it should be; None for one that does not exist."""

    path: Path
    before: str | None
    wanted: str | None

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
        """Whether the file is not as it should be."""
        return self.before != self.wanted

    @property
    def is_change(self) -> bool:
        """Whether the file is written or removed: not if others have written or modified it."""
        return self.is_ours and self.differs

    @property
    def after(self) -> str | None:
        """The text after the change."""
        return self.wanted if self.is_change else self.before

    def stay(self) -> FileChange:
        """Return the file without a change."""
        return replace(self, wanted=self.before)

    def execute(self) -> None:
        """Write or remove the file.

        Raises:
            HostError: that is not possible.
        """
        if self.wanted is None:
            _remove(self.path)
        else:
            _write(self.path, self.wanted)


def _write(path: Path, text: str) -> None:
    interrupts.begin("not all files may be written; to continue, run the same command again")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}; run as root") from error


def _remove(path: Path) -> None:
    """Remove a file, and its drop-in directory if that is empty."""
    interrupts.begin("not all files may be removed; to continue, run the same command again")
    try:
        path.unlink()
        if path.parent.name.endswith(".d"):
            path.parent.rmdir()
    except OSError as error:
        if path.exists():
            raise HostError(f"{path}: {error.strerror}; run as root") from error
