"""Exceptions and problems.

    PodsliceError                 every error raised on purpose; has .exit_code
    ├─ InputError(problems)       invalid files or arguments, with all problems           exit 2
    ├─ HostError                  the host does not meet a requirement                    exit 1
    │  └─ ForeignRoot             the root slice belongs to a kubelet
    ├─ ServerError                another server replied unexpectedly                      exit 1
    └─ SystemdError               communication with systemd                              exit 1
       ├─ BusUnavailable          no bus, or the connection was lost
       ├─ BadMessage              a message is malformed or of unexpected types
       ├─ CallTimeout             no reply in time; the call may have taken effect
       ├─ Refused                 access denied
       ├─ UnitExists              a unit of that name is already loaded
       ├─ NoSuchUnit              no unit of that name is loaded
       ├─ BadProperty             systemd rejects a unit name, a property or its value
       └─ JobFailed(result)       a job finished with a result other than "done"

A pod that does not fit on the node is not an error: it is data in the result (`Refusal`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Severity(StrEnum):
    """How serious a problem is: an error rejects the pod, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One thing that is wrong: its address, a description, and what would be right."""

    where: str = ""
    """The file, line, field or flag; empty for a value whose address the caller knows."""
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR
    keys: tuple[str, ...] = field(default=(), compare=False)
    """The options that it depends on, or the path of a key within one option's value."""

    def __str__(self) -> str:
        """Return `where: message; hint`, without the parts that are empty."""
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}; {self.hint}" if self.hint else text

    def within(self, outer: str) -> Problem:
        """Return the problem with its address below another: `web.yaml` and `line 17`."""
        return replace(self, where=f"{outer}: {self.where}" if self.where else outer)


def warning(where: str, message: str, hint: str = "") -> Problem:
    """Return a problem that does not reject the pod."""
    return Problem(where=where, message=message, hint=hint, severity=Severity.WARNING)


PROBLEMS_SHOWN = 100
"""Problems that are reported at a time; the others are counted."""


def bounded(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return the first problems, and one that states the number of the others."""
    rest = problems[PROBLEMS_SHOWN:]
    if not rest:
        return tuple(problems)
    severity = min(problem.severity for problem in rest)  # "error" is before "warning"
    more = Problem(message=f"there are {len(rest):,} more problems", severity=severity)
    return (*problems[:PROBLEMS_SHOWN], more)


class PodsliceError(Exception):
    """An error that podslice raises on purpose."""

    exit_code = 1


class InputError(PodsliceError, ValueError):
    """Invalid files, arguments or values; `problems` has all that were found."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        """Return a line for each problem, up to `PROBLEMS_SHOWN`."""
        return "\n".join(map(str, bounded(self.problems)))


def invalid(message: str, hint: str = "", *, where: str = "") -> InputError:
    """Return the error to raise for one problem."""
    return InputError(Problem(where=where, message=message, hint=hint))


class HostError(PodsliceError):
    """The host does not meet a requirement: /proc, /sys, /run, or another manager of the root slice."""


class ForeignRoot(HostError):
    """The root slice belongs to a kubelet; nothing was changed."""


class ServerError(PodsliceError):
    """Another server, such as one of metrics, replied unexpectedly."""


class SystemdError(PodsliceError):
    """Communication with systemd failed."""


class BusUnavailable(SystemdError):
    """There is no bus, or the connection was lost."""


class BadMessage(SystemdError):
    """A message is malformed, or its values are not of the expected types."""


class CallTimeout(SystemdError):
    """No reply in time. The call may have taken effect."""


class Refused(SystemdError):
    """Access denied."""


class UnitExists(SystemdError):
    """A unit of that name is already loaded."""


class NoSuchUnit(SystemdError):
    """No unit of that name is loaded."""


class BadProperty(SystemdError):
    """Systemd rejects the unit's name, a property or its value."""


class JobFailed(SystemdError):
    """A job finished with `result`, which is not "done"."""

    def __init__(self, message: str, *, result: str) -> None:
        self.result = result
        super().__init__(message)


def printable(text: str) -> str:
    """Return the text with all characters escaped that a terminal interprets or cannot display."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


SHOWN_MAX = 64
"""Characters of a text in a message."""


def quote(text: str) -> str:
    """Return the text for a message: in quotes, escaped, and truncated to `SHOWN_MAX`."""
    cut = text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
    return f"'{printable(cut)}'"


EXCERPT_MAX = 300
"""Characters of another program's text in a message."""


def excerpt(text: str) -> str:
    """Return the text of another program for a message: printable, and its beginning if it is long."""
    shown = printable(text[: EXCERPT_MAX + 1])
    return shown if len(shown) <= EXCERPT_MAX else f"{shown[:EXCERPT_MAX]}…"


FORMAT_ERRORS = (
    *(ValueError, LookupError, TypeError, AttributeError),
    *(OverflowError, RecursionError),  # a number such as 1e400, deep nesting
)
"""What code raises that reads a JSON document of an unexpected form."""
