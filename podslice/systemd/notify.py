"""Status notifications of a service to systemd, and the sockets that systemd passes to it.

Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping, MutableMapping

log = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3
_DIGITS_MAX = 20
"""Digits of a number of 64 bits."""
# systemd reads a message within microseconds, but not during daemon-reexec
SEND_TIMEOUT_SEC = 1.0


class Notifier:
    """Sends the status of a service to the service manager, if that expects it.

    A message that cannot be sent is dropped; the service does not depend on it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read the variables that the service was started with."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._watchdog_usec = environ.get("WATCHDOG_USEC", "")
        self._watchdog_pid = environ.get("WATCHDOG_PID", "")

    @property
    def watchdog_sec(self) -> float | None:
        """Return the longest time between calls of `watchdog`; None where no watchdog is set."""
        # The variables may be inherited from a service that started this process.
        is_ours = self._watchdog_pid in ("", str(os.getpid()))
        usec = _number(self._watchdog_usec) if is_ours else 0
        return usec / 1_000_000 if usec else None

    def ready(self, status: str) -> None:
        """Report that the service is up, or has reloaded; `status` as in the method."""
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        """Report one line for `systemctl status`."""
        self._send(_status(text))

    def reloading(self) -> None:
        """Report that the service reloads its configuration, until the next `ready`."""
        # Type=notify-reload requires the time. Source: sd_notify(3), RELOADING=1.
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the service stops."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """Report that the service is alive."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        # a path, or an abstract name that is written with @ for the zero byte
        if not self._address.startswith(("/", "@")):
            return
        address = self._address.replace("@", "\0", 1) if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(SEND_TIMEOUT_SEC)
                sock.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.debug("cannot send %s to %r: %s", lines[0], self._address, error)


def listen_fds(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """Return the sockets that systemd passed to this process: non-blocking, not inherited.

    The variables are removed, so that the sockets are taken only once.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return []
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + _number(count))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - the standard library's way
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for sock in sockets:
        sock.settimeout(0)
    return sockets


def _number(text: str) -> int:
    """Parse a variable that systemd sets; 0 where it is not one of its numbers."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else 0


def _status(text: str) -> str:
    return "STATUS=" + text.replace("\n", " ")
