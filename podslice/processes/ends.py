"""The end of a command in the foreground, as its parent records it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from podslice.kernel.cgroup import CgroupFs
from podslice.kernel.open_group import OpenGroup
from podslice.model.container_exit import ATTENDED, OOM_KILL, OOMD_KILL, SIGNAL, SUCCESS
from podslice.processes.target import Place

_OOM_KILL = "oom_kill"
_KILLED_CODE = 128 + signal.SIGKILL
"""The exit code of a shell whose command was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKills:
    """The kills of a container for lack of memory, counted from its start."""

    cgroups: CgroupFs
    group: str
    slice_group: str
    slice_before: int
    opened: OpenGroup | None
    """That of the container; None where it no longer exists."""

    @classmethod
    def of(cls, cgroups: CgroupFs, place: Place) -> OomKills:
        """Begin to count for a container that was just started."""
        group = place.slice_group
        return cls(
            cgroups=cgroups,
            group=f"{group}/{place.container.scope}",
            slice_group=group,
            slice_before=cgroups.events(group).get(_OOM_KILL, 0),
            opened=OpenGroup.open(cgroups, f"{group}/{place.container.scope}"),
        )

    def result(self, status: int) -> str | None:
        """Return the kill that ended a command with this status of `os.waitpid`; None: none did.

        systemd removes the control group of the container once it is empty; then the kills in the
        pod count, which may be of another container that was killed at the same time.
        """
        if os.waitstatus_to_exitcode(status) not in (-signal.SIGKILL, _KILLED_CODE):
            return None
        if self.opened is not None and self.opened.oomd_kills():
            return OOMD_KILL
        kills = self.cgroups.events(self.group).get(_OOM_KILL)
        if kills is None:
            kills = self.cgroups.events(self.slice_group).get(_OOM_KILL, 0) - self.slice_before
        return OOM_KILL if kills else None


def variables_of(status: int, kill: str | None) -> dict[str, str]:
    """Return how systemd would report a status of `os.waitpid` to `ExecStopPost=`, for a record.

    Args:
        status: the status.
        kill: what `OomKills.result` returned for it.

    Source: systemd.exec(5), Environment Variables, $SERVICE_RESULT, $EXIT_CODE and $EXIT_STATUS.
    """
    if os.WIFSIGNALED(status):
        name = _signal_name(os.WTERMSIG(status))
        dumped = os.WCOREDUMP(status)
        result = "core-dump" if dumped else SIGNAL
        code, shown = ("dumped" if dumped else "killed"), name
    else:
        number = os.WEXITSTATUS(status)
        result, code, shown = ("exit-code" if number else SUCCESS), "exited", str(number)
    return {
        "SERVICE_RESULT": kill or result,
        "EXIT_CODE": code,
        "EXIT_STATUS": shown,
        ATTENDED: "yes",
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return f"RTMIN+{number - signal.SIGRTMIN}"


def is_followed(environment: Mapping[str, str]) -> bool:
    """Return whether a service manager expects the command to be this very process.

    Source: sd_notify(3), $NOTIFY_SOCKET; sd_listen_fds(3), $LISTEN_PID.
    """
    return "NOTIFY_SOCKET" in environment or environment.get("LISTEN_PID") == str(os.getpid())
