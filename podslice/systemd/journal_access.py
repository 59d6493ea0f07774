"""Which messages of the journal this user may read, and the command that shows them."""

from __future__ import annotations

import os
from pathlib import Path

from podslice.model.manager import Manager
from podslice.model.unit import UnitName

JOURNAL_DIRECTORIES = (Path("/var/log/journal"), Path("/run/log/journal"))
"""The directories of the journal's files. Source: systemd-journald.service(8), FILES."""


def is_readable(pattern: str) -> bool:
    """Return whether this user may read a file of the journal whose name matches a pattern."""
    files = (path for base in JOURNAL_DIRECTORIES for path in base.glob(f"*/{pattern}"))
    return any(os.access(path, os.R_OK) for path in files)


def has_access() -> bool:
    """Return whether this user may read any messages; root may, also where none are kept."""
    return os.geteuid() == 0 or is_readable("*.journal")


def reading_command(unit: UnitName, manager: Manager) -> str:
    """Return the command that shows the messages of a unit to this user."""
    if manager.is_user and not has_access():
        return f"sudo journalctl _SYSTEMD_USER_UNIT={unit}"
    return f"journalctl{manager.flag} -u {unit}"
