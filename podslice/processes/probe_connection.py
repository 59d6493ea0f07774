"""Connections of probes, from the network namespace of this process."""

from __future__ import annotations

import socket

from podslice.model.workload import TcpSocket

_UNROUTED = "192.0.2.1"
"""An address for documentation: a datagram socket that names it sends nothing. Source: RFC 5737."""


def own_address() -> str:
    """Return the address of the pod: that of its default route, or else the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect((_UNROUTED, 9))
        except OSError:
            return "127.0.0.1"
        return str(found.getsockname()[0])


def connect(action: TcpSocket, timeout_sec: int) -> bool:
    """Connect, and return true.

    Raises:
        OSError: it fails.
    """
    with socket.create_connection((action.host or own_address(), action.port), timeout_sec):
        return True
