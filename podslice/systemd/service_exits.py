"""The last exit of a service, as systemd has it while the unit is loaded."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from podslice.model.container_exit import OOM_KILL, ContainerExit
from podslice.systemd.dbus.wire import Wire

TYPES: Mapping[str, type] = {
    **dict.fromkeys(
        (
            "ExecMainCode",
            "ExecMainStatus",
            "ExecMainStartTimestamp",
            "ExecMainExitTimestamp",
            "NRestarts",
        ),
        int,
    ),
    "Result": str,
}
"""The properties of services that have it, and their types."""

_EXITED = 1
"""Source: sigaction(2), si_code of SIGCHLD, CLD_EXITED."""


def main_exit(found: Mapping[str, Wire]) -> ContainerExit | None:
    """Return how the main process exited; None where it has not, or the unit is not a service."""
    code, status = found.get("ExecMainCode"), int(found.get("ExecMainStatus", 0))
    if not code:
        return None
    result = str(found["Result"])
    is_exit = code == _EXITED
    try:
        return ContainerExit(
            result=result,
            exit_code=status if is_exit else None,
            signal=None if is_exit else _signal_name(status),
            is_oom=result == OOM_KILL,
            started_usec=int(found["ExecMainStartTimestamp"]),
            ended_usec=int(found["ExecMainExitTimestamp"]),
        )
    except ValueError:
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
