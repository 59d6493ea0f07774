"""The record of the values that podslice has set on slices of a kubelet."""

from __future__ import annotations

from pathlib import Path

from podslice.features.kubelet.node import LEVEL_PROPERTIES, LevelValues
from podslice.model.unit import UnitName
from podslice.store.files import ValueFile


class LevelRecord:
    """A file, which exists while there are such values."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of all records."""
        kind = dict[str, dict[UnitName, dict[str, int]]]
        self._file = ValueFile(root / "pod-levels.json", kind)

    def read(self) -> LevelValues:
        """Return the values; none where the file is damaged."""
        found = (self._file.read() or {}).get("slices", {})
        is_valid = all(each.keys() <= set(LEVEL_PROPERTIES) for each in found.values())
        return found if is_valid else {}

    def save(self, levels: LevelValues) -> None:
        """Write the values, if they have changed; without any, remove the file.

        Raises:
            HostError: it can't be written.
        """
        slices = {
            unit: {name: int(value) for name, value in values.items()}
            for unit, values in levels.items()
        }
        self._file.save({"slices": slices} if slices else None)
