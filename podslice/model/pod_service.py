"""A service that is a container of a pod, by its drop-in."""

from __future__ import annotations

from podslice.dataclass import dataclass
from podslice.model.unit import ObservedUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class PodService:
    """An adopted service, which is a container of its pod."""

    pod: str
    container: str
    unit: ObservedUnit
    """As systemd has it; inactive where it is not loaded."""
