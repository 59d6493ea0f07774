"""Whether pods may run from quadlets, without reading them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from podslice.model.naming import DATA

if TYPE_CHECKING:
    from podslice.model.manager import Manager


def may_have_quadlets(manager: Manager) -> bool:
    """Return whether a pod may have files for podman's generator, or data.

    The services of podslice in a sandbox have access to neither.
    """
    if any(Path(manager.generator_directory).glob("*.pod")):
        return True
    with suppress(OSError):
        return any(Path(manager.own_state_directory, DATA).iterdir())
    return False
