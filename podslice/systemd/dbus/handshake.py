"""From the address of a bus to a socket that is ready for messages."""

from __future__ import annotations

import asyncio
import os
import socket
from urllib.parse import unquote

_ANSWER_MAX = 64 * 1024
"""Bytes of an answer. Source: systemd, src/libsystemd/sd-bus/bus-internal.h, BUS_AUTH_SIZE_MAX."""
_REFUSAL_MAX = 100
"""Characters of a refusal that are shown."""

# what may name a unix socket: `unix:path=/run/dbus/system_bus_socket,guid=…`, `unix:abstract=…`
_SOCKET_KEYS = {"path": "", "abstract": "\0"}


async def open_socket(address: str) -> tuple[socket.socket, bool]:
    """Connect to the bus at an address and authenticate; takes as long as the bus does.

    Returns the socket, and whether messages on it may carry descriptors.

    Raises:
        OSError, EOFError, ValueError: there is no bus, it hung up, or it does not want us.
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
    """The first unix socket in a D-Bus address.

    Raises:
        ValueError: there is none.

    Source: D-Bus Specification, "Server Addresses".
    """
    for part in address.split(";"):
        transport, _, options = part.partition(":")
        for option in options.split(","):
            key, _, value = option.partition("=")
            if transport == "unix" and key in _SOCKET_KEYS:
                return _SOCKET_KEYS[key] + unquote(value)
    raise ValueError("this address has no unix socket; write unix:path=/run/…")


async def _connect(sock: socket.socket, path: str) -> None:
    while True:
        try:
            return sock.connect(path)
        except BlockingIOError:
            # The bus has its hands full. loop.sock_connect would take this for a connect in
            # progress, which unix sockets do not know, and go on with a socket that isn't connected.
            await asyncio.sleep(0.01)


async def authenticate(sock: socket.socket) -> bool:
    """Say who we are, and ask whether messages may carry descriptors.

    Raises:
        OSError, EOFError, ValueError: there is no bus, it hung up, or it does not want us.

    Source: D-Bus Specification, "Authentication Protocol", EXTERNAL and NEGOTIATE_UNIX_FD.
    """
    loop = asyncio.get_running_loop()
    user = str(os.geteuid()).encode().hex()
    # both at once, as libsystemd does: one wait less
    await loop.sock_sendall(sock, f"\0AUTH EXTERNAL {user}\r\nNEGOTIATE_UNIX_FD\r\n".encode())
    answer = b""
    while answer.count(b"\r\n") < 2:
        some = await loop.sock_recv(sock, 512)
        if not some:
            raise EOFError("it hung up during authentication")
        answer += some
        if b"\r\n" in answer and not answer.startswith(b"OK "):
            refusal = answer.partition(b"\r\n")[0].decode(errors="replace")
            raise ValueError(f"it refuses authentication: {refusal:.{_REFUSAL_MAX}}")
        if len(answer) > _ANSWER_MAX:
            # a receive that finds something does not let the loop, and so no timeout, have a turn
            raise ValueError("it does not stop talking during authentication")
    await loop.sock_sendall(sock, b"BEGIN\r\n")
    return b"\r\nAGREE_UNIX_FD\r\n" in answer
