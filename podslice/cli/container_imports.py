"""Containers of podman to import, with their settings and use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from podslice.cli import coroutines
from podslice.cli.views.import_text import ImportSource, Mover
from podslice.errors import HostError
from podslice.model.manager import Manager
from podslice.model.unit import UnitName
from podslice.processes import podman_inspect
from podslice.processes.podman_inspect import PodmanContainer
from podslice.usage import present_use

_OF_MEMBER = "It is in a podman pod, whose own options are not included: see podman pod inspect"


def import_containers(
    names: Sequence[str], root: UnitName, manager: Manager
) -> tuple[ImportSource, ...]:
    """Return the containers of root's podman, or with a user manager those of the user.

    `root` is the slice of pods.

    Raises:
        HostError: podman is of another user, not installed, or fails.
        InputError: a container cannot be imported.
    """
    if manager.is_user != bool(os.geteuid()):
        who = "as that user, not as root" if manager.is_user else "as root, or add --user"
        raise HostError(f"podman has containers for each user: run podslice {who}")
    if shutil.which("podman") is None:
        raise HostError("podman is not installed, or not in PATH")
    found = coroutines.run(podman_inspect.inspect_podman(names, root))
    return tuple(map(_source, found))


def _source(container: PodmanContainer) -> ImportSource:
    what, group = f"podman container {container.name}", container.control_group
    # quadlets have --cgroups=split; if it does not run, it is most probably one of them
    is_split = bool(container.unit) and (not group or f"/{container.unit}/" in group)
    return ImportSource(
        name=container.name,
        what=what,
        settings=container.settings,
        oom_score_adj=container.oom_score_adj,
        use=present_use.group_use(group, container.name, what),
        mover=Mover.QUADLET if is_split else Mover.PODMAN,
        unit=container.unit,
        caveat=_OF_MEMBER if container.is_member else "",
    )
