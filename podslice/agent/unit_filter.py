"""Selects the units that concern the agent."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.model.unit import UnitKind, UnitName
from podslice.reconcile.assessment import Assessment


class UnitFilter:
    """The units below the root, and the reserved slices."""

    def __init__(self, root: UnitName) -> None:
        self._prefix = root.removesuffix(".slice")
        self._reserved: frozenset[UnitName] = frozenset()

    def update(self, assessment: Assessment) -> None:
        """Take the root and the reserved slices from an assessment."""
        self._prefix = assessment.desired.root.removesuffix(".slice")
        self._reserved = frozenset(unit.name for unit in assessment.desired.units if not unit.owned)

    def __contains__(self, name: UnitName) -> bool:
        """Return whether a change of a unit concerns the agent."""
        if name.startswith((self._prefix, "podslice-pod")) or name.endswith(".mount"):
            return True
        return name in self._reserved

    def watched_groups(self, assessment: Assessment) -> Mapping[UnitName, str]:
        """Return the control groups to watch, by their slices."""
        return {
            name: unit.control_group
            for name, unit in assessment.observed.units.items()
            if unit.control_group
            and name.endswith(f".{UnitKind.SLICE}")
            and (name.startswith(self._prefix) or name in self._reserved)
        }
