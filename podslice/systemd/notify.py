"""What a service of systemd tells it of itself, and the sockets that it was given.

Source: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping, MutableMapping

log = logging.getLogger(__name__)

_FIRST_DESCRIPTOR = 3
_DIGITS_MAX = 20
"""Digits of a number of 64 bits."""
# systemd reads these within microseconds; it may be away for a daemon-reexec
_PATIENCE_SEC = 1.0


class Notifier:
    """Tells the service manager how a service is; without one that wants to know, nobody.

    A message that can't be sent is lost: what it is about goes on either way.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """From the variables that the service was started with."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._watchdog_usec = environ.get("WATCHDOG_USEC", "")
        self._watchdog_pid = environ.get("WATCHDOG_PID", "")

    @property
    def watchdog_sec(self) -> float | None:
        """Within what time `watchdog` has to be called again and again; None: nobody waits."""
        is_ours = self._watchdog_pid in ("", str(os.getpid()))
        usec = _number(self._watchdog_usec) if is_ours else 0
        return usec / 1_000_000 if usec else None

    def ready(self, status: str) -> None:
        """The service is up, or has read its settings again; `status` as in the method."""
        self._send("READY=1", _status(status))

    def status(self, text: str) -> None:
        """What the service is about, for `systemctl status`, in one line."""
        self._send(_status(text))

    def reloading(self) -> None:
        """The service reads its settings again; it is done with the next `ready`."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The service is about to end."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """The service is alive."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        # a path, or an abstract name that is written with @ for the zero byte
        if not self._address.startswith(("/", "@")):
            return
        address = self._address.replace("@", "\0", 1) if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(_PATIENCE_SEC)
                sock.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.debug("%s is not told at %r: %s", lines[0], self._address, error)


def listen_fds(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The sockets that systemd has opened for this process; not blocking, not for its children.

    The variables are taken away, so that nobody takes the sockets a second time.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()):
        return []
    descriptors = range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + _number(count))
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
