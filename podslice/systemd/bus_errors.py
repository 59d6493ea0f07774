"""Errors of podslice for the errors that systemd and the bus reply with."""

from __future__ import annotations

from podslice.errors import (
    BadProperty,
    BusUnavailable,
    CallTimeout,
    NoSuchUnit,
    Refused,
    SystemdError,
    UnitExists,
)
from podslice.systemd.dbus.wire import Received

_BUS = "org.freedesktop.DBus.Error."
_SYSTEMD = "org.freedesktop.systemd1."

_ERRORS: dict[str, type[SystemdError]] = {
    _SYSTEMD + "UnitExists": UnitExists,
    _SYSTEMD + "NoSuchUnit": NoSuchUnit,
    _SYSTEMD + "BadUnitSetting": BadProperty,  # a required property is missing
    _BUS + "InvalidArgs": BadProperty,
    _BUS + "PropertyReadOnly": BadProperty,  # systemd replies so to an unknown property, too
    _BUS + "UnknownProperty": BadProperty,
    _BUS + "FileNotFound": BadProperty,  # a scope without processes
    _BUS + "UnixProcessIdUnknown": BadProperty,  # a process that has exited
    "System.Error.ENXIO": BadProperty,  # a value of the wrong type
    "System.Error.ESRCH": BadProperty,  # as UnixProcessIdUnknown, from 255 on
    _BUS + "AccessDenied": Refused,
    _BUS + "AuthFailed": Refused,
    _BUS + "InteractiveAuthorizationRequired": Refused,
    "System.Error.EACCES": Refused,
    "System.Error.EPERM": Refused,
    _BUS + "Timeout": CallTimeout,
    _BUS + "TimedOut": CallTimeout,
    _BUS + "LimitsExceeded": BusUnavailable,
}
"""By name; every other error is a SystemdError whose message has the name."""

_PROCESS_EXITED = {_BUS + "UnixProcessIdUnknown", "System.Error.ESRCH"}
_AS_ROOT = "run as root, or use --user"


def error_of(reply: Received, about: str) -> SystemdError:
    """Return the error for an error reply; `about` is the unit, or another subject of the call."""
    reason = reply.reason
    if reply.error_name in _PROCESS_EXITED:
        reason = f"a process has exited ({reason})"
    kind = _ERRORS.get(reply.error_name, SystemdError)
    if kind is Refused:
        return Refused(f"{about}: access denied ({reason}); {_AS_ROOT}")
    if kind is SystemdError:
        return SystemdError(f"{about}: {reason} ({reply.error_name})")
    return kind(f"{about}: {reason}")
