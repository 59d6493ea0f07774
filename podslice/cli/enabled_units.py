"""Whether a unit of podslice is enabled: whether it starts with its service manager."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from podslice.model.manager import Manager


def is_enabled(unit: str, manager: Manager) -> bool:
    """Return whether a target that starts with the service manager wants the unit.

    That systemd has loaded a unit does not show this: others may refer to it.

    Source: systemd.unit(5), "Unit File Load Path" and "[Install] Section Options".
    """
    return any((each / unit).is_symlink() for each in _wanted(manager))


def _wanted(manager: Manager) -> Iterator[Path]:
    own = Path(manager.config_directory, "systemd")
    if not manager.is_user:
        yield own / "system/multi-user.target.wants"
        return
    for each in (own, Path("/etc/systemd")):
        yield each / "user/default.target.wants"
