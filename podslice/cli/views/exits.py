"""The ends of containers in words. Pure."""

from __future__ import annotations

from datetime import datetime

from podslice.model.container_exit import SIGNAL, SUCCESS, UNKNOWN, ContainerExit


def summary(last: ContainerExit) -> str:
    """Return `exited 7`, `OOM-killed`, `killed SIGTERM`; `exited` where the rest is unknown."""
    if last.is_oomd:
        return "killed by systemd-oomd"
    if last.is_oom:
        return "OOM-killed"
    if last.signal is not None:
        return f"killed {last.signal}"
    if last.exit_code is not None:
        return f"exited {last.exit_code}"
    return "exited" if last.result == UNKNOWN else last.result


def sentence(last: ContainerExit, restarts: int) -> str:
    """Return the last exit with its time, the duration of the run and the restarts."""
    parts = [_how(last)]
    if last.ended_usec is not None:
        at = datetime.fromtimestamp(last.ended_usec / 1e6).astimezone()
        parts[0] += f" at {at:%Y-%m-%d %H:%M:%S}"
    if last.duration_usec is not None:
        parts[0] += f" after {duration(last.duration_usec)}"
    if last.result == UNKNOWN:
        parts.append("exit status not recorded")
    if restarts:
        parts.append("1 restart" if restarts == 1 else f"{restarts} restarts")
    return ", ".join(parts)


def _how(last: ContainerExit) -> str:
    """Return how it ended, with what the summary leaves out."""
    if last.result == UNKNOWN:
        return "ended"
    details = []
    if last.is_oom or last.is_oomd:
        details += [last.signal] if last.signal else []
        details += [f"exit code {last.exit_code}"] if last.exit_code is not None else []
    elif last.signal is not None:
        return f"killed by {last.signal}" + ("" if last.result in _PLAIN else f" ({last.result})")
    elif last.exit_code is not None:
        return f"exited with {last.exit_code}"
    return summary(last) + (f" ({', '.join(details)})" if details else "")


_PLAIN = (SUCCESS, SIGNAL)


def duration(usec: int) -> str:
    """Format a duration with two units: `450ms`, `12s`, `3min 20s`, `5h 2min`, `2d 3h`."""
    if usec < 1_000_000:
        return f"{usec // 1000}ms"
    seconds = usec // 1_000_000
    for size, name, small, small_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            return (
                f"{whole}{name} {rest // small}{small_name}" if rest // small else f"{whole}{name}"
            )
    return f"{seconds}s"
