"""Whether pods may run from quadlets, without reading them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podslice.model.manager import Manager


def may_have_quadlets(manager: Manager) -> bool:
    """Return whether a pod may have files for podman's generator."""
    return any(Path(manager.generator_directory).glob("*.pod"))
