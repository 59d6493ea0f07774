"""The files of `podslice node init`.

The first line of each file marks it, and the second has the checksum of the rest, so that
`node reset` removes only unmodified files.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from podslice.cli import interrupts
from podslice.cli.file_tree import FileTree
from podslice.errors import printable

MARK = "# Written by podslice node init; podslice node reset removes it."


def mark(text: str) -> str:
    """Return the text of a file with its mark and its checksum."""
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return f"{MARK}\n# {checksum}\n{text}"


def body(text: str) -> str:
    """Return the text of a file without its mark and its checksum."""
    return text.partition("\n")[2].partition("\n")[2]


class FileChange(NamedTuple):
    """A file as it is and as it should be; None for one that does not exist."""

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
        return self._replace(wanted=self.before)

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
