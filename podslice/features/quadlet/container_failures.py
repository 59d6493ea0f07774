"""The record of why containers that the agent keeps do not run; it exists while there is a reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from podslice.model.node_state import ContainerFailure
from podslice.store.files import ValueFile


class ContainerFailures:
    """The failures that the last run of the service for containers has found."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of the store."""
        kind = dict[str, tuple[ContainerFailure, ...]]
        self._file = ValueFile(root / "container-failures.json", kind)

    def save(self, failures: Sequence[ContainerFailure]) -> None:
        """Replace the record; without any failure, remove it.

        Raises:
            HostError: it can't be written.
        """
        self._file.save({"failures": tuple(failures)} if failures else None)

    def load(self) -> tuple[ContainerFailure, ...]:
        """Return the failures; none where the record is damaged."""
        return (self._file.read() or {}).get("failures", ())
