"""The last exit of a service, as systemd has it while the unit is loaded."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from podslice.model.container_exit import OOM_KILL, OOMD_KILL, SIGNAL, ContainerExit
from podslice.model.unit import INFINITY
from podslice.systemd.dbus.wire import Wire

TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        (
            "ExecMainCode",
            "ExecMainStatus",
            "ExecMainStartTimestamp",
            "ExecMainExitTimestamp",
            "NRestarts",
            "OOMKills",
            "ManagedOOMKills",
        ),
        int,
    ),
    "Result": str,
}
"""The properties of services that have it, and their types; the kills since systemd 259."""

_EXITED = 1
"""Source: sigaction(2), si_code of SIGCHLD, CLD_EXITED."""


def main_exit(found: Mapping[str, Wire]) -> ContainerExit | None:
    """Return how the main process exited; None where it has not, or the unit is not a service."""
    code, status = found.get("ExecMainCode"), int(found.get("ExecMainStatus", 0))
    if not code:
        return None
    result = _result(found, status)
    is_exit = code == _EXITED
    try:
        return ContainerExit(
            result=result,
            exit_code=status if is_exit else None,
            signal=None if is_exit else signal_name(status),
            is_oom=result == OOM_KILL,
            started_usec=int(found["ExecMainStartTimestamp"]),
            ended_usec=int(found["ExecMainExitTimestamp"]),
        )
    except ValueError:
        return None


def _result(found: Mapping[str, Wire], status: int) -> str:
    """Return the result, with what systemd counts where SIGKILL ended the main process.

    systemd's own word is that of the signal where it reaps the process first, and the same one for
    kills by the kernel and by systemd-oomd.

    Source: org.freedesktop.systemd1(5), OOMKills and ManagedOOMKills.
    """
    result = str(found["Result"])
    is_killed = found["ExecMainCode"] != _EXITED and status == signal.SIGKILL
    if result != OOM_KILL and not (result == SIGNAL and is_killed):
        return result
    if _count(found, "ManagedOOMKills"):
        return OOMD_KILL
    return OOM_KILL if _count(found, "OOMKills") else result


def _count(found: Mapping[str, Wire], key: str) -> int:
    """Return a count; 0 where systemd does not count, or has not started the unit."""
    count = int(found.get(key, 0))
    return 0 if count == INFINITY else count


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGTERM`, `SIGRTMIN+3`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
