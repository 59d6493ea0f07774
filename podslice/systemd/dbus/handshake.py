"""Connection to a bus by its address, and authentication."""

from __future__ import annotations

import asyncio
import os
import socket
from urllib.parse import unquote

_ANSWER_MAX = 64 * 1024
"""The limit of a reply in bytes. Source: systemd, src/libsystemd/sd-bus/bus-internal.h, BUS_AUTH_SIZE_MAX."""
_REFUSAL_MAX = 100
"""Characters of a rejection that messages show."""

# the keys of a unix socket in an address: `unix:path=/run/dbus/system_bus_socket,guid=…`, `unix:abstract=…`
_SOCKET_KEYS = {"path": "", "abstract": "\0"}


async def open_socket(address: str) -> tuple[socket.socket, bool]:
    """Connect to the bus at an address and authenticate, without a time limit.

    Return the socket, and whether its messages may carry descriptors.

    Raises:
        OSError, EOFError, ValueError: the bus does not exist, closes the connection, or rejects it.
    """
    path = socket_path(address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(0)
        await _connect(sock, path)
        takes_descriptors = await authenticate(sock)
    except BaseException:
        sock.close()
        raise
    return sock, takes_descriptors


def socket_path(address: str) -> str:
    """Return the first unix socket in a D-Bus address.

    Raises:
        ValueError: it has none.

    Source: D-Bus Specification, "Server Addresses".
    """
    for part in address.split(";"):
        transport, _, options = part.partition(":")
        for option in options.split(","):
            key, _, value = option.partition("=")
            if transport == "unix" and key in _SOCKET_KEYS:
                return _SOCKET_KEYS[key] + unquote(value)
    raise ValueError("the address has no unix socket; write unix:path=/run/…")


async def _connect(sock: socket.socket, path: str) -> None:
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            # The backlog of the bus is full. loop.sock_connect would take this for a connect in
            # progress, which unix sockets do not have, and continue with an unconnected socket.
            await asyncio.sleep(0.01)


async def authenticate(sock: socket.socket) -> bool:
    """Authenticate as the current user, and negotiate descriptors in messages.

    Raises:
        OSError, EOFError, ValueError: the bus does not exist, closes the connection, or rejects it.

    Source: D-Bus Specification, "Authentication Protocol", EXTERNAL and NEGOTIATE_UNIX_FD.
    """
    loop = asyncio.get_running_loop()
    user = str(os.geteuid()).encode().hex()
    # both at once, as libsystemd does: one round trip less
    await loop.sock_sendall(sock, f"\0AUTH EXTERNAL {user}\r\nNEGOTIATE_UNIX_FD\r\n".encode())
    answer = b""
    while answer.count(b"\r\n") < 2:
        some = await loop.sock_recv(sock, 512)
        if not some:
            raise EOFError("it closed the connection during authentication")
        answer += some
        if b"\r\n" in answer and not answer.startswith(b"OK "):
            refusal = answer.partition(b"\r\n")[0].decode(errors="replace")
            raise ValueError(f"it rejects the authentication: {refusal:.{_REFUSAL_MAX}}")
        if len(answer) > _ANSWER_MAX:
            # a receive that finds data does not yield to the loop, and so to no timeout
            raise ValueError("its reply during authentication is too long")
    await loop.sock_sendall(sock, b"BEGIN\r\n")
    return b"\r\nAGREE_UNIX_FD\r\n" in answer
