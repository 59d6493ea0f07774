"""What can go wrong, and how it is told.

    PodsliceError                 every error raised on purpose; has .exit_code
    ├─ InputError(problems)       files or arguments are wrong; carries all problems    exit 2
    ├─ HostError                  the host is not as needed                             exit 1
    │  └─ ForeignRoot             the root slice belongs to a kubelet
    └─ SystemdError               talking to systemd                                    exit 1
       ├─ BusUnavailable          no bus, or the bus was lost
       ├─ BadMessage              what came over the bus is not D-Bus, or not what was asked for
       ├─ CallTimeout             no answer in time; the call may have had its effect
       ├─ Refused                 access denied
       ├─ UnitExists              a unit of that name is loaded already
       ├─ NoSuchUnit              no unit of that name is loaded
       ├─ BadProperty             systemd refuses a name or a value
       └─ JobFailed(result)       a job ended with something other than "done"

A pod that does not fit on the node is not an error: it is data in the result (`Refusal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether a problem stops the pod or is only worth knowing."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong: where it is, what is wrong, and what would be right."""

    where: str
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        """`where: message; hint`, without the parts that are empty."""
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}; {self.hint}" if self.hint else text


def warning(where: str, message: str, hint: str = "") -> Problem:
    """Return a problem that does not stop the pod."""
    return Problem(where=where, message=message, hint=hint, severity=Severity.WARNING)


PROBLEMS_SHOWN = 100
"""Problems that are reported at a time; the others are counted."""


def bounded(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the first problems, and one that states the number of the others."""
    rest = problems[PROBLEMS_SHOWN:]
    if not rest:
        return tuple(problems)
    severity = min(problem.severity for problem in rest)  # "error" is before "warning"
    more = Problem(where="", message=f"there are {len(rest):,} more problems", severity=severity)
    return (*problems[:PROBLEMS_SHOWN], more)


class PodsliceError(Exception):
    """An error that podslice raises on purpose."""

    exit_code = 1


class InputError(PodsliceError):
    """Files or arguments are wrong; `problems` has everything that was found."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(map(str, bounded(self.problems))))


class HostError(PodsliceError):
    """The host is not as needed: /proc, /sys, /run, or something in charge already."""


class ForeignRoot(HostError):
    """The root slice belongs to a kubelet; nothing was changed."""


class SystemdError(PodsliceError):
    """Talking to systemd failed."""


class BusUnavailable(SystemdError):
    """There is no bus, or the connection was lost."""


class BadMessage(SystemdError):
    """A message is malformed, or its values are not of the expected types."""


class CallTimeout(SystemdError):
    """No answer in time. The call may have had its effect."""


class Refused(SystemdError):
    """Access denied."""


class UnitExists(SystemdError):
    """A unit of that name is loaded already."""


class NoSuchUnit(SystemdError):
    """No unit of that name is loaded."""


class BadProperty(SystemdError):
    """Systemd refuses the unit's name, a property or its value."""


class JobFailed(SystemdError):
    """A job ended with `result`, which is not "done"."""

    def __init__(self, message: str, *, result: str) -> None:
        self.result = result
        super().__init__(message)


def printable(text: str) -> str:
    """The text with everything escaped that a terminal might act upon or could not show."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
