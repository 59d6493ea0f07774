"""A unit with all settings of resources, which may be inactive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from podslice.model.unit import ObservedUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedUnit:
    """A unit that is loaded, or was loaded to inspect it."""

    observed: ObservedUnit
    further: Mapping[str, str] = field(default_factory=dict)
    """Settings that are set and that podslice does not manage: key in a unit file → value, empty
    for a list of structures."""
