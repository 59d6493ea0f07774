"""The record of the values that podslice has set on slices of a kubelet."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from podslice.features.kubelet.node import LEVEL_PROPERTIES, LevelValues
from podslice.model.unit import UnitName
from podslice.store import marks
from podslice.store.atomic import read_json, remove, write_json, writing


class LevelRecord:
    """A file, which exists while there are such values."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of all records."""
        self._path = root / "pod-levels.json"

    def read(self) -> LevelValues:
        """Return the values; none where the file is damaged."""
        with suppress(OSError):
            found = marks.read(dict[UnitName, dict[str, int]], read_json(self._path).get("slices"))
            if found and all(each.keys() <= set(LEVEL_PROPERTIES) for each in found.values()):
                return found
        return {}

    def save(self, levels: LevelValues) -> None:
        """Write the values, if they have changed; without any, remove the file.

        Raises:
            HostError: it can't be written.
        """
        with writing(self._path):
            if not levels:
                remove(self._path)
            elif levels != self.read():
                write_json(self._path, {"slices": {unit: dict(levels[unit]) for unit in levels}})
