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


NO_MATCHES = Matches(caps=Caps(systemd_version=0))
