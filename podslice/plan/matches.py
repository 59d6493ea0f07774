"""Units that are as desired, so that a later plan need not compare them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.model.unit import Caps, DesiredUnit, ObservedUnit, UnitName

Pair = tuple[DesiredUnit, ObservedUnit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Pairs of desired and observed units of pods that require no step."""

    caps: Caps
    force: bool = False
    pairs: Mapping[UnitName, Pair] = field(default_factory=dict)

    def under(self, caps: Caps, *, force: bool) -> Matches:
        """Return them if they hold with these capabilities and this option, else none."""
        return self if (self.caps, self.force) == (caps, force) else NO_MATCHES

    def has(self, unit: DesiredUnit, there: ObservedUnit | None) -> bool:
        """Return whether these units, or equal ones, were compared.

        Usually they are the same objects. Where the hugetlb controller exists, observed slices with
        limits of huge pages are new objects in every round.
        """
        return self.pairs.get(unit.name) == (unit, there)


NO_MATCHES = Matches(caps=Caps(systemd_version=0))
