"""Admit clients: so many at an address, so many of each peer, and who gives way to a new one."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter

from podslice.agent.endpoints.conversation import READ_BYTES, Conversation, Find, Waits

CONNECTIONS_MAX = 32
"""At each address, so that clients of one do not lock out those of another."""
PEER_CONNECTIONS_MAX = 8
"""Of one peer, so that one user keeps no other user from the same address."""
BACKLOG = 32

_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CREDENTIALS = struct.Struct("iII")
"""Source: unix(7), SO_PEERCRED: struct ucred."""


def peer_of(connection: socket.socket) -> str:
    """Return who has connected: the user of a Unix socket, otherwise the address."""
    if connection.family == socket.AF_UNIX:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return f"uid {_CREDENTIALS.unpack(found)[1]}"
    return str(connection.getpeername()[0])


class Listener:
    """One address, and who is connected there."""

    def __init__(self, find: Find, listening: socket.socket, address: str) -> None:
        self.address = address
        self._find = find
        self._socket = listening
        self._clients: dict[asyncio.Task[None], Conversation] = {}
        self._server: asyncio.Server

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(
            self._connected, sock=self._socket, backlog=BACKLOG, limit=READ_BYTES
        )

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        self._server.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = peer_of(writer.get_extra_info("socket"))
        except OSError:  # it has left already
            writer.transport.abort()
            return
        if not self._make_room(peer):
            writer.write(_BUSY)
            writer.close()
            return
        conversation = Conversation(self._find, reader, writer, peer)
        client = asyncio.create_task(conversation.run())
        self._clients[client] = conversation
        client.add_done_callback(self._part_with)

    def _part_with(self, client: asyncio.Task[None]) -> None:
        # not by the task itself, which may have been cancelled before it has begun
        conversation = self._clients.pop(client, None)
        if conversation is not None:
            conversation.hang_up()

    def _make_room(self, peer: str) -> bool:
        """Return whether one more of this peer can be served, if need be in place of another.

        The peer with the most connections loses one: the oldest idle one if there is any.
        """
        counts = Counter(each.peer for each in self._clients.values())
        if counts[peer] < PEER_CONNECTIONS_MAX and counts.total() < CONNECTIONS_MAX:
            return True
        is_crowd = counts[peer] >= PEER_CONNECTIONS_MAX
        ready = [
            (-counts[each.peer], each.waits, each.since, client)
            for client, each in self._clients.items()
            if each.waits is not Waits.FOR_ANSWER and (each.peer == peer or not is_crowd)
        ]
        if not ready:
            return False
        *_, client = min(ready, key=lambda each: each[:3])
        self._part_with(client)
        client.cancel()
        return True
