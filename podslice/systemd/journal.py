"""Logs events to the journal, with fields that programs can select by.

It speaks the journal's native protocol, which needs no library and does not block.

Source: systemd, docs/JOURNAL_NATIVE_PROTOCOL.md.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import sys
from collections import Counter, deque
from collections.abc import Mapping

from podslice.errors import printable
from podslice.model.event import Event, Kind
from podslice.model.unit import SYSTEM, Manager

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
                self._send(encode(self._fields(event)))
            except BlockingIOError:
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
        text = printable(line).encode(errors="backslashreplace")[: select.PIPE_BUF - 1] + b"\n"
        try:
            if self._stderr is not None and select.select([], [self._stderr], [], 0)[1]:
                os.write(self._stderr, text)
        except (OSError, ValueError):
            return  # the terminal was closed


def encode(fields: Mapping[str, str]) -> bytes:
    """Return a message to the journal; values with newlines are preceded by their length."""
    parts = []
    for name, value in fields.items():
        data = value.encode(errors="backslashreplace")
        if b"\n" in data:
            parts.append(b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data))
        else:
            parts.append(b"%s=%s\n" % (name.encode(), data))
    return b"".join(parts)
