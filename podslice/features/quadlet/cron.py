"""Schedules of CronJobs as calendar events of systemd. Pure.

Source: Kubernetes, pkg/apis/batch/validation/validation.go, validateScheduleFormat; robfig/cron 3,
parser.go, ParseStandard, and spec.go, dayMatches; systemd.time(7), "Calendar Events".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podslice.errors import InputError, Problem, invalid, quote

_DESCRIPTORS = {
    **dict.fromkeys(("@yearly", "@annually"), "0 0 1 1 *"),
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    **dict.fromkeys(("@daily", "@midnight"), "0 0 * * *"),
    "@hourly": "0 * * * *",
}
_LENGTH_MAX = 1000
_DIGITS_MAX = 9
_EXAMPLE = "write minute, hour, day of the month, month and day of the week: 30 3 * * MON-FRI"
_DAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


class _Field(NamedTuple):
    """One of the five fields."""

    what: str
    first: int
    last: int
    names: tuple[str, ...] = ()
    """Of the values, from the first one on."""


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, tuple(each.upper() for each in _DAYS)),
)


def calendar_events(schedule: str, zone: str = "") -> tuple[str, ...]:
    """Return the values of `OnCalendar=` for a schedule.

    Where it restricts both the day of the month and the day of the week, a day that matches one of
    the two is enough: these are two events.

    Args:
        schedule: five fields, or a name as `@daily`.
        zone: the time zone; empty for the host's.

    Raises:
        InputError: it is not a schedule of Kubernetes; all fields with an error are named.
    """
    if len(schedule) > _LENGTH_MAX:
        raise invalid(f"has {len(schedule)} characters", f"the maximum is {_LENGTH_MAX}")
    if schedule.strip().startswith("@every"):
        raise invalid("a calendar has no @every, which counts from the last run", _EXAMPLE)
    if "TZ=" in schedule:
        raise invalid("a time zone is not part of it", "write it into timeZone")
    words = re.findall(r"\S+", _DESCRIPTORS.get(schedule.strip(), schedule))
    if len(words) != len(_FIELDS):
        raise invalid(f"{quote(schedule)} has not five fields", _EXAMPLE)
    sets, problems = [], list[Problem]()
    for field, word in zip(_FIELDS, words, strict=True):
        try:
            sets.append(_read(field, word))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    minutes, hours, days, months, weekdays = sets
    time = f"{_format(_FIELDS[1], hours)}:{_format(_FIELDS[0], minutes)}:00"
    month, day = _format(_FIELDS[3], months), _format(_FIELDS[2], days)
    # systemd's week begins on Monday
    week = sorted((each - 1) % 7 for each in weekdays)
    texts = dict(enumerate((*_DAYS[1:], _DAYS[0])))
    names = "" if len(week) == len(_DAYS) else _format_runs(week, texts)
    either = not (_is_any(words[2]) or _is_any(words[4]))
    dates = (
        (f"*-{month}-{day}", f"{names} *-{month}-*") if either else (f"{names} *-{month}-{day}",)
    )
    return tuple(f"{each} {time} {zone}".strip() for each in dates)


def _is_any(word: str) -> bool:
    """Return whether a field of days leaves the choice to the other one."""
    return any(each.removesuffix("/1") in ("*", "?") for each in word.split(","))


def _read(field: _Field, word: str) -> frozenset[int]:
    return frozenset().union(*(_read_part(field, each) for each in word.split(",")))


def _read_part(field: _Field, part: str) -> range:
    """Read one part of a list: `*`, `5`, `1-5`, `*/15`, `10-50/20`; `5/15` goes to the end."""
    span, slash, stated = part.partition("/")
    first, dash, last = span.partition("-")
    if span in ("*", "?"):
        low, high = field.first, field.last
    else:
        low = _read_value(field, first)
        high = _read_value(field, last) if dash else field.last if slash else low
    step = _number(stated) if slash else 1
    if step < 1 or low > high:
        why = "has no step" if step < 1 else "ends before it begins"
        raise invalid(f"{field.what}: {quote(part)} {why}", _EXAMPLE)
    return range(low, high + 1, step)


def _read_value(field: _Field, text: str) -> int:
    if text.upper() in field.names:
        return field.first + field.names.index(text.upper())
    number = _number(text)
    if field.first <= number <= field.last:
        return number
    names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
    hint = f"write {field.first} to {field.last}{names}"
    raise invalid(f"invalid {field.what} {quote(text)}", hint)


def _number(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else -1


def _format(field: _Field, values: frozenset[int]) -> str:
    """Return a field of `OnCalendar=`, with ranges and steps where it has some."""
    found, size = sorted(values), field.last - field.first + 1
    if len(found) == size:
        return "*"
    texts = {each: f"{each:02}" for each in found}
    step = found[1] - found[0] if len(found) > 1 else size
    # systemd can miss the first value after the end of the range if the step does not divide it
    if found == list(range(found[0], field.last + 1, step)) and 1 < step < size == step * len(
        found
    ):
        return f"{texts[found[0]]}/{step}"
    return _format_runs(found, texts)


def _format_runs(values: Sequence[int], texts: Mapping[int, str]) -> str:
    """Return sorted values as a list, with ranges where there is no gap."""
    runs: list[tuple[int, int]] = []
    for each in values:
        if runs and runs[-1][1] == each - 1:
            runs[-1] = (runs[-1][0], each)
        else:
            runs.append((each, each))
    return ",".join(
        texts[low] if low == high else f"{texts[low]}..{texts[high]}" for low, high in runs
    )
