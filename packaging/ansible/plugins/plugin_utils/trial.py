# Copyright: Contributors to podslice
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

"""The confirmation of values on trial: by a new login, or not at all.

Pure, but for the functions that it is given.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

RETRY_SEC = 6.0
"""Between two logins. sshd counts 5 s for each that fails, and from 15 s on refuses all of a source.

Source: sshd_config(5) of OpenSSH 9.8, PerSourcePenalties (authfail, min).
"""
RETURN_SEC = 5.0
"""After this time, systemd on the host has restored the old values."""
LOOKS = 5
"""Logins after that, which find out what has happened."""

ARMED = "armed"
"""The state of values that a timer of systemd will replace by the old ones."""
_UNCHANGED = "unchanged"
"""Of no values."""
_FORM_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What code raises that reads a document with other keys or types than it knows."""


class NoLogin(Exception):
    """A login has failed."""


class Ended(NamedTuple):
    """The result of a command on the host."""

    code: int
    out: str
    err: str


class Host(Protocol):
    """The host, with a connection that can be replaced by a new one."""

    def log_in(self) -> None:
        """Close the connection, so that the next command begins with a new login."""

    def run(self, words: list[str]) -> Ended:
        """Run a command.

        Raises:
            NoLogin: there was no connection for it.
        """


class Clock(Protocol):
    """A clock that does not go back, and a way to wait."""

    def monotonic(self) -> float:
        """Return the time in seconds."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


def conclude(unconfirmed: dict[str, Any], seconds: int, host: Host, clock: Clock) -> dict[str, Any]:
    """Confirm values over a new connection before they are restored, and return the result.

    They are on trial for `seconds`; what the module returned may not state more.
    """
    try:
        remaining = float(unconfirmed["remaining_sec"])
        names = ", ".join(str(unit["unit"]) for unit in unconfirmed["units"])
        for name in ("confirm_command", "status_command"):
            if not isinstance(unconfirmed[name], list) or not unconfirmed[name]:
                raise TypeError(name)
            unconfirmed[name] = list(map(str, unconfirmed[name]))
    except _FORM_ERRORS as error:
        return {
            "failed": True,
            "confirmed": False,
            "reverted": None,
            "msg": f"the host described its new values in an unknown form ({str(error)[:300]!r}),"
            " and they were not confirmed; systemd on the host restores the old ones",
        }
    # not a number counts as no time
    deadline = clock.monotonic() + (min(remaining, seconds) if remaining > 0 else 0)
    error = ""
    while True:
        try:
            host.log_in()
            ended = host.run(unconfirmed["confirm_command"])
        except NoLogin as failure:
            error = f"no new login succeeded in time: {failure}"
        else:
            if ended.code == 0:
                return {"confirmed": True}
            error = ended.err.strip() or ended.out.strip() or f"exit code {ended.code}"
            if _state(unconfirmed["status_command"], host) not in (ARMED, None):
                deadline = clock.monotonic()
                break
        if clock.monotonic() + RETRY_SEC > deadline:
            break
        clock.sleep(RETRY_SEC)
    clock.sleep(max(deadline - clock.monotonic(), 0))
    what = f"the new values of {names} were not confirmed: {error}"
    return _failed(what, unconfirmed["status_command"], host, clock)


def conclude_lost(
    seconds: int, executable: str, error: str, host: Host, clock: Clock
) -> dict[str, Any]:
    """Return the result after the connection was lost while values were set on trial."""
    clock.sleep(seconds)
    what = f"the connection was lost while new values were set, which were not confirmed: {error}"
    return _failed(what, [executable, "status", "--output=json"], host, clock)


def _failed(what: str, status_command: list[str], host: Host, clock: Clock) -> dict[str, Any]:
    """Return the result of a trial whose time is over."""
    clock.sleep(RETURN_SEC)
    state = _look(status_command, host, clock)
    return {
        "failed": True,
        "confirmed": False,
        "reverted": None if state is None else state == "returned",
        "msg": f"{what}; {_describe(state)}",
    }


def _look(command: list[str], host: Host, clock: Clock) -> str | None:
    """Return the state of the values; None if it cannot be determined."""
    for look in range(LOOKS):
        if look:
            clock.sleep(RETRY_SEC)
        with suppress(NoLogin):
            host.log_in()
            if state := _state(command, host):
                return state
    return None


def _state(command: list[str], host: Host) -> str | None:
    """Return the state of the values over the present connection; None if it cannot be determined."""
    try:
        status = json.loads(host.run(command).out)
        return str((status.get("unconfirmed") or {"state": _UNCHANGED})["state"])
    except (NoLogin, *_FORM_ERRORS):
        return None


def _describe(state: str | None) -> str:
    if state == "returned":
        return "systemd on the host has restored the old ones"
    if state is None:
        return (
            "systemd on the host restores the old ones without a connection, but the host cannot be"
            " reached to verify it"
        )
    if state == _UNCHANGED:
        return "on the host there are no values to confirm"
    return f"on the host their state is {state}; see: podslice status"
