"""Problems as lines. Pure: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from podslice.errors import Problem, Severity, bounded, printable


def problem_line(found: Problem) -> str:
    """Format a problem as one line, with control characters escaped."""
    return f"{found.severity}: {printable(str(found))}"


def problem_lines(found: Sequence[Problem]) -> Iterator[str]:
    """Yield the first problems as lines, and the number of the others."""
    return map(problem_line, bounded(found))


def count_problems(problems: Sequence[Problem], pods: int) -> str:
    """Return a summary: `5 pods, 2 errors, 1 warning`."""
    errors = sum(found.severity is Severity.ERROR for found in problems)
    parts = [_count(pods, "pod"), _count(errors, "error")]
    return ", ".join([*parts, _count(len(problems) - errors, "warning")])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
