"""A service of another program in a pod."""

from __future__ import annotations

from typing import NamedTuple

from podslice.model.unit import ObservedUnit


class PodService(NamedTuple):
    """A service that starts in a pod."""

    pod: str
    container: str
    """The container that an adopted service is; the name of another one."""
    unit: ObservedUnit
    """As systemd has it; inactive where it is not loaded."""
