"""The record of the values that podslice has set on slices of a kubelet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podslice.model.level_plan import LEVEL_PROPERTIES, LevelValues
from podslice.model.unit import INFINITY, UnitName
from podslice.store.atomic import read_json, remove, write_json, writing


class LevelRecord:
    """A file, which exists while there are such values."""

    def __init__(self, root: Path) -> None:
        """`root` is the directory of all records."""
        self._path = root / "pod-levels.json"

    def read(self) -> LevelValues:
        """Return the values; none where the file is damaged."""
        try:
            return _levels(read_json(self._path))
        except (OSError, KeyError, ValueError, TypeError, AttributeError):
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


def _levels(found: Mapping[str, Any]) -> LevelValues:
    return {
        UnitName(str(unit)): {_known(name): _number(value) for name, value in values.items()}
        for unit, values in found["slices"].items()
    }


def _known(name: str) -> str:
    if name in LEVEL_PROPERTIES:
        return name
    raise ValueError(name)


def _number(value: object) -> int:
    if isinstance(value, int) and 0 <= value <= INFINITY:
        return value
    raise TypeError(value)
