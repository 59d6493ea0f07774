"""Tells the journal what has happened, with fields that programs can ask for.

Spoken is the journal's own protocol, so that a message needs no other library and no waiting.

Source: systemd, docs/JOURNAL_NATIVE_PROTOCOL.md.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import sys
from collections import Counter, deque
from collections.abc import Mapping

from podslice.errors import printable
from podslice.model.event import Event, Kind
from podslice.model.manager import SYSTEM, Manager

SOCKET = "/run/systemd/journal/socket"
IDENTIFIER = "podslice"

_WAITING_MAX = 1000
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Journal:
    """Where events go: to the journal, and to stderr where there is none, or somebody watches.

    Telling never fails and never waits. While the journal is too busy to listen, the latest events
    are kept, and are sent with the next one.
    """

    def __init__(
        self, *, manager: Manager = SYSTEM, path: str = SOCKET, stderr: int | None = None
    ) -> None:
        """Nothing is opened yet that could fail.

        Args:
            manager: the manager of the units that events are about.
            path: where the journal listens.
            stderr: the descriptor for people; that of the process if None.
        """
        self.counts: Counter[Kind] = Counter()
        """How many events of each kind were told."""
        self._object = "OBJECT_SYSTEMD_USER_UNIT" if manager.is_user else "OBJECT_SYSTEMD_UNIT"
        self._path = path
        self._stderr = sys.__stderr__.fileno() if stderr is None and sys.__stderr__ else stderr
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._waiting: deque[Event] = deque(maxlen=_WAITING_MAX)

    def close(self) -> None:
        """Let go of the journal; what it was too busy for is tried once more."""
        self._send_waiting()
        self._socket.close()

    def log(self, event: Event) -> None:
        """Say that something has happened."""
        self.counts[event.kind] += 1
        self._waiting.append(event)
        if self._is_watched:
            self._print(event)
        self._send_waiting()

    @property
    def _is_watched(self) -> bool:
        return self._stderr is not None and os.isatty(self._stderr)

    def _send_waiting(self) -> None:
        """Send the events in their order, as far as the journal takes them now."""
        while self._waiting:
            event = self._waiting[0]
            try:
                self._send(encode(self._fields(event)))
            except BlockingIOError:
                return
            except OSError:
                if not self._is_watched:
                    self._print(event)
            self._waiting.popleft()

    def _fields(self, event: Event) -> dict[str, str]:
        # with the object, `systemctl status SLICE` and `journalctl -u SLICE` show what befell it
        about = {} if event.unit is None else {self._object: event.unit}
        return {**event.journal_fields, **about, "SYSLOG_IDENTIFIER": IDENTIFIER}

    def _send(self, message: bytes) -> None:
        """Hand over one message; one that is too large goes as a sealed file in memory.

        Raises:
            BlockingIOError: the journal is behind.
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
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))]
            self._socket.sendmsg([], rights, 0, self._path)
        finally:
            os.close(fd)

    def _print(self, event: Event) -> None:
        """A line for people, if whoever reads it keeps up (a stopped terminal would hold us up)."""
        about = f"{event.pod or event.unit}: " if event.pod or event.unit else ""
        line = f"{event.kind.label}: {about}{event.message}"
        text = printable(line).encode(errors="backslashreplace")[: select.PIPE_BUF - 1] + b"\n"
        try:
            if self._stderr is not None and select.select([], [self._stderr], [], 0)[1]:
                os.write(self._stderr, text)
        except (OSError, ValueError):
            return  # there is nobody left to tell


def encode(fields: Mapping[str, str]) -> bytes:
    """A message to the journal; values with newlines, or with anything, are told by their length."""
    parts = []
    for name, value in fields.items():
        data = value.encode(errors="backslashreplace")
        if b"\n" in data:
            parts.append(b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), data))
    return b"".join(parts)
