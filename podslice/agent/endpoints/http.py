"""An HTTP server for monitoring: GET and HEAD, over sockets of this host.

Clients must not slow the agent down: requests have timeouts and no bodies, and responses are
rendered one at a time, in parts between which the event loop continues.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from podslice.agent.endpoints.http_connection import (
    READ_BYTES,
    HttpConnection,
    Respond,
    WaitingFor,
)
from podslice.agent.endpoints.pages import Page, Rendering, Route, render_text
from podslice.errors import HostError

_NAMES = {"localhost": "127.0.0.1"}
"""The only supported name: resolving others would block the event loop."""
_NO_NETWORK = "; its unit allows no network: see listen in podslice-agent(8)"


class Server:
    """Serves pages at any number of addresses."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        """Open nothing yet; `routes` are by path: `/healthz`."""
        self.pages = {path: Page(route) for path, route in routes.items()}
        self._listeners: list[AddressListener] = []
        self._paths: list[Path] = []
        self._rendering = asyncio.Lock()

    async def serve_unix(self, path: Path, *, mode: int = 0o660, group: str | None = None) -> None:
        """Listen at a socket file; replace an existing one.

        Args:
            path: the file; its directory is created if needed.
            mode: the mode of the file.
            group: the group of the file, if it exists and permissions suffice; otherwise that of
                the process.

        Raises:
            HostError: the socket cannot be created.
        """
        new = path.with_name(f".{path.name}.new")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            # bound under another name until the file has its group and its mode
            listening.bind(str(new))
            # not permitted in a sandbox; then only the agent's own user may connect
            with suppress(LookupError, PermissionError):
                shutil.chown(new, group=group or os.getegid())
            new.chmod(mode)
            listening.listen(BACKLOG)
            new.replace(path)
        except OSError as error:
            listening.close()
            hint = "; run as root, or use --user" if isinstance(error, PermissionError) else ""
            message = f"{path}: cannot listen: {error.strerror or error}{hint}"
            raise HostError(message) from error
        self._paths.append(path)
        await self._listen(listening, str(path))

    async def serve_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Listen at open sockets, which systemd passes."""
        for listening in sockets:
            await self._listen(listening, _address(listening))

    async def serve_tcp(self, host: str, port: int) -> None:
        """Listen at a TCP address; with port 0 at any free port.

        Raises:
            HostError: the address is in use or not of this host, or there is no network.
        """
        try:
            listening = _open_tcp(_NAMES.get(host, host), port)
        except OSError as error:
            hint = _NO_NETWORK if error.errno == errno.EAFNOSUPPORT else ""
            message = f"{host}:{port}: cannot listen: {error.strerror or error}{hint}"
            raise HostError(message) from error
        await self._listen(listening, _address(listening))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses: `/run/podslice/agent.sock`, `127.0.0.1:9469`."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def connections(self) -> tuple[HttpConnection, ...]:
        """Return the open connections of all addresses."""
        return tuple(each for listener in self._listeners for each in listener.connections)

    async def close(self) -> None:
        """Stop listening, close connections, and remove the socket files created here."""
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._paths.clear()

    async def _listen(self, listening: socket.socket, address: str) -> None:
        listener = AddressListener(self._respond, listening, address)
        await listener.open()
        self._listeners.append(listener)

    async def _respond(self, path: str) -> Rendering:
        page = self.pages.get(path)
        if page is None:
            return render_text(HTTPStatus.NOT_FOUND, f"unknown path {path!a}; paths: {self._index}")
        async with self._rendering:
            return await page.get()

    @property
    def _index(self) -> str:
        return " ".join(sorted(self.pages))


def _open_tcp(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _address(listening: socket.socket) -> str:
    name = listening.getsockname()
    if isinstance(name, str):
        return name
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


CONNECTIONS_MAX = 32
"""Per address, so that clients of one do not lock out those of another."""
PEER_CONNECTIONS_MAX = 8
"""Per peer, so that one user does not lock out other users of the same address."""
BACKLOG = 32

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CREDENTIALS = struct.Struct("iII")
"""Source: unix(7), SO_PEERCRED: struct ucred."""


def peer_of(connection: socket.socket) -> str:
    """Return the peer: the user of a Unix socket, otherwise the address."""
    if connection.family == socket.AF_UNIX:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return f"uid {_CREDENTIALS.unpack(found)[1]}"
    return str(connection.getpeername()[0])


class AddressListener:
    """One address with its connections."""

    def __init__(self, respond: Respond, listening: socket.socket, address: str) -> None:
        self.address = address
        self._respond = respond
        self._socket = listening
        self._connections: dict[asyncio.Task[None], HttpConnection] = {}
        self._server: asyncio.Server

    @property
    def connections(self) -> tuple[HttpConnection, ...]:
        """Return the open connections, the oldest first."""
        return tuple(self._connections.values())

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(
            self._on_connected, sock=self._socket, backlog=BACKLOG, limit=READ_BYTES
        )

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = peer_of(writer.get_extra_info("socket"))
        except OSError:  # the client has disconnected
            writer.transport.abort()
            return
        if not self._make_room(peer):
            writer.write(_BUSY)
            writer.close()
            return
        connection = HttpConnection(self._respond, reader, writer, peer)
        task = asyncio.create_task(connection.run())
        self._connections[task] = connection
        task.add_done_callback(self._close)

    def _close(self, task: asyncio.Task[None]) -> None:
        # not by the task itself, which may be cancelled before it begins
        connection = self._connections.pop(task, None)
        if connection is not None:
            connection.abort()

    def _make_room(self, peer: str) -> bool:
        """Return whether one more of this peer can be served; close another one if needed.

        The peer with the most connections loses one, the oldest idle one if there is any.
        """
        counts = Counter(each.peer for each in self.connections)
        if counts[peer] < PEER_CONNECTIONS_MAX and counts.total() < CONNECTIONS_MAX:
            return True
        is_peer_full = counts[peer] >= PEER_CONNECTIONS_MAX
        candidates = [
            (-counts[each.peer], each.waiting_for, each.since, task)
            for task, each in self._connections.items()
            if each.waiting_for is not WaitingFor.RESPONSE
            and (each.peer == peer or not is_peer_full)
        ]
        if not candidates:
            return False
        *_, task = min(candidates, key=lambda each: each[:3])
        self._close(task)
        task.cancel()
        return True
