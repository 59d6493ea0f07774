"""Whether pods run from quadlets."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from podslice.errors import HostError
from podslice.model.manager import Manager
from podslice.model.naming import DATA, podman_pod
from podslice.processes.quadlet_files import read_owner


def pods_with_quadlets(keys: Iterable[str], manager: Manager) -> frozenset[str]:
    """Return those pods that run from quadlets, as far as this user may read these."""
    directory, found = Path(manager.generator_directory), set()
    files = {path.stem: path for path in directory.glob("*.pod")}
    if not files:
        return frozenset()

    for key in keys:
        path = files.get(podman_pod(key))
        with suppress(HostError):
            if path is not None and read_owner(path) == key:
                found.add(key)
    return frozenset(found)


def may_have_quadlets(manager: Manager) -> bool:
    """Return whether a pod may have files for podman's generator, or data.

    The services of podslice in a sandbox have access to neither.
    """
    if any(Path(manager.generator_directory).glob("*.pod")):
        return True
    with suppress(OSError):
        return any(Path(manager.own_state_directory, DATA).iterdir())
    return False
