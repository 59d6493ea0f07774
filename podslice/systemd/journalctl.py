"""Events of podslice, read from the journal with journalctl."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podslice.errors import HostError, InputError, Problem
from podslice.model.event import Kind, Level
from podslice.model.manager import SYSTEM, Manager

JOURNAL_DIRECTORIES = (Path("/var/log/journal"), Path("/run/log/journal"))
"""Where the journal's files are. Source: systemd-journald.service(8), FILES."""

# `2h`, `1h 30m`, `10 min`: a span of time, as people say it; systemd wants a sign before it
_SPAN = re.compile(r"(\d+ ?[A-Za-zµ]+ ?)+")

_KINDS = {kind.label: kind for kind in Kind}
_TIME_MAX_USEC = 250_000_000_000 * 10**6
"""Before the year 9999, the last one that Python knows."""
_CHECK_SEC = 30
_PREFIX = "PODSLICE_"
_OWN = frozenset({"PODSLICE_EVENT", "PODSLICE_POD", "PODSLICE_UNIT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event, as the journal has it."""

    time_usec: int
    """Since the epoch."""
    kind: str
    level: str
    pod: str | None
    unit: str | None
    message: str
    fields: dict[str, str] = field(default_factory=dict)
    """What was told besides, by names without `PODSLICE_`, in small letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which events are asked for."""

    pods: Collection[str] = ()
    """`namespace/name`; events of all pods, and of none, if empty."""
    since: str | None = None
    lines: int | None = None
    follow: bool = False
    manager: Manager = SYSTEM
    """The manager whose agent logged them: root's, or with a user's manager one's own."""

    @property
    def arguments(self) -> list[str]:
        """What journalctl is to be given.

        Anybody may write to the journal. Who it was the journal itself knows, so that nobody can
        make up what root's agent says.
        """
        uid = self.manager.uid or 0
        options = ["--quiet", "--all", "--no-pager", "--output=json"]
        if self.since is not None:
            since = self.since.strip()
            options.append(f"--since={'-' if _SPAN.fullmatch(since) else ''}{since}")
        if self.lines is not None:
            options.append(f"--lines={self.lines}")
        if self.follow:
            options.append("--follow")
        matches = [f"MESSAGE_ID={kind.message_id}" for kind in Kind]
        return [*options, f"_UID={uid}", *matches, *(f"PODSLICE_POD={pod}" for pod in self.pods)]


def read_events(query: Query) -> Iterator[Entry]:
    """The events, the oldest first; with `follow`, also those to come.

    Raises:
        HostError: there is no journal, or it is not for this user to read.
        InputError: the time is none.
    """
    command = shutil.which("journalctl")
    if command is None:
        raise HostError("there is no journalctl here, and events are in systemd's journal only")
    _check_rights(query.manager)
    with subprocess.Popen(
        [command, *query.arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as journalctl:
        assert journalctl.stdout  # noqa: S101 - for mypy: it is a pipe
        assert journalctl.stderr  # noqa: S101 - as above
        try:
            for line in journalctl.stdout:
                yield parse(line)
            stderr = journalctl.stderr.read().decode(errors="replace").strip()
            journalctl.wait()
        finally:
            journalctl.terminate()  # where nobody wants to hear more
    if journalctl.returncode:
        raise _error(command, stderr, query)


def parse(line: bytes) -> Entry:
    """Parse one entry from a line of `journalctl -o json`.

    Raises:
        HostError: it is something else.

    Source: systemd, docs/JOURNAL_EXPORT_FORMATS.md, "Journal JSON Format".
    """
    try:
        return _entry({name: _text(value) for name, value in json.loads(line).items()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise HostError(f"journalctl printed what is not an entry: {line[:80]!r}") from error


def _entry(found: Mapping[str, str]) -> Entry:
    """Make an entry from the texts of its fields."""
    label = found.get("PODSLICE_EVENT", "")
    return Entry(
        time_usec=_time(found["__REALTIME_TIMESTAMP"]),
        kind=label,
        level=(_KINDS[label].level if label in _KINDS else Level.INFO).name.lower(),
        pod=found.get("PODSLICE_POD"),
        unit=found.get("PODSLICE_UNIT"),
        message=found.get("MESSAGE", ""),
        fields={
            name.removeprefix(_PREFIX).lower(): text
            for name, text in found.items()
            if name.startswith(_PREFIX) and name not in _OWN
        },
    )


def _time(text: str) -> int:
    """Parse a time, which can be shown as one.

    Raises:
        ValueError: it is not a time, or is one that no calendar has.
    """
    usec = int(text)
    if not 0 <= usec < _TIME_MAX_USEC:
        raise ValueError(text)
    return usec


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    """The value of a field: what is no text is a list of bytes, and what is there twice a list."""
    if isinstance(value, list):
        is_binary = all(isinstance(each, int) for each in value)
        return bytes(value).decode(errors="backslashreplace") if is_binary else _text(value[0])
    return str(value)


def _check_rights(manager: Manager) -> None:
    """Raise where journalctl would report no error and show nothing.

    Raises:
        HostError: there is no journal, or this user may not read it.
    """
    if manager.is_user or _is_readable("system.journal"):
        return
    if os.geteuid() == 0:
        raise HostError(
            "this host keeps no journal (see Storage= in journald.conf(5)), and events are not"
            " stored elsewhere"
        )
    raise _access_denied()


def _is_readable(pattern: str) -> bool:
    files = (path for base in JOURNAL_DIRECTORIES for path in base.glob(f"*/{pattern}"))
    return any(os.access(path, os.R_OK) for path in files)


def _access_denied() -> HostError:
    return HostError(
        "permission to read the journal denied: run as root, or join the group systemd-journal"
    )


def _error(command: str, stderr: str, query: Query) -> HostError | InputError:
    """Return why journalctl failed, by its exit codes and not by its messages."""
    if not _is_readable("*.journal"):
        return _access_denied()
    if query.since is not None and _succeeds([command, "--quiet", "--lines=0"]):
        return InputError(
            Problem(
                where="--since",
                message=f"{query.since!r} is not a time",
                hint="write 2h, yesterday, or '2026-01-31 12:00'; see systemd.time(7)",
            )
        )
    return HostError(f"cannot read the journal: {stderr or 'journalctl failed'}")


def _succeeds(command: list[str]) -> bool:
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_CHECK_SEC
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True
