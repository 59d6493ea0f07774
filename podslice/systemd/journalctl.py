"""Events of podslice and messages of units, read from the journal with journalctl."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from podslice.errors import FORMAT_ERRORS, HostError, InputError, Problem, excerpt
from podslice.kernel.programs import NoAnswerError, Program, run_program
from podslice.model.event import Kind, Level
from podslice.model.unit import SYSTEM, Manager, UnitName

# `2h`, `1h 30m`, `10 min`: a time span, which journalctl requires a sign before
_SPAN = re.compile(r"(\d+ ?[A-Za-zµ]+ ?)+")

_KINDS = {kind.label: kind for kind in Kind}
TIME_MAX_USEC = 250_000_000_000 * 10**6
"""Before the year 9999, the last one that Python knows."""
_CHECK_SEC = 30
_READ_SEC = 10
_PREFIX = "PODSLICE_"
_PODMAN_EVENT = "PODMAN_EVENT"
"""A field of podman's events about a container. Source: podman 5.4, libpod/events/logs.go."""
_OWN = frozenset({"PODSLICE_EVENT", "PODSLICE_POD", "PODSLICE_UNIT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event as the journal has it."""

    time_usec: int
    """Since the epoch."""
    kind: str
    level: str
    pod: str | None
    unit: str | None
    message: str
    fields: dict[str, str] = field(default_factory=dict)
    """All other fields, by their names in lower case without `PODSLICE_`."""


class Query(NamedTuple):
    """A selection of events."""

    pods: Collection[str] = ()
    """`namespace/name`; if empty, all events, also those without a pod."""
    since: str | None = None
    lines: int | None = None
    follow: bool = False
    manager: Manager = SYSTEM
    """The manager whose agent logged them."""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments for journalctl.

        Every user may write to the journal, so the uid that journald adds selects the events of
        root's agent.
        """
        uid = self.manager.uid or 0
        options = ["--quiet", "--all", "--no-pager", "--output=json"]
        if self.since is not None:
            options.append(_since(self.since))
        if self.lines is not None:
            options.append(f"--lines={self.lines}")
        if self.follow:
            options.append("--follow")
        matches = [f"MESSAGE_ID={kind.message_id}" for kind in Kind]
        return [*options, f"_UID={uid}", *matches, *(f"PODSLICE_POD={pod}" for pod in self.pods)]


class LogQuery(NamedTuple):
    """A selection of all messages of some units and containers."""

    units: Collection[UnitName]
    """Scopes and services."""
    slices: Collection[UnitName] = ()
    """Slices, of everything in which the messages are selected."""
    containers: Collection[str] = ()
    """The ids of containers whose runtime writes to the journal."""
    since: str | None = None
    lines: int | None = None
    follow: bool = False
    format: str | None = None
    """One of journalctl's; None for its default."""
    manager: Manager = SYSTEM

    @property
    def arguments(self) -> list[str]:
        """Return the arguments for journalctl.

        Every user may write to the journal, so only fields that journald adds select messages, or
        those of root's, or with a user manager this user's, processes.

        Source: systemd.journal-fields(7); systemd, src/shared/logs-show.c, add_matches_for_unit.
        """
        options = ["--quiet", "--all"]
        options += [] if self.since is None else [_since(self.since)]
        options += [] if self.lines is None else [f"--lines={self.lines}"]
        options += ["--follow"] if self.follow else []
        options += [] if self.format is None else [f"--output={self.format}"]
        for group in filter(None, self._matches()):
            options += [*group, "+"]
        return options[:-1]

    def _matches(self) -> Iterator[list[str]]:
        """Yield groups of matches: a message matches a group if it has one value of each field."""
        uid = f"_UID={self.manager.uid or 0}"
        user, owner = ("USER_", [uid]) if self.manager.is_user else ("", [])
        by_manager = [uid] if self.manager.is_user else ["_PID=1"]
        for prefix, names, more in (
            (f"_SYSTEMD_{user}UNIT=", self.units, owner),
            (f"{user}UNIT=", self.units, by_manager),
            (f"_SYSTEMD_{user}SLICE=", self.slices, owner),
            ("CONTAINER_ID_FULL=", self.containers, [uid]),
        ):
            yield [*more, *(f"{prefix}{name}" for name in names)] if names else []


def journal_command(query: LogQuery) -> tuple[str, tuple[str, ...]]:
    """Return the file and the arguments of the journalctl that shows the messages.

    Raises:
        HostError: there is no journal, or this user may not read it.
        InputError: `since` is not a time, or the format is unknown.
    """
    command = _find_log_command(query.manager)
    if query.since is not None and not _succeeds([command, "--lines=0", _since(query.since)]):
        raise InputError(_not_a_time(query.since))
    if query.format is not None and not _succeeds(
        [command, "--lines=0", f"--output={query.format}"]
    ):
        message = f"{query.format!r} is not a format of journalctl"
        raise InputError(Problem(where="--output", message=message, hint="see: journalctl -o help"))
    return command, ("journalctl", *query.arguments)


def read_messages(query: LogQuery) -> tuple[Entry, ...]:
    """Return the messages, the oldest first, without podman's events about its containers.

    The query does not follow.

    Raises:
        HostError: there is no journal, this user may not read it, or journalctl does not answer.
    """
    command = _find_log_command(query.manager)
    try:
        ended = run_program([command, *query.arguments], limit_sec=_READ_SEC)
    except (OSError, NoAnswerError) as error:
        raise HostError(f"cannot read the journal: journalctl: {error}") from error
    if ended.code:
        reason = excerpt(ended.err.decode(errors="replace").strip())
        raise HostError(f"cannot read the journal: {reason or 'journalctl failed'}")
    found = (_parse(line) for line in ended.out.split(b"\n") if line)
    return tuple(
        # conmon writes lines with their end
        replace(entry, message=entry.message.removesuffix("\n"))
        for fields, entry in found
        # podman writes several events for each start in the unit of the container
        if _PODMAN_EVENT not in fields
    )


def _find_log_command(manager: Manager) -> str:
    """Return the file of journalctl for messages of units.

    Raises:
        HostError: there is no journal, or this user may not read it.
    """
    command = _find_command("messages of services")
    _check_rights(manager)
    if not is_readable("*.journal"):
        raise _access_denied()
    return command


def read_events(query: Query, *, reader: int | None = None) -> Iterator[Entry]:
    """Yield the events, the oldest first; with `follow`, also new ones.

    Args:
        query: which.
        reader: a descriptor that the caller writes events to; when its other end is closed, the
            events end.

    Raises:
        HostError: there is no journal, or this user may not read it.
        InputError: `since` is not a time.
    """
    command = _find_command("events")
    _check_rights(query.manager)
    try:
        with Program([command, *query.arguments], until=reader) as journalctl:
            yield from map(parse, journalctl.lines())
            if journalctl.is_stopped:
                return
            code = journalctl.wait()
            stderr = journalctl.err.decode(errors="replace").strip()
    except NoAnswerError as error:
        raise HostError(f"cannot read the journal: journalctl: {error}") from error
    if code:
        raise _error(command, stderr, query)


def parse(line: bytes) -> Entry:
    """Parse one entry from a line of `journalctl -o json`.

    Raises:
        HostError: it is not one.

    Source: systemd, docs/JOURNAL_EXPORT_FORMATS.md, "Journal JSON Format".
    """
    return _parse(line)[1]


def _parse(line: bytes) -> tuple[dict[str, str], Entry]:
    """Parse an entry, with the text of each field."""
    try:
        fields = {name: _text(value) for name, value in json.loads(line).items()}
        return fields, _entry(fields)
    except FORMAT_ERRORS as error:
        text = f"journalctl printed a line that is not an entry: {line[:80]!r}"
        raise HostError(text) from error


def _entry(found: Mapping[str, str]) -> Entry:
    """Return an entry from its fields."""
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
    """Parse a time in µs.

    Raises:
        ValueError: it is not a number, or beyond the range of `datetime`.
    """
    usec = int(text)
    if not 0 <= usec < TIME_MAX_USEC:
        raise ValueError(text)
    return usec


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Return the value of a field: binary data is a list of bytes, a repeated field a list."""
    if isinstance(value, list):
        is_binary = all(isinstance(each, int) for each in value)
        return bytes(value).decode(errors="backslashreplace") if is_binary else _text(value[0])
    return str(value)


def _check_rights(manager: Manager) -> None:
    """Raise where journalctl would report no error and show nothing.

    Raises:
        HostError: there is no journal, or this user may not read it.
    """
    if manager.is_user or is_readable("system.journal"):
        return
    if os.geteuid() == 0:
        raise HostError(
            "this host keeps no journal (see Storage= in journald.conf(5)), and events are not"
            " stored elsewhere"
        )
    raise _access_denied()


def _access_denied() -> HostError:
    return HostError(
        "permission to read the journal denied: run as root, or join the group systemd-journal"
    )


def _error(command: str, stderr: str, query: Query) -> HostError | InputError:
    """Return why journalctl failed, by its exit codes and not by its messages."""
    if not is_readable("*.journal"):
        return _access_denied()
    if query.since is not None and _succeeds([command, "--quiet", "--lines=0"]):
        return InputError(_not_a_time(query.since))
    return HostError(f"cannot read the journal: {excerpt(stderr) or 'journalctl failed'}")


def _not_a_time(since: str) -> Problem:
    return Problem(
        where="--since",
        message=f"{since!r} is not a time",
        hint="write 2h, yesterday, or '2026-01-31 12:00'; see systemd.time(7)",
    )


def _since(text: str) -> str:
    """Return the option; a time span is before now."""
    text = text.strip()
    return f"--since={'-' if _SPAN.fullmatch(text) else ''}{text}"


def _find_command(what: str) -> str:
    """Return the file of journalctl.

    Raises:
        HostError: it is not installed.
    """
    command = shutil.which("journalctl")
    if command is None:
        raise HostError(f"journalctl is not installed; {what} are in systemd's journal only")
    return command


def _succeeds(command: list[str]) -> bool:
    try:
        return run_program(command, limit_sec=_CHECK_SEC).code == 0
    except (OSError, NoAnswerError):
        return False


JOURNAL_DIRECTORIES = (Path("/var/log/journal"), Path("/run/log/journal"))
"""The directories of the journal's files. Source: systemd-journald.service(8), FILES."""


def is_readable(pattern: str) -> bool:
    """Return whether this user may read a file of the journal whose name matches a pattern."""
    files = (path for base in JOURNAL_DIRECTORIES for path in base.glob(f"*/{pattern}"))
    return any(os.access(path, os.R_OK) for path in files)


def has_access() -> bool:
    """Return whether this user may read any messages; root may, also where none are kept."""
    return os.geteuid() == 0 or is_readable("*.journal")


def reading_command(unit: UnitName, manager: Manager) -> str:
    """Return the command that shows the messages of a unit to this user."""
    if manager.is_user and not has_access():
        return f"sudo journalctl _SYSTEMD_USER_UNIT={unit}"
    return f"journalctl{manager.flag} -u {unit}"
