"""The journal: podslice's events in it, and the messages of units, which journalctl reads.

Events are sent with the journal's native protocol, which needs no library and does not block, with
fields that programs can select by.

Source: systemd, docs/JOURNAL_NATIVE_PROTOCOL.md.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import select
import shutil
import socket
import struct
import sys
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from podslice.errors import FORMAT_ERRORS, HostError, InputError, excerpt, invalid, printable
from podslice.kernel.programs import NoAnswerError, Program, run_program
from podslice.model.event import Event, Kind, Level
from podslice.model.unit import SYSTEM, Manager, UnitName

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "podslice"

_WAITING_MAX = 1000
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Journal:
    """Logs events to the journal, and to stderr if that is a terminal or there is no journal.

    Logging neither fails nor blocks. While the journal is busy, the latest events are kept, and
    sent with the next one.
    """

    def __init__(
        self,
        *,
        manager: Manager = SYSTEM,
        path: str = SOCKET,
        stderr: int | None = None,
        patience_sec: int = 0,
    ) -> None:
        """Create the socket, which cannot fail.

        Args:
            manager: the manager of the units in events.
            path: the socket of the journal.
            stderr: the descriptor of a terminal; the process's own if None.
            patience_sec: how long to wait for a busy journal, once. With it, for programs that exit
                soon and have output of their own, nothing is printed.
        """
        self.counts: Counter[Kind] = Counter()
        """The number of logged events by kind."""
        self._object = "OBJECT_SYSTEMD_USER_UNIT" if manager.is_user else "OBJECT_SYSTEMD_UNIT"
        self._path = path
        self._stderr = sys.__stderr__.fileno() if stderr is None and sys.__stderr__ else stderr
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        if patience_sec:
            self._stderr = None
            self._socket.settimeout(None)
            # of the kernel: with a timeout of Python's own, sending to a busy socket spins
            timeout = struct.pack("ll", patience_sec, 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        self._waiting: deque[Event] = deque(maxlen=_WAITING_MAX)

    def close(self) -> None:
        """Close the socket; try once more to send the events that are kept."""
        self._send_waiting()
        self._socket.close()

    def log(self, event: Event) -> None:
        """Log an event."""
        self.counts[event.kind] += 1
        self._waiting.append(event)
        if self._has_terminal:
            self._print(event)
        self._send_waiting()

    @property
    def _has_terminal(self) -> bool:
        return self._stderr is not None and os.isatty(self._stderr)

    def _send_waiting(self) -> None:
        """Send the kept events in order, until the journal is busy."""
        while self._waiting:
            event = self._waiting[0]
            try:
                self._send(encode_fields(self._fields(event)))
            except BlockingIOError:
                # The patience is used up; the socket stays full for a while.
                self._socket.settimeout(0)
                return
            except OSError:
                if not self._has_terminal:
                    self._print(event)
            self._waiting.popleft()

    def _fields(self, event: Event) -> dict[str, str]:
        # the object makes `systemctl status SLICE` and `journalctl -u SLICE` show the event
        about = {} if event.unit is None else {self._object: event.unit}
        return {**event.journal_fields, **about, "SYSLOG_IDENTIFIER": IDENTIFIER}

    def _send(self, message: bytes) -> None:
        """Send a message; one that is too large as a sealed file in memory.

        Raises:
            BlockingIOError: the journal is busy.
            OSError: there is no journal.
        """
        try:
            self._socket.sendto(message, self._path)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in (errno.EMSGSIZE, errno.ENOBUFS):
                raise
            self._send_file(message)

    def _send_file(self, message: bytes) -> None:
        fd = os.memfd_create(IDENTIFIER, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(message)
            # journald refuses a file that its sender could still change.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))]
            self._socket.sendmsg([], rights, 0, self._path)
        finally:
            os.close(fd)

    def _print(self, event: Event) -> None:
        """Print a line, unless that would block, as on a stopped terminal."""
        name = event.pod or event.unit or ""
        about = "" if name in event.message else f"{name}: "
        line = f"{event.kind.label}: {about}{event.message}"
        # Up to this length a write does not block where `select` reports room.
        text = printable(line).encode(errors="backslashreplace")[: select.PIPE_BUF - 1] + b"\n"
        try:
            if self._stderr is not None and select.select([], [self._stderr], [], 0)[1]:
                os.write(self._stderr, text)
        except (OSError, ValueError):
            return  # the terminal was closed


def encode_fields(fields: Mapping[str, str]) -> bytes:
    """Return a message to the journal; values with newlines are preceded by their length."""
    parts = []
    for name, value in fields.items():
        data = value.encode(errors="backslashreplace")
        if b"\n" in data:
            parts.append(b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), data))
    return b"".join(parts)


# Reading, with journalctl.

TIME_MAX_USEC = 250_000_000_000 * 10**6
"""Before the year 9999, the last one that Python knows."""
JOURNAL_DIRECTORIES = (Path("/var/log/journal"), Path("/run/log/journal"))
"""The directories of the journal's files. Source: systemd-journald.service(8), FILES."""
_CHECK_SEC = 30
_READ_SEC = 10
_KINDS = {kind.label: kind for kind in Kind}
_PREFIX = "PODSLICE_"
_OWN = frozenset({"PODSLICE_EVENT", "PODSLICE_POD", "PODSLICE_UNIT"})
_PODMAN_EVENT = "PODMAN_EVENT"
"""A field of podman's events about a container. Source: podman 5.4, libpod/events/logs.go."""
# `2h`, `1h 30m`, `10 min`: a time span, which journalctl requires a sign before
_SPAN = re.compile(r"(\d+ ?[A-Za-zµ]+ ?)+")


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
    fields: dict[str, str]
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
        # Without --all, journalctl has null for values of more than 4096 bytes in JSON.
        # Source: journalctl(1), --output=json.
        options = ["--quiet", "--all", "--no-pager", "--output=json"]
        options += _options(self.since, self.lines, follow=self.follow)
        matches = [f"MESSAGE_ID={kind.message_id}" for kind in Kind]
        matches += [f"PODSLICE_POD={pod}" for pod in self.pods]
        return [*options, f"_UID={self.manager.uid or 0}", *matches]


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
    with_manager: bool = True
    """Whether to select what the service manager reports about the units."""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments for journalctl.

        Every user may write to the journal, so only fields that journald adds select messages, or
        those of root's, or with a user manager this user's, processes.

        Source: systemd.journal-fields(7); systemd, src/shared/logs-show.c, add_matches_for_unit.
        """
        options = ["--quiet", "--all", *_options(self.since, self.lines, follow=self.follow)]
        options += [] if self.format is None else [f"--output={self.format}"]
        uid = f"_UID={self.manager.uid or 0}"
        user, owner = ("USER_", [uid]) if self.manager.is_user else ("", [])
        by_manager = [uid] if self.manager.is_user else ["_PID=1"]
        # a message matches a group if it has one value of each field; groups are alternatives
        for prefix, names, more in (
            (f"_SYSTEMD_{user}UNIT=", self.units, owner),
            (f"{user}UNIT=", self.units if self.with_manager else (), by_manager),
            (f"_SYSTEMD_{user}SLICE=", self.slices, owner),
            ("CONTAINER_ID_FULL=", self.containers, [uid]),
        ):
            if names:
                options += [*more, *(f"{prefix}{name}" for name in names), "+"]
        # No + after the last group
        return options[:-1]


def _options(since: str | None, lines: int | None, *, follow: bool) -> list[str]:
    options = [] if since is None else [_since(since)]
    options += [] if lines is None else [f"--lines={lines}"]
    return [*options, "--follow"] if follow else options


def _since(text: str) -> str:
    """Return the option; a time span is before now."""
    text = text.strip()
    return f"--since={'-' if _SPAN.fullmatch(text) else ''}{text}"


def journal_command(query: LogQuery) -> tuple[str, tuple[str, ...]]:
    """Return the file and the arguments of the journalctl that shows the messages.

    Raises:
        HostError: there is no journal, or this user may not read it.
        InputError: `since` is not a time, or the format is unknown.
    """
    command = _find_log_command(query.manager)
    if query.since is not None and not _succeeds([command, "--lines=0", _since(query.since)]):
        raise _not_a_time(query.since)
    form = query.format
    if form is not None and not _succeeds([command, "--lines=0", f"--output={form}"]):
        message = f"{form!r} is not a format of journalctl"
        raise invalid(message, "see: journalctl -o help", where="--output")
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
        raise _failed(ended.err)
    found = (_parse(line) for line in ended.out.split(b"\n") if line)
    return tuple(
        # conmon writes lines with their end
        replace(entry, message=entry.message.removesuffix("\n"))
        for fields, entry in found
        # podman writes several events for each start in the unit of the container
        if _PODMAN_EVENT not in fields
    )


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
    command = _find_command("events", query.manager)
    try:
        with Program([command, *query.arguments], until=reader) as journalctl:
            yield from map(parse_entry, journalctl.lines())
            if journalctl.is_stopped or not journalctl.wait():
                return
            stderr = journalctl.err
    except NoAnswerError as error:
        raise HostError(f"cannot read the journal: journalctl: {error}") from error
    # why it failed, by exit codes and not by messages
    if not is_readable("*.journal"):
        raise _access_denied()
    if query.since is not None and _succeeds([command, "--quiet", "--lines=0"]):
        raise _not_a_time(query.since)
    raise _failed(stderr)


def parse_entry(line: bytes) -> Entry:
    """Parse one entry from a line of `journalctl -o json`.

    Raises:
        HostError: it is not one.

    Source: systemd, docs/JOURNAL_EXPORT_FORMATS.md, "Journal JSON Format".
    """
    return _parse(line)[1]


def _parse(line: bytes) -> tuple[dict[str, str], Entry]:
    """Parse an entry; return the text of each field as well."""
    try:
        found = {name: _text(value) for name, value in json.loads(line).items()}
        label = found.get("PODSLICE_EVENT", "")
        time_usec = int(found["__REALTIME_TIMESTAMP"])
        if not 0 <= time_usec < TIME_MAX_USEC:
            raise ValueError(time_usec)
    except FORMAT_ERRORS as error:
        text = f"journalctl printed a line that is not an entry: {line[:80]!r}"
        raise HostError(text) from error
    return found, Entry(
        time_usec=time_usec,
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


def _text(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Return the value of a field: binary data is a list of bytes, a repeated field a list."""
    if isinstance(value, list):
        is_binary = all(isinstance(each, int) for each in value)
        return bytes(value).decode(errors="backslashreplace") if is_binary else _text(value[0])
    return str(value)


def _find_log_command(manager: Manager) -> str:
    """Return the file of journalctl for messages of units.

    Raises:
        HostError: there is no journal, or this user may not read it.
    """
    command = _find_command("messages of services", manager)
    if not is_readable("*.journal"):
        raise _access_denied()
    return command


def _find_command(what: str, manager: Manager) -> str:
    """Return the file of journalctl.

    Raises:
        HostError: it is not installed, or would report no error and show nothing: there is no
            journal, or this user may not read it.
    """
    command = shutil.which("journalctl")
    if command is None:
        raise HostError(f"journalctl is not installed; {what} are in systemd's journal only")
    if manager.is_user or is_readable("system.journal"):
        return command
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


def _failed(stderr: bytes) -> HostError:
    reason = excerpt(stderr.decode(errors="replace").strip())
    return HostError(f"cannot read the journal: {reason or 'journalctl failed'}")


def _not_a_time(since: str) -> InputError:
    return invalid(
        f"{since!r} is not a time",
        "write 2h, yesterday, or '2026-01-31 12:00'; see systemd.time(7)",
        where="--since",
    )


def _succeeds(command: list[str]) -> bool:
    try:
        return run_program(command, limit_sec=_CHECK_SEC).code == 0
    except (OSError, NoAnswerError):
        return False


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
