"""The user who calls a verb."""

from __future__ import annotations

import pwd
from collections.abc import Mapping

from podslice.kernel.proc import read_login_uid
from podslice.model.manual_change import Account, Caller

_NAME_MAX = 256
"""Longer than any name of a user. Source: limits.h, LOGIN_NAME_MAX."""


def find_caller(environment: Mapping[str, str]) -> Caller:
    """Return the account of the login, and the one that sudo has left in the environment."""
    uid = read_login_uid()
    login = None if uid is None else Account(uid=uid, name=_name(uid))
    return Caller(login=login, sudo=_from_sudo(environment))


def _from_sudo(environment: Mapping[str, str]) -> Account | None:
    name, uid = environment.get("SUDO_USER", ""), environment.get("SUDO_UID", "")
    number = int(uid) if uid.isascii() and uid.isdecimal() and len(uid) <= len(str(2**32)) else None
    if not name and number is None:
        return None
    return Account(uid=number, name=name[:_NAME_MAX])


def _name(uid: int) -> str:
    """Return the name of a user; empty if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""
