"""Schedules of CronJobs as calendar events: the texts, and the times at which systemd has them elapse."""

import os
import re
import shutil
import subprocess
from datetime import date, datetime, timedelta
from itertools import islice

import pytest

from podslice.errors import InputError
from podslice.features.quadlet.cron import calendar_events

EVENTS = {
    "* * * * *": ("*-*-* *:*:00",),
    "? ? ? ? ?": ("*-*-* *:*:00",),
    " 5\t4  * * * ": ("*-*-* 04:05:00",),
    "00 007 * * *": ("*-*-* 07:00:00",),
    "59 23 31 12 *": ("*-12-31 23:59:00",),
    "*/15 * * * *": ("*-*-* *:00/15:00",),
    "*/1 */1 * * *": ("*-*-* *:*:00",),
    "*/7 * * * *": ("*-*-* *:00,07,14,21,28,35,42,49,56:00",),
    "*/30 * * * *": ("*-*-* *:00/30:00",),
    "15/30 * * * *": ("*-*-* *:15/30:00",),
    "30/30 * * * *": ("*-*-* *:30:00",),
    "*/40 * * * *": ("*-*-* *:00,40:00",),
    "*/60 * * * *": ("*-*-* *:00:00",),
    "5/20 * * * *": ("*-*-* *:05/20:00",),
    "5/100 * * * *": ("*-*-* *:05:00",),
    "10-50/20 * * * *": ("*-*-* *:10/20:00",),
    "10-40/15 * * * *": ("*-*-* *:10,25,40:00",),
    "0-10,20-30 * * * *": ("*-*-* *:00..10,20..30:00",),
    "5,3,4,3 * * * *": ("*-*-* *:03..05:00",),
    "0,1,30 * * * *": ("*-*-* *:00..01,30:00",),
    "1,3,5 * * * *": ("*-*-* *:01,03,05:00",),
    "0-59 0-23 1-31 1-12 0-6": ("*-*-* *:*:00", "*-*-* *:*:00"),
    "0 9-17/4 * * *": ("*-*-* 09,13,17:00:00",),
    "0 0 1,15 * *": ("*-*-01,15 00:00:00",),
    "0 0 * jan-Mar,dec *": ("*-01..03,12-* 00:00:00",),
    "0 0 * */3 *": ("*-01/3-* 00:00:00",),
    "0 3 * * 1-5": ("Mon..Fri *-*-* 03:00:00",),
    "0 3 * * mon-FRI": ("Mon..Fri *-*-* 03:00:00",),
    "0 3 * * 0": ("Sun *-*-* 03:00:00",),
    "0 3 * * SUN,SAT": ("Sat..Sun *-*-* 03:00:00",),
    "0 3 * * */2": ("Tue,Thu,Sat..Sun *-*-* 03:00:00",),
    "0 3 * * SUN-TUE/2": ("Tue,Sun *-*-* 03:00:00",),
    "0 3 * * 4/2": ("Thu,Sat *-*-* 03:00:00",),
    # one of the two days is enough, unless one of the fields is a star
    "30 3 1,15 * MON": ("*-*-01,15 03:30:00", "Mon *-*-* 03:30:00"),
    "0 0 */10 2 5": ("*-02-01,11,21,31 00:00:00", "Fri *-02-* 00:00:00"),
    "0 0 13 * */2": ("*-*-13 00:00:00", "Tue,Thu,Sat..Sun *-*-* 00:00:00"),
    "0 0 */1 * 5": ("Fri *-*-* 00:00:00",),
    "0 0 ?,3 * 5": ("Fri *-*-* 00:00:00",),
    "0 0 13 * ?": ("*-*-13 00:00:00",),
    "0 0 29 2 *": ("*-02-29 00:00:00",),
    "0 0 30 2 *": ("*-02-30 00:00:00",),
    "@yearly": ("*-01-01 00:00:00",),
    "@annually": ("*-01-01 00:00:00",),
    "@monthly": ("*-*-01 00:00:00",),
    "@weekly": ("Sun *-*-* 00:00:00",),
    "@daily": ("*-*-* 00:00:00",),
    "@midnight": ("*-*-* 00:00:00",),
    "@hourly": ("*-*-* *:00:00",),
}
NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
WRONG = {
    "": ["'' has not five fields"],
    "* * * *": ["'* * * *' has not five fields"],
    "* * * * * *": ["'* * * * * *' has not five fields"],
    "@reboot": ["'@reboot' has not five fields"],
    "@every 1h": ["a calendar has no @every, which counts from the last run"],
    "TZ=UTC * * * * *": ["a time zone is not part of it"],
    "CRON_TZ=UTC 0 0 * * *": ["a time zone is not part of it"],
    "60 24 0 13 7": [
        "invalid minute '60'",
        "invalid hour '24'",
        "invalid day of the month '0'",
        "invalid month '13'",
        "invalid day of the week '7'",
    ],
    "* * 32 0 *": ["invalid day of the month '32'", "invalid month '0'"],
    "-1 * * * *": ["invalid minute ''"],
    "1- * * * *": ["invalid minute ''"],
    "1,,2 * * * *": ["invalid minute ''"],
    "+1 * * * *": ["invalid minute '+1'"],
    "1.5 * * * *": ["invalid minute '1.5'"],
    "1\u0661 * * * *": ["invalid minute '1١'"],
    f"{'0' * 10} * * * *": ["invalid minute '0000000000'"],
    "MON * * * *": ["invalid minute 'MON'"],
    "* * * MON JAN": ["invalid month 'MON'", "invalid day of the week 'JAN'"],
    "5-1 * * * *": ["minute: '5-1' ends before it begins"],
    "* * * * FRI-MON": ["day of the week: 'FRI-MON' ends before it begins"],
    "*/0 * * * *": ["minute: '*/0' has no step"],
    "*/ * * * *": ["minute: '*/' has no step"],
    "1/-2 * * * *": ["minute: '1/-2' has no step"],
    "*/1/2 * * * *": ["minute: '*/1/2' has no step"],
    f"*/{'9' * 10} * * * *": ["minute: '*/9999999999' has no step"],
    "* " * 501: ["has 1002 characters"],
}


@pytest.mark.parametrize(("schedule", "expected"), EVENTS.items())
def test_a_schedule_is_events_of_a_calendar(schedule, expected):
    assert calendar_events(schedule) == expected


def test_each_event_has_the_time_zone():
    assert calendar_events("0 0 1 * MON", "Europe/Berlin") == (
        "*-*-01 00:00:00 Europe/Berlin",
        "Mon *-*-* 00:00:00 Europe/Berlin",
    )


@pytest.mark.parametrize(("schedule", "messages"), WRONG.items())
def test_each_field_with_an_error_is_named(schedule, messages):
    with pytest.raises(InputError) as error:
        calendar_events(schedule)
    assert [each.message for each in error.value.problems] == messages
    assert all(each.hint for each in error.value.problems)


ANALYZE = shutil.which("systemd-analyze")
BASE = date(2026, 2, 26)
COUNT = 12
DAYS = 5 * 366
"""Longer than from one 29th of February to the next."""
NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
RANGES = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, NAMES), (0, 6, DAY_NAMES))


def values_of(word, low, high, names):
    """The values of a field, read in another way than the program does."""
    found = set()
    for index, each in enumerate(names):
        word = re.sub(each, str(low + index), word, flags=re.IGNORECASE)
    for part in re.sub(r"[*?]", f"{low}-{high}", word).split(","):
        numbers = [int(each) for each in re.findall(r"\d+", part)]
        if "-" not in part:
            numbers.insert(1, high if "/" in part else numbers[0])
        start, end, step = [*numbers, 1][:3]
        found |= {each for each in range(start, end + 1) if (each - start) % step == 0}
    return found


def times_of(schedule):
    """Yield the times of a schedule from BASE on, as the documentation of cron has them."""
    words = NAMED.get(schedule, schedule).split()
    minutes, hours, days, months, weekdays = (
        values_of(word, *each) for word, each in zip(words, RANGES, strict=True)
    )
    is_any = [bool(re.search(r"[*?](/1)?(,|$)", word)) for word in (words[2], words[4])]
    for number in range(DAYS):
        day = BASE + timedelta(number)
        matches = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month in months and (all(matches) if any(is_any) else any(matches)):
            for hour in sorted(hours):
                for minute in sorted(minutes):
                    yield datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001


def elapses(event):
    # what elapses at the base itself is not in it
    base = f"--base-time={BASE - timedelta(1)} 23:59:59 UTC"
    done = subprocess.run(
        (ANALYZE, "calendar", f"--iterations={COUNT}", base, f"{event} UTC"),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"TZ": "UTC", "LC_ALL": "C", "SYSTEMD_COLORS": "0"},
    )
    found = re.findall(r"(?:elapse|Iter[^:]*): \w+ (\S+ \S+) UTC", done.stdout)
    return [datetime.fromisoformat(each) for each in found]


@pytest.mark.usefixtures("allow_effects")  # it starts systemd-analyze
@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("schedule", EVENTS)
def test_systemd_has_the_same_times_as_cron(schedule):
    found = sorted({time for event in calendar_events(schedule) for time in elapses(event)})
    expected = list(islice(times_of(schedule), COUNT))
    assert found[: len(expected) or COUNT] == expected
