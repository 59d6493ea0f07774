"""Records of what verbs are about to change; the agent removes them once it has read them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from podslice.model.manual_change import ManualChange
from podslice.store import marks
from podslice.store.atomic import entries, read_json, remove, write_json, writing


class ManualChanges:
    """A file for each process of podslice."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, change: ManualChange) -> None:
        """Write the record of a change.

        Raises:
            HostError: it can't be written.
        """
        with writing(self.directory):
            write_json(self._path(change), asdict(change))

    def load(self) -> tuple[ManualChange, ...]:
        """Return the recorded changes; damaged records are removed."""
        found = []
        for path in entries(self.directory):
            if path.suffix != ".json":
                continue  # it is being written
            with suppress(OSError):
                change = marks.read(marks.manual_change, read_json(path))
                if change is None:
                    path.unlink(missing_ok=True)
                else:
                    found.append(change)
        return tuple(found)

    def drop(self, change: ManualChange) -> None:
        """Remove a record, if there is one.

        Raises:
            HostError: it can't be removed.
        """
        with writing(self.directory):
            remove(self._path(change))
        with suppress(OSError):
            self.directory.rmdir()

    def _path(self, change: ManualChange) -> Path:
        return self.directory / f"{change.pid}-{change.started_ticks}.json"
