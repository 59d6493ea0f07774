"""Listens at one address, with limits on connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter

from podslice.agent.endpoints.http_connection import (
    READ_BYTES,
    HttpConnection,
    Respond,
    WaitingFor,
)

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
