"""The record of why containers that the agent keeps do not run; it exists while there is a reason."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from podslice.model.node_state import ContainerFailure
from podslice.store import marks
from podslice.store.atomic import read_json, remove, write_json, writing


class ContainerFailures:
    """The failures that the last run of the service for containers has found."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of the store."""
        self._path = root / "container-failures.json"

    def save(self, failures: Sequence[ContainerFailure]) -> None:
        """Replace the record; without any failure, remove it.

        Raises:
            HostError: it can't be written.
        """
        with writing(self._path.parent):
            if failures:
                write_json(self._path, {"failures": [asdict(each) for each in failures]})
            else:
                remove(self._path)

    def load(self) -> tuple[ContainerFailure, ...]:
        """Return the failures; none where the record is damaged."""
        with suppress(OSError):
            found = read_json(self._path).get("failures", [])
            return marks.read(tuple[ContainerFailure, ...], found) or ()
        return ()
