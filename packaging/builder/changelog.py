"""Changelogs of packages from CHANGELOG.md."""

from __future__ import annotations

import calendar
import email.utils
import re
import textwrap
import time

MAINTAINER = "podslice maintainers <maintainers@example.org>"


def changelog_entries(text: str, version: str, epoch: int) -> list[tuple[str, int, list[str]]]:
    """Return version, time and items of each section of CHANGELOG.md, the newest first.

    A version without a section comes first.
    """
    entries = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        number, _, date = section.splitlines()[0].partition(" ")
        date = date.strip("()")
        when = epoch if date == "unreleased" else date_sec(date)
        items = [line[2:] for line in section.splitlines() if line.startswith("- ")]
        entries.append((number, when, [plain(item) for item in items]))
    if version != entries[0][0]:
        entries.insert(0, (version, epoch, ["Build of the present state."]))
    return entries


def date_sec(date: str) -> int:
    """Return a date of the changelog in seconds since 1970."""
    return calendar.timegm(time.strptime(date, "%Y-%m-%d"))


def plain(text: str) -> str:
    """Return the text of Markdown without markup."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("`", "").replace("**", "")


def debian_changelog(text: str, version: str, suffix: str, suite: str, epoch: int) -> str:
    """Return debian/changelog from CHANGELOG.md."""
    parts = []
    for number, when, items in changelog_entries(text, version, epoch):
        parts.append(f"podslice ({number}{suffix}) {suite}; urgency=medium\n")
        parts += [
            textwrap.fill(item, 78, initial_indent="  * ", subsequent_indent="    ")
            for item in items
        ]
        parts.append(f"\n -- {MAINTAINER}  {email.utils.formatdate(when, localtime=False)}\n")
    return "\n".join(parts).replace("-0000", "+0000")


def rpm_changelog(text: str, version: str, epoch: int) -> str:
    """Return the entries below %changelog from CHANGELOG.md."""
    parts = []
    for number, when, items in changelog_entries(text, version, epoch):
        date = time.strftime("%a %b %d %Y", time.gmtime(when))
        parts.append(f"* {date} {MAINTAINER} - {number}-1")
        parts += [
            textwrap.fill(item.replace("%", "%%"), 78, initial_indent="- ", subsequent_indent="  ")
            for item in items
        ]
        parts.append("")
    return "\n".join(parts)
