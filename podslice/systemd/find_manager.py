"""The service manager that the environment of this process leads to."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

from podslice.model.unit import SYSTEM, SYSTEM_BUS_ADDRESS, Manager, user_manager


def find_manager(*, user: bool = False) -> Manager:
    """Return the system's manager, or with `user` that of the user who runs this process."""
    if not user:
        address = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", SYSTEM_BUS_ADDRESS)
        return replace(SYSTEM, bus_address=address)
    manager = user_manager(os.getuid(), {**os.environ, "HOME": _home()})
    session = os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    # the bus of a session may be one without a systemd: it is only the second choice
    if session and not Path(manager.runtime_directory, "bus").exists():
        return replace(manager, bus_address=session)
    return manager


def _home() -> str:
    """Return the home directory: HOME, or that of the user database if HOME is not absolute.

    Source: systemd, src/basic/user-util.c, get_home_dir.
    """
    home = os.environ.get("HOME", "")
    if home.startswith("/"):
        return home
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a user without an entry
        return "/"
