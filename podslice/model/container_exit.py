"""How a container's processes ended, and how often the container was started."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

SUCCESS = "success"
SIGNAL = "signal"
OOM_KILL = "oom-kill"
OOMD_KILL = "oomd-kill"
"""podslice's own word: systemd has the same result for both kinds of kills."""
UNKNOWN = "unknown"
"""The result of a container whose end was not recorded: nothing waits for adopted processes."""

ATTENDED = "PODSLICE_ATTENDED"
"""podslice's own variable, beside those of systemd: a caller has the exit status."""

_RESULT = re.compile(r"[a-z-]{1,40}")
_SIGNAL = re.compile(r"SIG[A-Z0-9+]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExit:
    """The end of a container."""

    result: str
    """In systemd's words: `success`, `exit-code`, `signal`, `oom-kill`, …; or `oomd-kill` or `unknown`.

    Source: systemd.exec(5), Environment Variables, $SERVICE_RESULT.
    """
    exit_code: int | None = None
    """None where a signal ended it, or where it is unknown."""
    signal: str | None = None
    """`SIGKILL`; None where it exited, or where that is unknown."""
    is_oom: bool = False
    """Whether the kernel's OOM killer ended it."""
    started_usec: int
    """Since the epoch."""
    ended_usec: int | None = None
    is_attended: bool = False
    """Whether a caller has its exit status: that of `podslice run` in the foreground."""

    def __post_init__(self) -> None:
        """Check the words, which are printed.

        Raises:
            ValueError: a word has unexpected characters.
        """
        if not _RESULT.fullmatch(self.result):
            raise ValueError(f"{self.result!r} is not the result of a service")
        if self.signal is not None and not _SIGNAL.fullmatch(self.signal):
            raise ValueError(f"{self.signal!r} is not the name of a signal")

    @property
    def is_oomd(self) -> bool:
        """Return whether systemd-oomd ended it."""
        return self.result == OOMD_KILL

    @property
    def is_failure(self) -> bool:
        """Return whether it was a crash or a kill, and no caller has its exit status.

        A stop, an exit with 0 and an unknown end are not failures.
        """
        is_killed = self.is_oom or self.is_oomd
        return not self.is_attended and (is_killed or self.result not in (SUCCESS, UNKNOWN))

    @property
    def cause(self) -> str:
        """Return what ended it: `exit code 1`, `SIGSEGV`; empty where neither is known."""
        if self.is_oom:
            return "an OOM kill"
        if self.is_oomd:
            return "a kill by systemd-oomd"
        if self.signal is not None:
            return self.signal
        if self.exit_code is not None:
            return f"exit code {self.exit_code}"
        return ""

    @property
    def duration_usec(self) -> int | None:
        """How long it ran."""
        return None if self.ended_usec is None else max(self.ended_usec - self.started_usec, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHistory:
    """The starts and the last end of a container since its pod was applied."""

    started_usec: int
    """The last start, since the epoch."""
    restarts: int = 0
    """The number of starts after the first one."""
    last_exit: ContainerExit | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the end of the last start is recorded."""
        return self.last_exit is not None and self.last_exit.started_usec == self.started_usec

    def exit_of(self, *, is_running: bool) -> ContainerExit | None:
        """Return the last exit; of a container without processes, that of its last start."""
        if is_running or self.has_ended:
            return self.last_exit
        return ContainerExit(result=UNKNOWN, started_usec=self.started_usec)


def signal_name(number: int) -> str:
    """Return the name of a signal: `SIGTERM`, `SIGRTMIN+3`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


_STOPPED_CODES = frozenset(
    (0, *(128 + each for each in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)))
)
"""The exit codes of containers that are done or were stopped; runtimes do not report which."""


def exit_of_runtime(exit_code: int | None, *, is_oom: bool) -> ContainerExit | None:
    """Return how a container of a runtime ended; None while it runs, and before its first start."""
    if exit_code is None and not is_oom:
        return None
    result = OOM_KILL if is_oom else "exit-code"
    if not is_oom and exit_code in _STOPPED_CODES:
        result = SUCCESS
    return ContainerExit(result=result, exit_code=exit_code, is_oom=is_oom, started_usec=0)


def exit_of_variables(
    variables: dict[str, str], *, oom_kills: int, started_usec: int, ended_usec: int
) -> ContainerExit:
    """Return an exit as systemd reports it to `ExecStopPost=`.

    Raises:
        ValueError, KeyError: the variables are incomplete or not valid.

    Source: systemd.exec(5), Environment Variables, $SERVICE_RESULT, $EXIT_CODE and $EXIT_STATUS.
    """
    result, status = variables["SERVICE_RESULT"], variables.get("EXIT_STATUS", "")
    has_exited = variables.get("EXIT_CODE", "") == "exited"
    code = int(status) if has_exited else None
    return ContainerExit(
        result=result,
        exit_code=code,
        signal=f"SIG{status}" if status and not has_exited else None,
        # Kills of child processes count as well: they have not ended a container that exited with
        # 0.
        is_oom=result == OOM_KILL or (oom_kills > 0 and code != 0 and result != OOMD_KILL),
        started_usec=started_usec,
        ended_usec=ended_usec,
        is_attended=ATTENDED in variables,
    )
