"""A service of another program in a pod."""

from __future__ import annotations

from dataclasses import dataclass

from podslice.model.unit import ObservedUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class PodService:
    """A service that starts in a pod."""

    pod: str
    container: str
    """The container that an adopted service is; the name of another one."""
    unit: ObservedUnit
    """As systemd has it; inactive where it is not loaded."""
